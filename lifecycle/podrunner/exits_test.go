package podrunner_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// told is a journal of exits, in words.
func told(j *journal) func(*podrunner.Config) {
	return func(c *podrunner.Config) {
		c.Observer.PostExit = func(e podrunner.Exit) {
			text := fmt.Sprintf("%s #%d of %s", e.Container, podcache.RestartCount(e.Status), e.PodUID)
			switch {
			case e.Status == nil:
				text = fmt.Sprintf("%s of %s: nobody knows how", e.Container, e.PodUID)
			case e.Status.GetId() != e.ID || e.Status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED:
				text += ", which is another or runs"
			default:
				text += fmt.Sprintf(": %d", e.Status.GetExitCode())
			}
			for word, is := range map[string]bool{", after its hook": e.PreStopped, ", earlier": e.Earlier, ", by the runtime": e.Pod == nil} {
				if is {
					text += word
				}
			}
			j.add("%s", text)
		}
	}
}

// TestPostExit (kubernetes#55807, kubernetes#93818): no preStop hook runs for a
// container that completes or crashes; whoever has to do something then is told.
func TestPostExit(t *testing.T) {
	t.Parallel()
	j := &journal{}
	b, pod := newBed(t, told(j)), podOf(nil, "crash", "app")
	require.NoError(t, b.sync(pod))
	require.NoError(t, b.sync(pod))
	require.Empty(t, j.take())
	b.clock.Step(time.Second)
	started := len(b.look(pod.UID).Containers)
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"crash #0 of uid: 3"}, j.take(), "it crashed")
	require.Len(t, b.look(pod.UID).Containers, started+1, "and comes again")
	require.NoError(t, b.sync(pod))
	require.Empty(t, j.take(), "it is told once")

	b.clock.Step(time.Second)
	require.NoError(t, b.terminate(pod, 5*time.Second))
	require.Equal(t, []string{"crash #1 of uid: 3", "app #0 of uid: 143"}, j.take(), "before the turn succeeds")
	require.NoError(t, b.runner.SyncTerminatedPod(t.Context(), podworker.Turn{Pod: pod, Status: b.look(pod.UID)}))
	require.Empty(t, j.take())
}

// TestPostExitComesBeforeTheNextInstance of what ended by itself.
func TestPostExitComesBeforeTheNextInstance(t *testing.T) {
	t.Parallel()
	j := &journal{}
	b := newBed(t, told(j), func(c *podrunner.Config) {
		c.Observer.Planned = func(_ *corev1.Pod, a podrunner.Actions) { j.add("start %d", len(a.Start)) }
	})
	pod := podOf(nil, "crash")
	require.NoError(t, b.sync(pod))
	b.clock.Step(time.Second)
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"start 1", "crash #0 of uid: 3", "start 1"}, j.take())
}

func TestPostExitSaysWhetherTheHookRan(t *testing.T) {
	t.Parallel()
	j := &journal{}
	hookBubble(t, func(b *bed, _ *commands, _ *events) {
		pod := podOf(nil, "app", "job")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].Lifecycle = &corev1.Lifecycle{PreStop: command("10s")}
		}
		require.NoError(t, b.sync(pod))
		time.Sleep(2 * time.Second)
		synctest.Wait() // for the one that ends by itself
		require.NoError(t, b.sync(pod))
		require.Equal(t, []string{"job #0 of uid: 0"}, j.take(), "it completed")
		pod.Spec.Containers[0].Args = []string{"--new"}
		require.NoError(t, b.sync(pod))
		require.NoError(t, b.sync(pod))
		require.Equal(t, []string{"app #0 of uid: 143, after its hook"}, j.take(), "it was replaced")
		require.NoError(t, b.terminate(pod, 30*time.Second))
		require.Equal(t, []string{"app #1 of uid: 143, after its hook"}, j.take())
	}, told(j))
}

func TestPostExitAfterARestartOfTheAgent(t *testing.T) {
	t.Parallel()
	j := &journal{}
	b, pod := newBed(t, told(j)), podOf(nil, "job", "app")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	require.NoError(t, b.sync(pod))
	b.clock.Step(time.Second)
	b.runner.Forget(pod.UID) // as one that is new
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"job #0 of uid: 0, earlier"}, j.take())
	require.NoError(t, b.terminate(pod, 5*time.Second))
	require.Equal(t, []string{"app #0 of uid: 143"}, j.take())

	b.runner.Forget(pod.UID)
	require.NoError(t, b.runner.SyncTerminatedPod(t.Context(), podworker.Turn{Pod: pod, Status: b.look(pod.UID)}))
	require.ElementsMatch(t, []string{"job #0 of uid: 0, earlier", "app #0 of uid: 143, earlier"}, j.take(), "one that had ended before")
}

func TestPostExitOfAPodThatOnlyTheRuntimeKnows(t *testing.T) {
	t.Parallel()
	j := &journal{}
	b, pod := newBed(t, told(j)), podOf(nil, "app")
	require.NoError(t, b.sync(pod))
	b.runner.Forget(pod.UID)
	require.NoError(t, b.runner.SyncTerminatingRuntimePod(t.Context(), podworker.Turn{Status: b.look(pod.UID), Grace: time.Second}))
	require.Equal(t, []string{"app #0 of uid: 143, by the runtime"}, j.take())
}

// TestPostExitOfWhatVanished: nobody saw how it ended, but that it did.
func TestPostExitOfWhatVanished(t *testing.T) {
	t.Parallel()
	j := &journal{}
	b, pod := newBed(t, told(j)), podOf(nil, "app", "job")
	require.NoError(t, b.sync(pod))
	require.NoError(t, b.sync(pod))
	status := b.look(pod.UID)
	require.NoError(t, b.node.RemoveContainer(t.Context(), status.Container("app").GetId()))
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"app of uid: nobody knows how"}, j.take())
	require.NoError(t, b.sync(pod))
	require.Empty(t, j.take())
}

// TestPostExitIsNotGuessed: what is missing in a stale status may be there.
func TestPostExitIsNotGuessed(t *testing.T) {
	t.Parallel()
	j := &journal{}
	b, pod := newBed(t, told(j)), podOf(nil, "app")
	require.NoError(t, b.sync(pod))
	require.NoError(t, b.sync(pod))
	require.NoError(t, b.node.StopContainer(t.Context(), b.look(pod.UID).Container("app").GetId(), 10))
	turn := podworker.Turn{Pod: pod, Status: &podcache.Status{UID: pod.UID, Stale: true}, Grace: time.Second}
	require.ErrorIs(t, b.runner.SyncTerminatingPod(t.Context(), turn), podrunner.ErrStillRunning, "the sandbox")
	require.Equal(t, []string{"app #0 of uid: 143"}, j.take(), "by the look afterwards")
}

func TestPostExitOfWhatNeverRanIsNone(t *testing.T) {
	t.Parallel()
	j := &journal{}
	b, pod := newBed(t, told(j)), podOf(nil, "app")
	created := b.look(pod.UID)
	created.Containers = []*runtimeapi.ContainerStatus{nil, {Id: "c", State: runtimeapi.ContainerState_CONTAINER_CREATED}}
	require.NoError(t, b.runner.SyncTerminatedPod(t.Context(), podworker.Turn{Pod: pod, Status: created}))
	created.Containers = nil
	require.NoError(t, b.runner.SyncTerminatedPod(t.Context(), podworker.Turn{Pod: pod, Status: created}))
	require.Empty(t, j.take())
}

func TestALookThatShowsNothingNewTellsNobody(t *testing.T) {
	t.Parallel()
	j := &journal{}
	b, pod := newBed(t, told(j)), podOf(nil, "job", "app")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	require.NoError(t, b.sync(pod))
	b.clock.Step(time.Second)
	for range 3 {
		require.NoError(t, b.sync(pod))
	}
	require.Len(t, j.take(), 1)
}
