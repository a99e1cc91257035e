package images_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle/images"
)

var _ images.ImageService = cri.ImageManagerService(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a runtime with a function as its registry.
type node struct {
	// registry responds to a pull; nil: every image exists and is public.
	registry func(ctx context.Context, image string, auth *runtimeapi.AuthConfig) error
	// inspectErr is the error of ImageStatus.
	inspectErr error
	// tags are additional names of images.
	tags []string
	// vanish makes images disappear after their pull.
	vanish bool

	mu      sync.Mutex
	present map[string]bool
	pulls   []string
}

func (n *node) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.inspectErr != nil {
		return nil, n.inspectErr
	}
	id := spec.GetImage()
	if !n.present[id] {
		id = "id of " + id
	}
	if !n.present[id] {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: id, Size: 4096, RepoTags: n.tags}}, nil
}

func (n *node) PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	n.mu.Lock()
	n.pulls = append(n.pulls, spec.GetImage()+" as "+auth.GetUsername())
	registry := n.registry
	n.mu.Unlock()
	if registry != nil {
		if err := registry(ctx, spec.GetImage(), auth); err != nil {
			return "", err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	id := "id of " + spec.GetImage()
	if !n.vanish {
		n.add(id)
	}
	return id, nil
}

func (n *node) add(id string) {
	if n.present == nil {
		n.present = map[string]bool{}
	}
	n.present[id] = true
}

func (n *node) preload(image string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.add("id of " + image)
}

func (n *node) pulled() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.pulls...)
}

// recorder records events.
type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf("%s: %s %s: ", object.(*corev1.ObjectReference).Name, kind, reason)+fmt.Sprintf(format, args...))
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// store holds Secrets by name.
type store map[string]*corev1.Secret

func (store) ConfigMap(context.Context, *corev1.Pod, string) (*corev1.ConfigMap, error) {
	return nil, errors.New("no ConfigMaps here")
}

func (store) Release(types.UID) {}

func (s store) Secret(_ context.Context, pod *corev1.Pod, name string) (*corev1.Secret, error) {
	if secret := s[pod.Namespace+"/"+name]; secret != nil {
		return secret, nil
	}
	return nil, errors.New("not found")
}

// secret returns a pull secret for one location.
func secret(name, location, user, password string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{
			corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{%q:{"username":%q,"password":%q}}}`, location, user, password),
		},
	}
}

func pod(name string, secrets ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	for _, s := range secrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
	}
	return p
}

// set is a Manager with fakes of all its collaborators.
type set struct {
	*images.Manager
	node   *node
	events *recorder
	clock  *testingclock.FakeClock
}

func newSet(t *testing.T, change func(*images.Config)) *set {
	t.Helper()
	s := &set{node: &node{}, events: &recorder{}, clock: testingclock.NewFakeClock(time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC))}
	cfg := images.Config{Images: s.node, Events: s.events, Clock: s.clock}
	if change != nil {
		change(&cfg)
	}
	m, err := images.New(cfg)
	require.NoError(t, err)
	s.Manager = m
	return s
}

// refusal returns err as an *Error, and fails the test if it is another error.
func refusal(t *testing.T, err error) *images.Error {
	t.Helper()
	var e *images.Error
	require.ErrorAs(t, err, &e)
	return e
}
