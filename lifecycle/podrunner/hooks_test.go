package podrunner_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// commands runs hooks. The command of a hook is the hook's duration, "fail" or
// "hang".
type commands struct{ journal }

func (c *commands) ExecSync(ctx context.Context, id string, cmd []string, _ time.Duration) (stdout, stderr []byte, err error) {
	c.add("%s", strings.Join(cmd, " "))
	if cmd[0] == "fail" {
		return []byte("some output"), nil, errors.New("exit status 1")
	}
	d, err := time.ParseDuration(cmd[0])
	if err != nil {
		d = time.Hour // makes the hook hang
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		c.add("%s was cut off", cmd[0])
		return nil, nil, ctx.Err()
	case <-timer.C:
		c.add("%s has ended", cmd[0])
		return nil, nil, nil
	}
}

// asked records the URLs that HTTP hooks request.
type asked struct{ journal }

func (a *asked) Do(req *http.Request) (*http.Response, error) {
	a.add("GET %s", req.URL)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// withHooks makes a Runner run hooks.
func withHooks(t *testing.T, ran *commands, e *events) func(*podrunner.Config) {
	t.Helper()
	return func(c *podrunner.Config) {
		c.Events = e
		c.Hooks = hookRunner(t, lifecycle.HookConfig{Exec: ran, Events: e, Clock: c.Clock})
	}
}

func hookRunner(t *testing.T, cfg lifecycle.HookConfig) *lifecycle.HookRunner {
	t.Helper()
	r, err := lifecycle.NewHookRunner(cfg)
	require.NoError(t, err)
	return r
}

func command(word string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{word}}}
}

// hookBubble runs f with a bed whose Runner runs hooks.
func hookBubble(t *testing.T, f func(b *bed, ran *commands, e *events), change ...func(*podrunner.Config)) {
	t.Helper()
	ran, e := &commands{}, &events{}
	inBubble(t, func(b *bed) { f(b, ran, e) }, append([]func(*podrunner.Config){withHooks(t, ran, e)}, change...)...)
}

// TestPostStart_DelaysLaterContainers checks that later containers start after the hook, as
// in the kubelet. Users rely on this order.
func TestPostStart_DelaysLaterContainers(t *testing.T) {
	t.Parallel()
	hookBubble(t, func(b *bed, ran *commands, _ *events) {
		pod := podOf(nil, "app", "job")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: command("5s")}
		began := time.Now()
		require.NoError(t, b.sync(pod))
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Equal(t, []string{"5s", "5s has ended"}, ran.take())
		s := b.look(pod.UID)
		require.GreaterOrEqual(t, s.Container("job").GetCreatedAt()-s.Container("app").GetStartedAt(), int64(4999*time.Millisecond))
		require.Empty(t, b.runner.Waiting(pod.UID))
	})
}

func TestPostStart_FailureStopsTheContainer(t *testing.T) {
	t.Parallel()
	hookBubble(t, func(b *bed, ran *commands, e *events) {
		pod := podOf(nil, "app", "stubborn")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: command("fail"), PreStop: command("1s")}
		require.ErrorContains(t, b.sync(pod), "start container app of pod ns/pod: PostStartHookError")
		require.Equal(t, []string{"fail", "1s", "1s has ended"}, ran.take(), "the preStop hook must run, too")
		s := b.look(pod.UID)
		require.False(t, running(s.Container("app")))
		require.True(t, running(s.Container("stubborn")), "the failing container must not delay the other one")
		waiting := b.runner.Waiting(pod.UID)["app"]
		require.Equal(t, lifecycle.PostStartHookError, waiting.Reason)
		require.Contains(t, waiting.Message, `failed - error: exit status 1, message: "some output"`)
		seen := e.take()
		require.Contains(t, seen, "Warning FailedPostStartHook PostStartHook failed")
		require.Contains(t, seen, "Normal Killing FailedPostStartHook")
	})
}

func TestPostStart_Hangs(t *testing.T) {
	t.Parallel()
	hookBubble(t, func(b *bed, ran *commands, _ *events) {
		pod := podOf(nil, "app")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: command("hang")}
		began := time.Now()
		require.Error(t, b.sync(pod))
		require.Equal(t, time.Minute, time.Since(began))
		require.Equal(t, lifecycle.PostStartHookError, b.runner.Waiting(pod.UID)["app"].Reason)
		require.False(t, running(b.look(pod.UID).Container("app")))

		// If the pod is terminated during the hook, the hook ends at once, and the container
		// does not count as failed.
		pod.UID = "other"
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		_, err := b.runner.SyncPod(ctx, podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID)})
		require.ErrorContains(t, err, "postStart hook")
		require.Empty(t, b.runner.Waiting(pod.UID))
		require.True(t, running(b.look(pod.UID).Container("app")))
		require.Equal(t, []string{"hang", "hang was cut off", "hang", "hang was cut off"}, ran.take())
	}, func(c *podrunner.Config) { c.PostStartTimeout = time.Minute })
}

// stopTimes records when containers are stopped and how much of the grace period remained.
type stopTimes struct {
	podrunner.Containers
	journal

	began time.Time
}

func (s *stopTimes) StopContainer(ctx context.Context, id string, seconds int64) error {
	s.add("%v after: stop within %ds", time.Since(s.began), seconds)
	return s.Containers.StopContainer(ctx, id, seconds)
}

func timed(s *stopTimes) func(*podrunner.Config) {
	return func(c *podrunner.Config) { s.Containers, c.Containers = c.Containers, s }
}

func (b *bed) terminate(pod *corev1.Pod, grace time.Duration) error {
	b.t.Helper()
	return b.runner.SyncTerminatingPod(b.t.Context(), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID), Grace: grace})
}

func TestPreStop_SharesTheGracePeriodWithTheStop(t *testing.T) {
	t.Parallel()
	for hook, want := range map[string][]string{
		"4s":   {"4s after: stop within 6s"},
		"hang": {"10s after: stop within 2s"},
		"fail": {"0s after: stop within 10s"},
	} {
		s := &stopTimes{}
		hookBubble(t, func(b *bed, ran *commands, e *events) {
			pod := podOf(nil, "stubborn")
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: command(hook)}
			require.NoError(t, b.sync(pod))
			e.take()
			s.began = time.Now()
			require.NoError(t, b.terminate(pod, 10*time.Second))
			require.LessOrEqual(t, time.Since(s.began), 12*time.Second, hook)
			require.Equal(t, want, s.take(), hook)
			require.Equal(t, hook, ran.take()[0])
			seen := e.take()
			require.Equal(t, "Normal Killing Stopping container stubborn", seen[0])
			require.Equal(t, hook != "4s", slices.Contains(seen, "Warning FailedPreStopHook PreStopHook failed"), hook)
		}, timed(s))
	}
}

func TestPreStop_EndedHookIsNotRunAgain(t *testing.T) {
	t.Parallel()
	hookBubble(t, func(b *bed, ran *commands, _ *events) {
		pod := podOf(nil, "app")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: command("1s")}
		require.NoError(t, b.sync(pod))
		require.NoError(t, b.node.Fail("StopContainer", fakecri.Fault{Err: grpcstatus.Error(codes.Internal, "no"), Times: 1}))
		require.Error(t, b.terminate(pod, 30*time.Second))
		require.NoError(t, b.terminate(pod, 30*time.Second))
		require.Equal(t, []string{"1s", "1s has ended"}, ran.take())

		require.NoError(t, b.runner.SyncTerminatedPod(b.t.Context(), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID)}))
	})
}

func TestPreStop_CancelledHookRunsAgain(t *testing.T) {
	t.Parallel()
	hookBubble(t, func(b *bed, ran *commands, _ *events) {
		pod := podOf(nil, "app")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: command("10s")}
		require.NoError(t, b.sync(pod))
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		req := podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID), Grace: 30 * time.Second}
		require.Error(t, b.runner.SyncTerminatingPod(ctx, req))
		require.NoError(t, b.terminate(pod, 30*time.Second))
		require.Equal(t, []string{"10s", "10s was cut off", "10s", "10s has ended"}, ran.take())
	})
}

// TestLifeCycleHooks is upstream's TestLifeCycleHook and
// TestLifeCycleHookForRestartableInitContainer: which hooks of a container and of a sidecar
// run, by command and HTTP, and whether they run without a remaining grace period.
func TestLifeCycleHooks(t *testing.T) {
	t.Parallel()
	get := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/bye", Port: intstr.FromInt32(80)}}
	for kind, where := range map[string]func(*corev1.Pod) *corev1.Container{
		"a container": func(pod *corev1.Pod) *corev1.Container { return &pod.Spec.Containers[0] },
		"a sidecar": func(pod *corev1.Pod) *corev1.Container {
			pod.Spec.InitContainers = []corev1.Container{sidecar("side", "app")}
			return &pod.Spec.InitContainers[0]
		},
	} {
		for name, tt := range map[string]struct {
			hooks corev1.Lifecycle
			grace time.Duration
			want  []string
		}{
			"postStart by command": {corev1.Lifecycle{PostStart: command("1s")}, 30 * time.Second, []string{"1s", "1s has ended"}},
			"preStop by command":   {corev1.Lifecycle{PreStop: command("2s")}, 30 * time.Second, []string{"2s", "2s has ended"}},
			"preStop by HTTP":      {corev1.Lifecycle{PreStop: get}, 30 * time.Second, []string{"GET http://10.88.0.2:80/bye"}},
			"preStop without time": {corev1.Lifecycle{PreStop: command("2s")}, 0, nil},
			"both": {
				corev1.Lifecycle{PostStart: command("1s"), PreStop: command("2s")},
				30 * time.Second,
				[]string{"1s", "1s has ended", "2s", "2s has ended"},
			},
		} {
			ran, a, e := &commands{}, &asked{}, &events{}
			inBubble(t, func(b *bed) {
				pod := podOf(nil, "app")
				where(pod).Lifecycle = &tt.hooks
				for range 3 {
					require.NoError(t, b.sync(pod))
				}
				require.NoError(t, b.terminate(pod, tt.grace))
				require.Equal(t, tt.want, append(ran.take(), a.take()...), "%s: %s", kind, name)
				require.NotContains(t, strings.Join(e.take(), "\n"), "Hook", "%s: %s", kind, name)
			}, func(c *podrunner.Config) {
				c.Events = e
				c.Hooks = hookRunner(t, lifecycle.HookConfig{Exec: ran, HTTP: a, Events: e, Clock: c.Clock})
			})
		}
	}
}

func TestPreStop_WhichKillsRunIt(t *testing.T) {
	t.Parallel()
	hookBubble(t, func(b *bed, ran *commands, _ *events) {
		pod := podOf(nil, "app")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
		c := &pod.Spec.Containers[0]
		c.Lifecycle, c.LivenessProbe = &corev1.Lifecycle{PreStop: command("1s")}, &corev1.Probe{}
		require.NoError(t, b.sync(pod))
		b.probes[b.look(pod.UID).Container("app").GetId()] = podrunner.ProbeResults{LivenessFailed: true}
		require.NoError(t, b.sync(pod))
		require.Equal(t, []string{"1s", "1s has ended"}, ran.take(), "the preStop hook must run after a failed probe")
		c.Args = []string{"--new"}
		require.NoError(t, b.sync(pod))
		require.Equal(t, []string{"1s", "1s has ended"}, ran.take(), "the preStop hook must run after a change of the definition")
		box := b.look(pod.UID).Sandboxes[0].GetId()
		require.NoError(t, b.node.KillSandbox(box))
		require.Error(t, b.sync(pod), "the start must be in back-off")
		require.Empty(t, ran.take(), "the hook of an exited container must not run")
	})
}

func TestRestartOfAll_RunsNoPreStop(t *testing.T) {
	t.Parallel()
	hookBubble(t, func(b *bed, ran *commands, _ *events) {
		pod := podOf(nil, "anew", "app")
		pod.Spec.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
		pod.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
		}}
		pod.Spec.Containers[1].Lifecycle = &corev1.Lifecycle{PreStop: command("1s")}
		require.NoError(t, b.sync(pod))
		time.Sleep(2 * time.Second)
		require.NoError(t, b.sync(pod))
		require.Empty(t, b.look(pod.UID).Containers)
		require.Empty(t, ran.take())
	})
}

func TestPlanTermination_SidecarsLastInReverse(t *testing.T) {
	t.Parallel()
	s := &stopTimes{}
	hookBubble(t, func(b *bed, _ *commands, _ *events) {
		pod := podOf(nil, "app", "stubborn")
		pod.Spec.InitContainers = []corev1.Container{sidecar("first", "app"), sidecar("second", "app")}
		for range 3 {
			require.NoError(t, b.sync(pod))
		}
		b.did()
		s.began = time.Now()
		require.NoError(t, b.terminate(pod, 5*time.Second))
		stops := slices.DeleteFunc(b.did(), func(c string) bool { return !strings.HasPrefix(c, "StopContainer") })
		require.ElementsMatch(t, []string{"StopContainer ns/pod/app", "StopContainer ns/pod/stubborn"}, stops[:2])
		require.ElementsMatch(t, []string{"StopContainer ns/pod/second", "StopContainer ns/pod/first"}, stops[2:], "all containers must be stopped at the end of the grace period")
		require.LessOrEqual(t, time.Since(s.began), 7*time.Second)
	}, timed(s))
}

// cache returns statuses that are inspected at each call.
type cache struct{ *bed }

func (c cache) Get(uid types.UID) (*podcache.Status, error) { return c.look(uid), nil }

func (c cache) Known(types.UID) bool { return true }

func (c cache) GetNewerThan(_ context.Context, uid types.UID, _ time.Time) (*podcache.Status, error) {
	return c.look(uid), nil
}

// TestRunner_ShorterSecondDeletion deletes the pod again with a shorter grace period during a
// hook, and while a container is being stopped (kubernetes#127339).
func TestRunner_ShorterSecondDeletion(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]string{"during a hook": "hang", "during a stop": "1s"} {
		hookBubble(t, func(b *bed, ran *commands, _ *events) {
			workers, err := podworker.New(podworker.Config{Syncer: b.runner, Cache: cache{b}, AfterSync: func(types.UID) {}})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(b.t.Context())
			done := make(chan error, 1)
			go func() { done <- workers.Run(ctx) }()
			pod := podOf(nil, "stubborn")
			pod.Spec.TerminationGracePeriodSeconds = new(int64(600))
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: command(hook)}
			workers.UpdatePod(podworker.Update{Type: podworker.Create, Pod: pod})
			synctest.Wait()
			workers.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: pod})
			time.Sleep(10 * time.Second)
			require.True(t, running(b.look(pod.UID).Container("stubborn")), name)

			began := time.Now()
			require.NoError(t, workers.KillPod(b.t.Context(), pod, podworker.KillOptions{Grace: new(3 * time.Second)}), name)
			require.Less(t, time.Since(began), 5500*time.Millisecond, name)
			require.Greater(t, time.Since(began), 2500*time.Millisecond, "%s: the container must get the shorter grace period", name)
			require.Len(t, slices.DeleteFunc(ran.take(), func(s string) bool { return s != hook }), 1, "%s: the hook must run once", name)
			stop()
			require.NoError(t, <-done)
		})
	}
}

func TestHooks_RuntimeOnlyPod(t *testing.T) {
	t.Parallel()
	hookBubble(t, func(b *bed, ran *commands, e *events) {
		pod := podOf(nil, "app")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(20))
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: command("5s")}
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
		require.NoError(t, b.sync(pod))
		e.take()
		require.NoError(t, b.runner.SyncTerminatingRuntimePod(b.t.Context(), podworker.SyncRequest{Status: b.look(pod.UID), Grace: time.Second}))
		require.Equal(t, []string{"5s", "5s has ended"}, ran.take())
		require.Empty(t, e.take())
		require.False(t, b.look(pod.UID).Running())
	})
}

func TestTerminationRecord_RuntimeOnlyPod(t *testing.T) {
	t.Parallel()
	s := &stopTimes{}
	hookBubble(t, func(b *bed, _ *commands, _ *events) {
		pod := podOf(nil, "app")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(20))
		require.NoError(t, b.sync(pod))
		require.NoError(t, b.node.Fail("StopContainer", fakecri.Fault{Err: grpcstatus.Error(codes.Internal, "no"), Times: 1}))
		req := podworker.SyncRequest{Status: b.look(pod.UID), Grace: time.Second}
		s.began = time.Now()
		require.Error(t, b.runner.SyncTerminatingRuntimePod(b.t.Context(), req))
		time.Sleep(15 * time.Second)
		require.NoError(t, b.runner.SyncTerminatingRuntimePod(b.t.Context(), req))
		require.Equal(t, []string{"0s after: stop within 20s", "15s after: stop within 5s"}, s.take())
	}, timed(s))
}

func TestHooks_InvalidAnnotationsAreIgnored(t *testing.T) {
	t.Parallel()
	hookBubble(t, func(b *bed, ran *commands, _ *events) {
		pod := podOf(nil, "app")
		require.NoError(t, b.sync(pod))
		status := b.look(pod.UID)
		a := status.Containers[0].GetAnnotations()
		a["io.kubernetes.container.preStopHandler"], a["io.kubernetes.container.ports"] = "{", "[7]"
		require.NoError(t, b.runner.SyncTerminatingRuntimePod(b.t.Context(), podworker.SyncRequest{Status: status, Grace: time.Second}))
		require.Empty(t, ran.take())
	})
}

func TestHooks_HTTPUsesThePodOrNodeAddress(t *testing.T) {
	t.Parallel()
	for name, hostNetwork := range map[string]bool{"http://10.88.0.2:80/bye": false, "http://192.0.2.7:80/bye": true} {
		a := &asked{}
		b := newBed(t, func(c *podrunner.Config) {
			c.Hooks = hookRunner(t, lifecycle.HookConfig{HTTP: a})
			c.Facts = func() podrunner.Facts { return testNode().Facts }
		})
		pod := podOf(nil, "app")
		pod.Spec.HostNetwork = hostNetwork
		hook := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/bye", Port: intstr.FromInt32(80)}}
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: hook, PreStop: hook}
		require.NoError(t, b.sync(pod))
		require.NoError(t, b.terminate(pod, 10*time.Second))
		require.Equal(t, []string{"GET " + name, "GET " + name}, a.take())
	}
}

// TestHooks_EndWithTheirContainer checks that a sleep hook is cancelled when its container
// exits.
func TestHooks_EndWithTheirContainer(t *testing.T) {
	t.Parallel()
	var exited chan struct{}
	hookBubble(t, func(b *bed, _ *commands, _ *events) {
		pod := podOf(nil, "app")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 500}}}
		require.NoError(t, b.sync(pod))
		began := time.Now()
		exited = make(chan struct{}) // the channel must belong to this bubble
		time.AfterFunc(3*time.Second, func() { close(exited) })
		require.NoError(t, b.terminate(pod, 600*time.Second))
		require.Equal(t, 3*time.Second, time.Since(began))
	}, func(c *podrunner.Config) { c.Exited = func(string) <-chan struct{} { return exited } })
}
