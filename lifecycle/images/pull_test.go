package images_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/images"
)

// mute is a runtime that returns empty responses, and records the requests.
type mute struct {
	specs   []*runtimeapi.ImageSpec
	sandbox *runtimeapi.PodSandboxConfig
	auth    *runtimeapi.AuthConfig
}

func (m *mute) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	m.specs = append(m.specs, spec)
	return nil, nil
}

func (m *mute) PullImage(_ context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	m.specs, m.auth, m.sandbox = append(m.specs, spec), auth, sandbox
	return "", nil
}

func TestEnsure_EmptyRuntimeResponses(t *testing.T) {
	t.Parallel()
	m, err := images.New(images.Config{Images: &mute{}})
	require.NoError(t, err)
	_, err = m.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "web:1"})
	require.Equal(t, `ImageInspectError: Image "web:1" is missing in the runtime after its pull`, refusal(t, err).Error())
}

// The runtime receives the pod's annotations, the handler and the sandbox, and ImageStatus
// the name of the pulled image.
func TestEnsure_RuntimeCalls(t *testing.T) {
	t.Parallel()
	runtime := &mute{}
	m, err := images.New(images.Config{Images: runtime})
	require.NoError(t, err)
	p := pod("a")
	p.Annotations = map[string]string{"key": "value"}
	before := p.DeepCopy()
	sandbox := &runtimeapi.PodSandboxConfig{Hostname: "h"}
	_, err = m.Ensure(t.Context(), images.Request{Pod: p, Image: "web", PullPolicy: corev1.PullIfNotPresent, Sandbox: sandbox})
	require.Error(t, err)
	require.Equal(t, before, p, "the pod must not be modified")
	require.Len(t, runtime.specs, 3)
	for _, spec := range runtime.specs {
		require.Equal(t, "web:latest", spec.GetImage())
		require.Empty(t, spec.GetUserSpecifiedImage())
		require.Empty(t, spec.GetRuntimeHandler())
		require.Equal(t, p.Annotations, spec.GetAnnotations())
	}
	require.Same(t, sandbox, runtime.sandbox)
	require.Nil(t, runtime.auth)
}

// Each pod that waited for a failed shared pull backs off separately.
func TestSharedFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := live(t, nil)
		s.node.registry = func(ctx context.Context, image string, auth *runtimeapi.AuthConfig) error {
			return errors.Join(slow(time.Second)(ctx, image, auth), errors.New("no route"))
		}
		var all sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			all.Go(func() {
				_, err := s.Ensure(t.Context(), images.Request{Pod: pod(name), Image: "web:1"})
				require.Equal(t, images.ErrImagePull, refusal(t, err).Reason)
			})
		}
		all.Wait()
		require.Len(t, s.node.pulled(), 1)
		for _, name := range []string{"a", "b"} {
			_, err := s.Ensure(t.Context(), images.Request{Pod: pod(name), Image: "web:1"})
			require.Equal(t, images.ImagePullBackOff, refusal(t, err).Reason)
		}
		_, err := s.Ensure(t.Context(), images.Request{Pod: pod("c"), Image: "web:1"})
		require.Equal(t, images.ErrImagePull, refusal(t, err).Reason)
	})
}

// While two pulls of an image with different credentials are running, the end of one pull does
// not make the image count as preloaded.
func TestRecords_IntentOfTwoPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := live(t, func(c *images.Config) { c.Objects = store{"default/key": secret("key", "r.io", "me", "right")} })
		s.node.registry = func(ctx context.Context, image string, auth *runtimeapi.AuthConfig) error {
			if err := private(ctx, image, auth); err != nil {
				return err
			}
			return slow(time.Minute)(ctx, image, auth)
		}
		var all sync.WaitGroup
		all.Go(func() {
			_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a", "key"), Image: "r.io/web:1"})
			require.NoError(t, err)
		})
		synctest.Wait()
		_, err := s.Ensure(t.Context(), images.Request{Pod: pod("b"), Image: "r.io/web:1"})
		require.Equal(t, images.ErrImagePull, refusal(t, err).Reason)
		s.node.preload("r.io/web:1") // the image is present in the runtime shortly before the pull returns
		_, err = s.Ensure(t.Context(), images.Request{Pod: pod("c"), Image: "r.io/web:1", PullPolicy: corev1.PullNever})
		require.Equal(t, images.ErrImageNeverPull, refusal(t, err).Reason)
		all.Wait()
	})
}

// At a very low rate, the wait of a pull is limited to a year, and does not overflow to zero.
func TestTinyRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := live(t, func(c *images.Config) { c.QPS = 1e-300 })
		start := time.Now()
		for _, image := range []string{"a:1", "b:1"} {
			_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: image})
			require.NoError(t, err)
		}
		require.Equal(t, 365*24*time.Hour, time.Since(start))
	})
}

// The state of a failure is deleted when its back-off has ended.
func TestBackOff_ManyFailingPods(t *testing.T) {
	t.Parallel()
	s := newSet(t, nil)
	s.node.registry = func(context.Context, string, *runtimeapi.AuthConfig) error { return errors.New("no route") }
	for name := range strings.FieldsSeq("a b c d e f g h") {
		_, err := s.Ensure(t.Context(), images.Request{Pod: pod(name), Image: "web:1"})
		require.Equal(t, images.ErrImagePull, refusal(t, err).Reason)
		s.clock.Step(6 * time.Second)
	}
	for name, reason := range map[string]string{"h": images.ImagePullBackOff, "g": images.ErrImagePull, "a": images.ErrImagePull} {
		_, err := s.Ensure(t.Context(), images.Request{Pod: pod(name), Image: "web:1"})
		require.Equal(t, reason, refusal(t, err).Reason, name)
	}
}
