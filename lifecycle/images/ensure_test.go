package images_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/images"
)

func TestEnsure_PullDependsOnThePolicy(t *testing.T) {
	for _, tc := range []struct {
		name    string
		image   string
		policy  corev1.PullPolicy
		present bool
		pulls   int
		events  []string
		reason  string
		message string
	}{
		{
			name: "IfNotPresent uses a present image", image: "web:1", policy: corev1.PullIfNotPresent, present: true,
			events: []string{`a: Normal Pulled: Container image "web:1" already present on machine and can be accessed by the pod`},
		},
		{
			name: "absent and IfNotPresent is pulled", image: "web:1", policy: corev1.PullIfNotPresent, pulls: 1,
			events: []string{
				`a: Normal Pulling: Pulling image "web:1"`,
				`a: Normal Pulled: Successfully pulled image "web:1" in 0s (0s including waiting). Image size: 4096 bytes.`,
			},
		},
		{
			name: "present and Always is pulled", image: "web:1", policy: corev1.PullAlways, present: true, pulls: 1,
			events: []string{
				`a: Normal Pulling: Pulling image "web:1"`,
				`a: Normal Pulled: Successfully pulled image "web:1" in 0s (0s including waiting). Image size: 4096 bytes.`,
			},
		},
		{
			name: "present and Never is used", image: "web:1", policy: corev1.PullNever, present: true,
			events: []string{`a: Normal Pulled: Container image "web:1" already present on machine and can be accessed by the pod`},
		},
		{
			name: "absent and Never is refused", image: "web:1", policy: corev1.PullNever,
			events:  []string{`a: Warning ErrImageNeverPull: Container image "web:1" is not present with pull policy of Never`},
			reason:  images.ErrImageNeverPull,
			message: `Container image "web:1" is not present with pull policy of Never`,
		},
		{
			name: "no policy is Always for latest", image: "web:latest", present: true, pulls: 1,
			events: []string{
				`a: Normal Pulling: Pulling image "web:latest"`,
				`a: Normal Pulled: Successfully pulled image "web:latest" in 0s (0s including waiting). Image size: 4096 bytes.`,
			},
		},
		{
			name: "no policy is Always without a tag", image: "web", pulls: 1,
			events: []string{
				`a: Normal Pulling: Pulling image "web"`,
				`a: Normal Pulled: Successfully pulled image "web" in 0s (0s including waiting). Image size: 4096 bytes.`,
			},
		},
		{
			name: "no policy is IfNotPresent with a tag", image: "web:1", present: true,
			events: []string{`a: Normal Pulled: Container image "web:1" already present on machine and can be accessed by the pod`},
		},
		{
			name: "an invalid name", image: "Web:1",
			events: []string{
				`a: Warning InspectFailed: Failed to apply default image tag "Web:1": couldn't parse image name "Web:1": invalid reference format: repository name (library/Web) must be lowercase`,
			},
			reason:  images.InvalidImageName,
			message: `Failed to apply default image tag "Web:1": couldn't parse image name "Web:1": invalid reference format: repository name (library/Web) must be lowercase`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSet(t, nil)
			if tc.present {
				s.node.preload(tc.image)
			}
			got, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: tc.image, PullPolicy: tc.policy})
			require.Equal(t, tc.events, s.events.take())
			require.Len(t, s.node.pulled(), tc.pulls)
			if tc.reason != "" {
				e := refusal(t, err)
				require.Equal(t, tc.reason, e.Reason)
				require.Equal(t, tc.message, e.Message)
				require.Equal(t, tc.reason+": "+tc.message, e.Error())
				return
			}
			require.NoError(t, err)
			require.Contains(t, got.ImageRef, "id of "+tc.image)
			require.Equal(t, got.ImageRef, got.Image.GetId())
			got.Release()
		})
	}
}

func TestPullErrors(t *testing.T) {
	for _, tc := range []struct {
		name            string
		err             error
		reason, message string
		event           string
	}{
		{
			"what the runtime says is the message, without a code that says nothing",
			grpcstatus.Error(codes.Unknown, "no such host"), images.ErrImagePull, "no such host",
			"no such host",
		},
		{
			"other codes stay",
			grpcstatus.Error(codes.NotFound, "not found"), images.ErrImagePull, "rpc error: code = NotFound desc = not found",
			"rpc error: code = NotFound desc = not found",
		},
		{
			"an unavailable registry",
			grpcstatus.Error(codes.Unknown, "RegistryUnavailable: connection refused"),
			images.RegistryUnavailable, "image pull failed for web:1 because the registry is unavailable: connection refused",
			"RegistryUnavailable: connection refused",
		},
		{
			"a refused signature",
			errors.New("SignatureValidationFailed: no key"),
			images.SignatureValidationFailed, "image pull failed for web:1 because the signature validation failed: no key",
			"SignatureValidationFailed: no key",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSet(t, nil)
			s.node.registry = func(context.Context, string, *runtimeapi.AuthConfig) error { return tc.err }
			_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "web:1"})
			e := refusal(t, err)
			require.Equal(t, tc.reason, e.Reason)
			require.Equal(t, tc.message, e.Message)
			require.Zero(t, e.RetryAt)
			require.Equal(t, []string{
				`a: Normal Pulling: Pulling image "web:1"`,
				`a: Warning Failed: Failed to pull image "web:1": ` + tc.event,
			}, s.events.take())
		})
	}
}

// A failed pull is retried after 10 s, 20 s, ..., separately for each pod.
func TestBackOff(t *testing.T) {
	t.Parallel()
	s := newSet(t, nil)
	s.node.registry = func(context.Context, string, *runtimeapi.AuthConfig) error { return errors.New("no route") }
	ask := func(pod *corev1.Pod) *images.Error {
		_, err := s.Ensure(t.Context(), images.Request{Pod: pod, Image: "web:1"})
		return refusal(t, err)
	}
	for _, wait := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		require.Equal(t, images.ErrImagePull, ask(pod("a")).Reason)
		s.events.take()
		e := ask(pod("a"))
		require.Equal(t, images.ImagePullBackOff, e.Reason)
		require.Equal(t, `Back-off pulling image "web:1": ErrImagePull: no route`, e.Message)
		require.Equal(t, s.clock.Now().Add(wait), e.RetryAt)
		require.Equal(t, images.ErrImagePull, refusal(t, e.Unwrap()).Reason)
		require.Equal(t, []string{`a: Normal BackOff: Back-off pulling image "web:1"`}, s.events.take())
		s.clock.Step(wait)
	}
	require.Equal(t, images.ErrImagePull, ask(pod("b")).Reason, "another pod must not back off")
	require.Len(t, s.node.pulled(), 4)
	s.Forget("b")
	require.Equal(t, images.ErrImagePull, ask(pod("b")).Reason, "forgotten")

	s.node.registry = nil
	_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "web:1"})
	require.NoError(t, err)
	s.node.registry = func(context.Context, string, *runtimeapi.AuthConfig) error { return errors.New("no route") }
	_, err = s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "web:1", PullPolicy: corev1.PullAlways})
	require.Error(t, err)
	_, err = s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "web:1", PullPolicy: corev1.PullAlways})
	require.Equal(t, s.clock.Now().Add(10*time.Second), refusal(t, err).RetryAt, "a success must reset the back-off")
}

// A corrected pull secret is used without back-off.
func TestBackOff_ChangedCredentialsAreTriedAtOnce(t *testing.T) {
	t.Parallel()
	secrets := store{"default/key": secret("key", "reg.example", "me", "wrong")}
	s := newSet(t, func(c *images.Config) { c.Objects = secrets })
	s.node.registry = func(_ context.Context, _ string, auth *runtimeapi.AuthConfig) error {
		if auth.GetPassword() != "right" {
			return errors.New("denied")
		}
		return nil
	}
	req := images.Request{Pod: pod("a", "key"), Image: "reg.example/web:1"}
	_, err := s.Ensure(t.Context(), req)
	require.Equal(t, images.ErrImagePull, refusal(t, err).Reason)
	_, err = s.Ensure(t.Context(), req)
	require.Equal(t, images.ImagePullBackOff, refusal(t, err).Reason)
	secrets["default/key"] = secret("key", "reg.example", "me", "right")
	_, err = s.Ensure(t.Context(), req)
	require.NoError(t, err)
}

func TestInspectFailure(t *testing.T) {
	t.Parallel()
	s := newSet(t, nil)
	s.node.inspectErr = errors.New("broken store")
	_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "web:1"})
	e := refusal(t, err)
	require.Equal(t, images.ImageInspectError, e.Reason)
	require.Equal(t, `Failed to inspect image "web:1": broken store`, e.Message)
	require.ErrorIs(t, err, s.node.inspectErr)
	require.Equal(t, []string{`a: Warning InspectFailed: Failed to inspect image "web:1": broken store`}, s.events.take())

	_, err = s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "web:2", PullPolicy: corev1.PullAlways})
	require.Equal(t, images.ImageInspectError, refusal(t, err).Reason, "the inspection after the pull must fail")

	s = newSet(t, nil)
	s.node.vanish = true
	_, err = s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "web:1"})
	require.Equal(t, `ImageInspectError: Image "web:1" is missing in the runtime after its pull`, refusal(t, err).Error())
}

func TestEnsure_CancellationIsNotAFailure(t *testing.T) {
	t.Parallel()
	s := newSet(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	s.node.registry = func(ctx context.Context, _ string, _ *runtimeapi.AuthConfig) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	_, err := s.Ensure(ctx, images.Request{Pod: pod("a"), Image: "web:1"})
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, isRefusal(err))
	s.node.registry = nil
	_, err = s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "web:1"})
	require.NoError(t, err, "there must be no back-off")

	s.node.inspectErr = context.Canceled
	_, err = s.Ensure(ctx, images.Request{Pod: pod("a"), Image: "web:1"})
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, isRefusal(err))
}

func isRefusal(err error) bool {
	_, ok := errors.AsType[*images.Error](err)
	return ok
}

// lessor records leases.
type lessor struct{ log []string }

func (l *lessor) Acquire(ref, owner string, ttl time.Duration) func() {
	l.log = append(l.log, "keep "+ref+" for "+owner+" "+ttl.String())
	return func() { l.log = append(l.log, "release "+ref) }
}

func TestLease(t *testing.T) {
	t.Parallel()
	l := &lessor{}
	s := newSet(t, func(c *images.Config) { c.Leases = l })
	got, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Container: "main", Image: "web:1"})
	require.NoError(t, err)
	require.Equal(t, []string{"keep web:1 for a/main 10m0s", "keep id of web:1 for a/main 10m0s"}, l.log)
	got.Release()
	require.Equal(t, []string{"release id of web:1", "release web:1"}, l.log[2:])

	l.log = nil
	_, err = s.Ensure(t.Context(), images.Request{Pod: pod("a"), Container: "main", Image: "no:1", PullPolicy: corev1.PullNever})
	require.Error(t, err)
	require.Equal(t, []string{"keep no:1 for a/main 10m0s", "release no:1"}, l.log, "a failed pull must release its lease")
}

func TestConfig_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := images.New(images.Config{
		Policy:           images.Policy{MaxParallelPulls: -1, QPS: math.NaN(), Burst: -1, Verify: "Sometimes", VerifyAllowlist: []string{"web:1"}},
		ProgressDeadline: -1, LeaseTTL: -1, Credentials: []images.CredentialProvider{nil},
	})
	require.EqualError(t, err, `images: invalid config: field Images is required
field MaxParallelPulls: -1 is negative
field QPS: NaN must be zero or positive
field Burst: -1 is negative
field ProgressDeadline: -1ns is negative
field LeaseTTL: -1ns is negative
field Credentials: item 0 is nil or has no name
field Verify: "Sometimes" is not a policy
field VerifyAllowlist: requires Verify to be NeverVerifyAllowlistedImages
field VerifyAllowlist: "web:1" is neither a repository nor a prefix of repositories that ends in /*`)
	_, err = images.New(images.Config{Images: &node{}})
	require.NoError(t, err)
}

func TestEnsure_RequestWithoutPodFails(t *testing.T) {
	t.Parallel()
	_, err := newSet(t, nil).Ensure(t.Context(), images.Request{Image: "web:1"})
	require.EqualError(t, err, "images: the request has no pod")
}
