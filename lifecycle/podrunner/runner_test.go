package podrunner_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/podcache"
)

func TestSyncPod_StartsAPodStepByStep(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf([]string{"job"}, "app", "crash")
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"RunPodSandbox ns/pod", "CreateContainer ns/pod/init-job", "StartContainer ns/pod/init-job"}, b.did())
	require.NoError(t, b.sync(pod))
	require.Empty(t, b.did(), "later containers must wait for the init container")
	b.clock.Step(time.Second)
	require.NoError(t, b.sync(pod))
	did := b.did()
	pull := slices.Index(did, "PullImage crash:latest")
	require.GreaterOrEqual(t, pull, 0, "the pull must start at once")
	require.Equal(t, []string{
		"CreateContainer ns/pod/app", "StartContainer ns/pod/app", "CreateContainer ns/pod/crash", "StartContainer ns/pod/crash",
	}, slices.Delete(did, pull, pull+1))
	require.DirExists(t, filepath.Join(b.logs, "ns_pod_uid", "app"))
	labels := b.look(pod.UID).Container("app").GetLabels()
	require.Equal(t, "agent", labels[crilabels.Agent])
}

func TestCrashLoop_BacksOffAndCountsRestarts(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "crash")
	require.NoError(t, b.sync(pod))
	for restart, delay := range []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second} {
		b.clock.Step(time.Second) // the container exits
		ended := b.clock.Now()
		if delay > 0 {
			err := b.sync(pod)
			retry, ok := errors.AsType[*podworker.RetryError](err)
			require.True(t, ok, "%v", err)
			require.WithinDuration(t, ended.Add(delay), retry.At, 0)
			waiting := b.runner.Waiting(pod.UID)["crash"]
			require.Equal(t, "CrashLoopBackOff", waiting.Reason)
			require.Equal(t, "back-off "+delay.String()+" restarting failed container=crash pod=pod_ns(uid)", waiting.Message)
			b.clock.Step(delay)
		}
		require.NoError(t, b.sync(pod))
		require.Empty(t, b.runner.Waiting(pod.UID))
		newest := b.look(pod.UID).Container("crash")
		require.Equal(t, runtimeapi.ContainerState_CONTAINER_RUNNING, newest.GetState())
		require.Equal(t, restart+1, podcache.RestartCount(newest))
	}
	require.LessOrEqual(t, len(b.look(pod.UID).Containers), 2, "dead containers must be removed")
}

// cutting is a client whose timeout is shorter than the start of a container, so that no start
// succeeds. dead contains the containers that containerd leaves after the timeout.
type cutting struct {
	podrunner.Containers
	clock clock.Clock
	dead  map[string]time.Time // times of their exits, by ID
}

func (c *cutting) StartContainer(_ context.Context, id string) error {
	c.dead[id] = c.clock.Now()
	return context.DeadlineExceeded
}

func (c *cutting) show(s *podcache.Status) *podcache.Status {
	for _, container := range s.Containers {
		if at, dead := c.dead[container.GetId()]; dead {
			container.State, container.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, at.UnixNano()
			container.ExitCode, container.Reason, container.Message = 128, "StartError", "failed to create containerd task: context canceled"
		}
	}
	return s
}

// TestStart_InterruptedStartsBackOff checks that interrupted starts back off, although their
// dead containers do not count as restarts. Each dead container triggers a sync, which would
// otherwise create the next container at once, forever.
func TestStart_InterruptedStartsBackOff(t *testing.T) {
	t.Parallel()
	cut := &cutting{dead: map[string]time.Time{}}
	b := newBed(t, func(c *podrunner.Config) {
		cut.Containers, cut.clock = c.Containers, c.Clock
		c.Containers = cut
	})
	pod := podOf(nil, "app")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	began := b.clock.Now()
	var starts []int
	for before := 0; b.clock.Since(began) < 100*time.Second; b.clock.Step(time.Second) {
		_, err := b.runner.SyncPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: cut.show(b.look(pod.UID))})
		require.Error(t, err)
		if len(cut.dead) > before {
			before, starts = len(cut.dead), append(starts, int(b.clock.Since(began).Seconds()))
		}
		found := b.look(pod.UID).Containers
		require.Len(t, found, 1, "the dead container must be replaced")
		require.Zero(t, podcache.RestartCount(found[0]), "an interrupted start must not count as a restart")
	}
	require.Equal(t, []int{0, 1, 11, 31, 71}, starts, "the first retry must not wait")
	require.Equal(t, "CrashLoopBackOff", b.runner.Waiting(pod.UID)["app"].Reason)
}

func TestSyncPod_FailedStartDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		image, reason, message string
		policy                 corev1.PullPolicy
	}{
		"no such image":       {"nowhere", "ErrImagePull", `failed to resolve image: docker.io/library/nowhere:latest: not found`, ""},
		"never pulled":        {"nowhere", "ErrImageNeverPull", `Container image "nowhere" is not present with pull policy of Never`, corev1.PullNever},
		"a name with a space": {" app", "InvalidImageName", `" app"`, ""},
	} {
		b, pod := newBed(t), podOf(nil, c.image, "app")
		pod.Spec.Containers[0].Name, pod.Spec.Containers[0].ImagePullPolicy = "broken", c.policy
		require.ErrorContains(t, b.sync(pod), "start container broken of pod ns/pod: "+c.reason, name)
		require.Equal(t, c.reason, b.runner.Waiting(pod.UID)["broken"].Reason, name)
		require.Contains(t, b.runner.Waiting(pod.UID)["broken"].Message, c.message, name)
		require.NotNil(t, b.look(pod.UID).Container("app"), name)
	}
}

func TestSyncPod_FailedPullBacksOffPerPodAndImage(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "nowhere")
	require.Error(t, b.sync(pod))
	require.Contains(t, b.did(), "PullImage nowhere:latest")
	err := b.sync(pod)
	retry, ok := errors.AsType[*podworker.RetryError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, b.clock.Now().Add(10*time.Second), retry.At)
	waiting := b.runner.Waiting(pod.UID)["nowhere"]
	require.Equal(t, "ImagePullBackOff", waiting.Reason)
	require.Contains(t, waiting.Message, `Back-off pulling image "nowhere"`)
	require.NotContains(t, b.did(), "PullImage nowhere:latest")
	b.clock.Step(10 * time.Second)
	require.Error(t, b.sync(pod))
	require.Contains(t, b.did(), "PullImage nowhere:latest")
	b.runner.Forget(pod.UID)
	require.Empty(t, b.runner.Waiting(pod.UID))
	require.Error(t, b.sync(pod))
	require.Contains(t, b.did(), "PullImage nowhere:latest", "the back-off of a removed pod must be deleted")
}

func TestSyncPod_CancelledPullStartsNoBackOff(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "crash")
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, b.node.Fail("PullImage", fakecri.Fault{Hang: true}))
	done := make(chan error, 1)
	req := podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID)}
	go func() {
		_, err := b.runner.SyncPod(ctx, req)
		done <- err
	}()
	cancel()
	require.Error(t, <-done)
	require.Empty(t, b.runner.Waiting(pod.UID))
	b.node.ClearFaults("PullImage")
	require.NoError(t, b.sync(pod))
}

// TestStart_CancelledSyncFinishesTheStart checks that an agent that stops during the start of
// a container leaves no dead container, and that a runtime that hangs does not prevent the
// agent from stopping.
func TestStart_CancelledSyncFinishesTheStart(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"the runtime answers late": false, "the runtime hangs": true} {
		b, pod := newBed(t), podOf(nil, "app")
		ctx, cancel := context.WithCancel(t.Context())
		fault := fakecri.Fault{Delay: time.Second}
		if hangs {
			fault = fakecri.Fault{Hang: true}
		}
		require.NoError(t, b.node.Fail("StartContainer", fault))
		done, req := make(chan error, 1), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID)}
		go func() {
			_, err := b.runner.SyncPod(ctx, req)
			done <- err
		}()
		for !slices.Contains(b.did(), "StartContainer ns/pod/app") {
			runtime.Gosched()
		}
		cancel()
		err := b.stepUntil(done)
		require.Equal(t, hangs, err != nil, "%s: %v", name, err)
		require.Equal(t, !hangs, b.look(pod.UID).Container("app").GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING, name)
	}
}

// stepUntil advances the clock second by second until done has a result.
func (b *bed) stepUntil(done <-chan error) error {
	for {
		select {
		case err := <-done:
			return err
		default:
		}
		if b.clock.HasWaiters() {
			b.clock.Step(time.Second)
		}
		runtime.Gosched()
	}
}

func TestSyncPod_ErrorsNameThePodAndTheStep(t *testing.T) {
	t.Parallel()
	broken := grpcstatus.Error(codes.Internal, "it is broken")
	for method, want := range map[string]string{
		"RunPodSandbox":    "create sandbox of pod ns/pod: ",
		"PodSandboxStatus": "status of sandbox ",
		"ImageStatus":      "start container app of pod ns/pod: ImageInspectError",
		"CreateContainer":  "start container app of pod ns/pod: CreateContainerError",
		"StartContainer":   "start container app of pod ns/pod: RunContainerError",
	} {
		b, pod := newBed(t), podOf(nil, "app")
		require.NoError(t, b.node.Fail(method, fakecri.Fault{Err: broken, Times: 1}))
		err := b.sync(pod)
		require.ErrorContains(t, err, want, method)
		require.ErrorContains(t, err, "it is broken", method)
		require.NoError(t, b.sync(pod), method)
		require.Len(t, b.look(pod.UID).Containers, 1, method)
		require.Equal(t, 0, podcache.RestartCount(b.look(pod.UID).Containers[0]), "%s: a container that never ran must not count as a restart", method)
		require.Empty(t, b.runner.Waiting(pod.UID), method)
	}
}

func TestSyncTerminatingPod_StopsWithinTheGracePeriod(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app", "job")
	require.NoError(t, b.sync(pod))
	require.NoError(t, b.runner.SyncTerminatingPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID), Grace: 5 * time.Second}))
	s := b.look(pod.UID)
	require.False(t, s.Running())
	require.Equal(t, int32(143), s.Container("app").GetExitCode())
	require.NoError(t, b.runner.SyncTerminatedPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: s}))
}

func TestSyncTerminatingPod_KillsAtTheEndOfTheGracePeriod(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "stubborn")
	require.NoError(t, b.sync(pod))
	status, done := b.look(pod.UID), make(chan error, 1)
	go func() {
		done <- b.runner.SyncTerminatingPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: status, Grace: 3 * time.Second})
	}()
	began := b.clock.Now()
	require.NoError(t, b.stepUntil(done))
	require.GreaterOrEqual(t, b.clock.Since(began), 3*time.Second)
	require.Equal(t, int32(137), b.look(pod.UID).Container("stubborn").GetExitCode())
}

func TestSyncTerminatingPod_VerifiesThatContainersStopped(t *testing.T) {
	t.Parallel()
	var lie *podcache.Status
	b := newBed(t, func(c *podrunner.Config) {
		c.Refresh = func(context.Context, types.UID) (*podcache.Status, error) { return lie, nil }
	})
	pod := podOf(nil, "app")
	require.NoError(t, b.sync(pod))
	lie = b.look(pod.UID)
	req := podworker.SyncRequest{Pod: pod, Status: lie, Grace: time.Second}
	require.ErrorIs(t, b.runner.SyncTerminatingPod(t.Context(), req), podrunner.ErrStillRunning)
	require.ErrorIs(t, b.runner.SyncTerminatedPod(t.Context(), req), podrunner.ErrStillRunning)
	require.ErrorContains(t, b.runner.RemovePod(t.Context(), lie), "remove pod uid: containers of the pod are still running")
}

// TestSyncTerminatedPod_StopsALateSandbox checks the case that the runtime completes a cancelled
// RunPodSandbox after the pod has stopped.
func TestSyncTerminatedPod_StopsALateSandbox(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := podOf(nil, "app")
	require.NoError(t, s.runner.SyncTerminatingPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: s.look(pod.UID), Grace: time.Second}))
	_, err := s.node.RunPodSandbox(t.Context(), podrunner.SandboxConfig(pod, 0, podrunner.Node{Agent: "agent"}), "")
	require.NoError(t, err)
	require.NoError(t, s.runner.SyncTerminatedPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: s.look(pod.UID), Grace: time.Second}))
	require.False(t, s.look(pod.UID).Running())
	require.Contains(t, s.cgroups.take(), "remove uid")
}

// stops records the grace periods of containers.
type stops struct {
	podrunner.Containers
	seconds []int64
}

func (s *stops) StopContainer(ctx context.Context, id string, seconds int64) error {
	s.seconds = append(s.seconds, seconds)
	return s.Containers.StopContainer(ctx, id, seconds)
}

func TestSyncTerminatingRuntimePod_GraceFromAnnotations(t *testing.T) {
	t.Parallel()
	var recorded *stops
	b := newBed(t, func(c *podrunner.Config) {
		recorded = &stops{Containers: c.Containers}
		c.Containers = recorded
	})
	pod := podOf(nil, "app")
	pod.Spec.TerminationGracePeriodSeconds = new(int64(25))
	require.NoError(t, b.sync(pod))
	req := podworker.SyncRequest{Status: b.look(pod.UID), Grace: time.Second}
	require.NoError(t, b.runner.SyncTerminatingRuntimePod(t.Context(), req))
	require.Equal(t, []int64{25}, recorded.seconds)
	require.False(t, b.look(pod.UID).Running())
}

func TestRemovePod_RemovesContainersSandboxesAndLogs(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf([]string{"job"}, "crash")
	require.NoError(t, b.sync(pod))
	b.clock.Step(time.Second)
	require.NoError(t, b.sync(pod))
	require.NoError(t, b.runner.SyncTerminatingPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID), Grace: time.Second}))
	b.did()
	status := b.look(pod.UID)
	require.NoError(t, b.runner.RemovePod(t.Context(), status))
	require.Equal(t, []string{"RemoveContainer ns/pod/crash", "RemoveContainer ns/pod/init-job", "RemovePodSandbox ns/pod"}, b.did())
	require.Empty(t, b.look(pod.UID).Sandboxes)
	require.NoDirExists(t, filepath.Join(b.logs, "ns_pod_uid"))
	require.NoError(t, b.runner.RemovePod(t.Context(), status), "removing a removed pod must succeed")
}

func TestRemovePod_RemovesOnlyTheLogsOfItsUID(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	outside := filepath.Join(filepath.Dir(b.logs), "precious")
	require.NoError(t, os.MkdirAll(filepath.Join(outside, "app"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(b.logs, "ns_a_u", "app"), 0o755))
	require.NoError(t, os.Symlink(outside, filepath.Join(b.logs, "ns_b_u")))
	others := []string{"ns_a_v", "ns_a_v_u", "ns_u", "u"}
	for _, name := range others {
		require.NoError(t, os.Mkdir(filepath.Join(b.logs, name), 0o755))
	}
	require.NoError(t, b.runner.RemovePod(t.Context(), &podcache.Status{UID: "u", Namespace: "../precious", Name: "n"}))
	left, err := filepath.Glob(filepath.Join(b.logs, "*"))
	require.NoError(t, err)
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	require.Equal(t, others, left)
	require.DirExists(t, filepath.Join(outside, "app"), "the target of a link must be kept")
}

func TestSyncPod_FailedRemovalDoesNotStopTheRest(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app", "job")
	require.NoError(t, b.sync(pod))
	require.NoError(t, b.runner.SyncTerminatingPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID), Grace: time.Second}))
	require.NoError(t, b.node.Fail("RemoveContainer", fakecri.Fault{Object: "ns/pod/app", Err: grpcstatus.Error(codes.Unavailable, "busy"), Times: 1}))
	err := b.runner.RemovePod(t.Context(), b.look(pod.UID))
	require.ErrorContains(t, err, "remove container app (")
	require.ErrorContains(t, err, "busy")
	require.NoError(t, b.runner.RemovePod(t.Context(), b.look(pod.UID)))
	require.Empty(t, b.look(pod.UID).Containers)
}

func TestSyncPod_ChangedContainerIsReplaced(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app", "job")
	require.NoError(t, b.sync(pod))
	job := b.look(pod.UID).Container("job").GetId()
	b.did()
	changed := pod.DeepCopy()
	changed.Spec.Containers[0].Args = []string{"--new"}
	require.NoError(t, b.sync(changed))
	require.Equal(t, []string{"StopContainer ns/pod/app", "CreateContainer ns/pod/app", "StartContainer ns/pod/app"}, b.did())
	s := b.look(pod.UID)
	require.Equal(t, 1, podcache.RestartCount(s.Container("app")))
	require.Equal(t, podspec.ContainerHash(&changed.Spec.Containers[0]), s.Container("app").GetAnnotations()[crilabels.Definition])
	require.Equal(t, job, s.Container("job").GetId(), "the other container must not be restarted")
}

func TestNew_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := podrunner.New(podrunner.Config{
		LogRoot: "relative", RootDir: "too", SeccompRoot: "profiles", PostStartTimeout: -1, ParallelStarts: -1,
		Policy: podrunner.Policy{
			ClusterDNS: []string{"10.0.0.1", "dns"}, ClusterDomain: "a_b",
			UnsafeSysctls: []string{"net.core.*", "kernel/msgmax", "vm.swappiness", "net.*.x", "*"},
			Limits:        podrunner.Limits{CPUPeriod: time.Microsecond, MemoryThrottling: 1.5},
		},
	})
	for _, want := range []string{
		"podrunner: invalid config", "Sandboxes", "Containers", "Images", "Refresh", "Agent",
		`field LogRoot: "relative" is not absolute`, `field RootDir: "too" is not absolute`, "field PostStartTimeout", "field ParallelStarts: -1 is negative",
		`field SeccompRoot: "profiles" is not absolute`, `field ClusterDNS[1]: "dns" is not an IP address`, `field ClusterDomain: "a_b": `,
		`field UnsafeSysctls[2]: "vm.swappiness" is not`, "field UnsafeSysctls[3]", "field UnsafeSysctls[4]",
		"field Limits.CPUPeriod: 1µs is not between 1ms and 1s", "field Limits.MemoryThrottling: 1.5 is not between 0 and 1",
	} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "UnsafeSysctls[0]")
	require.NotContains(t, err.Error(), "UnsafeSysctls[1]")

	_, err = podrunner.New(podrunner.Config{
		ContainerLogs: "/links", Inject: resources.Combine[resources.Ledger](),
	})
	require.ErrorContains(t, err, "field ContainerLogs requires LogRoot: without LogRoot there are no log files to link to")
	require.ErrorContains(t, err, "field Inject requires Resizer, which changes the CPUs of running containers")
}
