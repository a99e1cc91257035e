package images_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/lifecycle/images"
)

// private is a registry that requires the password "right" for r.io.
func private(_ context.Context, image string, auth *runtimeapi.AuthConfig) error {
	if strings.HasPrefix(image, "r.io/") && auth.GetPassword() != "right" {
		return errors.New("denied")
	}
	return nil
}

// both runs a test with each kind of store for records.
func both(t *testing.T, run func(t *testing.T, kept images.Store)) {
	t.Helper()
	t.Run("in memory", func(t *testing.T) { t.Parallel(); run(t, nil) })
	t.Run("in a folder", func(t *testing.T) { t.Parallel(); run(t, state.Files(filepath.Join(t.TempDir(), "records"))) })
}

// KEP-2535: an image that was pulled with one pod's credentials is not
// available to other pods.
func TestRecords_ImageOfAnotherPodRequiresCredentials(t *testing.T) {
	both(t, func(t *testing.T, kept images.Store) {
		t.Helper()
		secrets := store{
			"default/key": secret("key", "r.io", "me", "right"), "default/copy": secret("copy", "r.io", "me", "right"),
			"default/wrong": secret("wrong", "r.io", "me", "wrong"),
		}
		s := newSet(t, func(c *images.Config) { c.Objects, c.State = secrets, kept })
		s.node.registry = private
		ask := func(p *corev1.Pod, policy corev1.PullPolicy) error {
			_, err := s.Ensure(t.Context(), images.Request{Pod: p, Image: "r.io/web:1", PullPolicy: policy})
			return err
		}
		require.NoError(t, ask(pod("owner", "key"), ""))
		require.NoError(t, ask(pod("friend", "key"), ""))
		require.NoError(t, ask(pod("friend", "copy"), ""), "the same credential in another Secret must give access")
		require.NoError(t, ask(pod("friend", "key"), corev1.PullNever))
		require.Len(t, s.node.pulled(), 1)

		s.events.take()
		require.Equal(t, images.ErrImagePull, refusal(t, ask(pod("stranger"), "")).Reason)
		require.Equal(t, images.ErrImagePull, refusal(t, ask(pod("stranger", "wrong"), "")).Reason)
		require.Equal(t, `ErrImageNeverPull: Container image "r.io/web:1" is not present with pull policy of Never`,
			refusal(t, ask(pod("other"), corev1.PullNever)).Error())
		require.Equal(t, []string{"r.io/web:1 as me", "r.io/web:1 as ", "r.io/web:1 as me"}, s.node.pulled())

		// The Secret gave access before. After a change of its password, no verification is
		// necessary.
		secrets["default/key"] = secret("key", "r.io", "me", "new")
		require.NoError(t, ask(pod("owner", "key"), corev1.PullNever))

		require.NoError(t, s.Prune(t.Context(), nil))
		require.Error(t, ask(pod("other"), corev1.PullNever), "the image may have been pulled after the list was made")
		s.clock.Step(10 * time.Minute)
		require.NoError(t, s.Prune(t.Context(), []string{"id of r.io/web:1"}))
		require.Error(t, ask(pod("other"), corev1.PullNever))
		require.NoError(t, s.Prune(t.Context(), nil))
		require.NoError(t, ask(pod("other"), corev1.PullNever), "without records, the image must count as preloaded")
	})
}

func TestRecords_AnonymousPullGivesAccessToAllPods(t *testing.T) {
	both(t, func(t *testing.T, kept images.Store) {
		t.Helper()
		s := newSet(t, func(c *images.Config) {
			c.Objects, c.State = store{"default/key": secret("key", "public.io", "me", "x")}, kept
		})
		_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a", "key"), Image: "public.io/web:1"})
		require.NoError(t, err)
		_, err = s.Ensure(t.Context(), images.Request{Pod: pod("b"), Image: "public.io/web:1"})
		require.NoError(t, err)
		require.Equal(t, []string{"public.io/web:1 as me", "public.io/web:1 as "}, s.node.pulled(), "pod b must pull without credentials, which shows that the image needs none")
		for _, p := range []*corev1.Pod{pod("c"), pod("a", "key")} {
			_, err = s.Ensure(t.Context(), images.Request{Pod: p, Image: "public.io/web:1", PullPolicy: corev1.PullIfNotPresent})
			require.NoError(t, err)
		}
		_, err = s.Ensure(t.Context(), images.Request{Pod: pod("a", "key"), Image: "public.io/web:1", PullPolicy: corev1.PullAlways})
		require.NoError(t, err)
		_, err = s.Ensure(t.Context(), images.Request{Pod: pod("d"), Image: "public.io/web:1"})
		require.NoError(t, err)
		require.Len(t, s.node.pulled(), 3, "the image must stay available to all pods")
	})
}

func TestVerificationPolicies(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy images.Verification
		list   []string
		pulls  int
	}{
		{"the default trusts what was there before us", "", nil, 0},
		{"by name", images.NeverVerifyPreloadedImages, nil, 0},
		{"never", images.NeverVerify, nil, 0},
		{"always", images.AlwaysVerify, nil, 1},
		{"the image is on the list", images.NeverVerifyAllowlistedImages, []string{"a.io/x", "r.io/team/web"}, 0},
		{"the images below", images.NeverVerifyAllowlistedImages, []string{"r.io/team/*"}, 0},
		{"below is not beside", images.NeverVerifyAllowlistedImages, []string{"r.io/te/*", "r.io/team/we"}, 1},
		{"an empty list", images.NeverVerifyAllowlistedImages, nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSet(t, func(c *images.Config) { c.Verify, c.VerifyAllowlist = tc.policy, tc.list })
			s.node.preload("r.io/team/web:1")
			_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "r.io/team/web:1"})
			require.NoError(t, err)
			require.Len(t, s.node.pulled(), tc.pulls)
			if tc.policy == images.NeverVerify {
				require.Equal(t, []string{`a: Normal Pulled: Container image "r.io/team/web:1" already present on machine`}, s.events.take())
			}
		})
	}
}

// Records survive a restart of the agent, including the records of a pull whose end the agent
// did not observe.
func TestRecords_SurviveARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secrets := store{"default/key": secret("key", "r.io", "me", "right")}
	start := func() *set {
		s := newSet(t, func(c *images.Config) { c.Objects, c.State = secrets, state.Files(dir) })
		s.node.registry = private
		return s
	}
	first := start()
	_, err := first.Ensure(t.Context(), images.Request{Pod: pod("a", "key"), Image: "r.io/web:1"})
	require.NoError(t, err)

	second := start()
	second.node.preload("r.io/web:1")
	_, err = second.Ensure(t.Context(), images.Request{Pod: pod("b"), Image: "r.io/web:1", PullPolicy: corev1.PullNever})
	require.Equal(t, images.ErrImageNeverPull, refusal(t, err).Reason)
	_, err = second.Ensure(t.Context(), images.Request{Pod: pod("b", "key"), Image: "r.io/web:1", PullPolicy: corev1.PullNever})
	require.NoError(t, err)

	// The agent was killed between the pull and its record.
	second.node.vanish = true
	second.node.registry = func(context.Context, string, *runtimeapi.AuthConfig) error {
		third := start()
		third.node.preload("r.io/two:1")
		_, err := third.Ensure(t.Context(), images.Request{Pod: pod("b"), Image: "r.io/two:1", PullPolicy: corev1.PullNever})
		require.Equal(t, images.ErrImageNeverPull, refusal(t, err).Reason)
		return errors.New("denied")
	}
	_, err = second.Ensure(t.Context(), images.Request{Pod: pod("a", "key"), Image: "r.io/two:1"})
	require.Error(t, err)
	fourth := start()
	fourth.node.preload("r.io/two:1")
	_, err = fourth.Ensure(t.Context(), images.Request{Pod: pod("b"), Image: "r.io/two:1", PullPolicy: corev1.PullNever})
	require.NoError(t, err, "a failed pull must not change the access")
}

// A crash during a pull leaves an image whose credentials were never verified. A failed
// attempt without access must not make the image count as preloaded.
func TestRecords_FailedPullKeepsTheDoubtOfACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func() *set {
		s := newSet(t, func(c *images.Config) {
			c.Objects, c.State = store{"default/key": secret("key", "r.io", "me", "right")}, state.Files(dir)
		})
		s.node.registry = private
		return s
	}
	crashed := start()
	var after *set
	crashed.node.registry = func(context.Context, string, *runtimeapi.AuthConfig) error {
		after = start() // the agent is killed at this point
		after.node.preload("r.io/web:1")
		for range 2 {
			_, err := after.Ensure(t.Context(), images.Request{Pod: pod("stranger"), Image: "r.io/web:1"})
			require.Equal(t, images.ErrImagePull, refusal(t, err).Reason)
			after.clock.Step(time.Hour)
		}
		_, err := start().Ensure(t.Context(), images.Request{Pod: pod("b", "key"), Image: "r.io/web:1"})
		require.NoError(t, err, "a successful verification must remove the uncertainty")
		return errors.New("never seen")
	}
	_, _ = crashed.Ensure(t.Context(), images.Request{Pod: pod("a", "key"), Image: "r.io/web:1"})
	require.NotNil(t, after)
}

// An image of an interrupted pull may also be requested by its digest or ID.
func TestRecords_DoubtAppliesToEveryNameOfAnImage(t *testing.T) {
	t.Parallel()
	digest := "r.io/web@sha256:" + strings.Repeat("0", 64)
	for _, tag := range []string{"docker.io/library/web:latest", "docker.io/library/web:1"} {
		s := newSet(t, nil)
		s.node.registry = func(context.Context, string, *runtimeapi.AuthConfig) error {
			return grpcstatus.Error(codes.Unavailable, "connection closed")
		}
		_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "web"})
		require.Error(t, err)
		s.node.preload(digest)
		s.node.tags = []string{"<none>:<none>", tag}
		_, err = s.Ensure(t.Context(), images.Request{Pod: pod("stranger"), Image: digest, PullPolicy: corev1.PullNever})
		if tag == "docker.io/library/web:1" {
			require.NoError(t, err, "another image must not be affected")
			continue
		}
		require.Equal(t, images.ErrImageNeverPull, refusal(t, err).Reason)
	}
}

// After a cancelled pull it is unknown whether the runtime continues the pull.
func TestEnsure_ImageArrivesAfterACancelledPull(t *testing.T) {
	for name, answer := range map[string]error{
		"the runtime restarted":    grpcstatus.Error(codes.Unavailable, "connection closed"),
		"the deadline is exceeded": grpcstatus.Error(codes.DeadlineExceeded, "too late"),
		"the call was cancelled":   grpcstatus.Error(codes.Canceled, "stop"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, func(t *testing.T, kept images.Store) {
				t.Helper()
				s := newSet(t, func(c *images.Config) {
					c.Objects, c.State = store{"default/key": secret("key", "r.io", "me", "right")}, kept
				})
				s.node.registry = func(context.Context, string, *runtimeapi.AuthConfig) error {
					s.node.preload("r.io/web:1")
					return answer
				}
				_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a", "key"), Image: "r.io/web:1"})
				require.Error(t, err)
				s.node.registry = private
				_, err = s.Ensure(t.Context(), images.Request{Pod: pod("stranger"), Image: "r.io/web:1", PullPolicy: corev1.PullNever})
				require.Equal(t, images.ErrImageNeverPull, refusal(t, err).Reason)
				_, err = s.Ensure(t.Context(), images.Request{Pod: pod("b", "key"), Image: "r.io/web:1"})
				require.NoError(t, err)
			})
		})
	}
}

// Records contain no credentials and are not readable by other users. A damaged record gives
// no access.
func TestRecordFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newSet(t, func(c *images.Config) {
		c.Objects, c.State = store{"default/key": secret("key", "r.io", "the-user", "right")}, state.Files(dir)
	})
	s.node.registry = private
	req := images.Request{Pod: pod("a", "key"), Image: "r.io/web:1"}
	_, err := s.Ensure(t.Context(), req)
	require.NoError(t, err)
	files, err := filepath.Glob(dir + "/image_manager/*/*")
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Regexp(t, `/image_manager/pulled/sha256-[0-9a-f]{64}$`, files[0], "the file must have the kubelet's name")
	data, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Regexp(t, `^\{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"id of r.io/web:1","credentialMapping":\{"r.io/web":`+
		`\{"kubernetesSecrets":\[\{"uid":"uid-key","namespace":"default","name":"key","credentialHash":"[0-9a-f]{64}"\}\]\}\}\}$`, string(data))
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode())

	for _, spoiled := range []string{"{", "{}", `{"imageRef":"another"}`} {
		require.NoError(t, os.WriteFile(files[0], []byte(spoiled), 0o600))
		_, err = s.Ensure(t.Context(), images.Request{Pod: pod("b"), Image: "r.io/web:1", PullPolicy: corev1.PullNever})
		require.Error(t, err)
		_, err = s.Ensure(t.Context(), req)
		require.NoError(t, err, "the image must be pulled and recorded again")
	}
	require.Len(t, s.node.pulled(), 4)
}

func TestPrune_RemovesWhatAKilledAgentLeftHalfWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newSet(t, func(c *images.Config) { c.State = state.Files(dir) })
	intent := filepath.Join(dir, "image_manager", "pulling", "sha256-0")
	halves := []string{filepath.Join(dir, "image_manager", "pulling", "sha256-0.new"), filepath.Join(dir, "image_manager", "pulled", "sha256-2.new")}
	for _, path := range append(halves, intent) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	require.NoError(t, s.Prune(t.Context(), nil))
	for _, path := range halves {
		require.NoFileExists(t, path)
	}
	require.FileExists(t, intent)
}

// A pull does not start if its intent cannot be recorded.
func TestRecords_FailedWrites(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	s := newSet(t, func(c *images.Config) { c.State = state.Files(dir) })
	_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "web:1"})
	require.Contains(t, refusal(t, err).Message, `Failed to record image pull intent for container image "web:1": `)
	require.Empty(t, s.node.pulled())
	require.Error(t, s.Prune(t.Context(), nil))
}
