package containergc_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/fakecri"
)

func TestCollect_RemovesContainersThenTheirSandbox(t *testing.T) {
	b := newBed(t)
	b.dead("gone", "app", 0)
	b.dead("gone", "app", 1)
	require.NoError(t, b.KillSandbox(b.boxes["gone"]))
	b.dead("web", "app", 0)
	b.dead("web", "app", 1)
	b.start("web", "app", 2)
	b.set("gone", "gone")
	m := b.manager()
	plan, err := m.Plan(t.Context())
	require.NoError(t, err)
	require.Len(t, b.left(), 7, "a plan must not change anything")
	res, err := m.Collect(t.Context())
	require.NoError(t, err)
	require.Equal(t, plan.String(), res.Plan.String())
	require.ElementsMatch(t, plan.Removals(), res.Removed)
	require.Equal(t, []string{"web#0", "web/app#1", "web/app#2"}, b.left())
	require.Equal(t, []string{
		"RemoveContainer ns/gone/app", "RemoveContainer ns/gone/app", "StopPodSandbox ns/gone", "RemovePodSandbox ns/gone",
		"RemoveContainer ns/web/app",
	}, sorted(b.calls("RemoveContainer", "StopPodSandbox", "RemovePodSandbox")))

	res, err = m.Collect(t.Context())
	require.NoError(t, err)
	require.Empty(t, res.Removed, "the second pass must have nothing to remove")
}

// sorted moves the calls for the pod "gone", whose order matters, to the front.
func sorted(calls []string) (out []string) {
	for _, other := range []bool{false, true} {
		for _, c := range calls {
			if (c == "RemoveContainer ns/web/app") == other {
				out = append(out, c)
			}
		}
	}
	return out
}

func TestCollect_DoesNothingBeforeAllSourcesAreReady(t *testing.T) {
	root := logs(t, "ns_gone_gone/app/0.log")
	b := newBed(t, func(c *containergc.Config) { c.PodLogs = root })
	b.dead("gone", "app", 0)
	require.NoError(t, b.KillSandbox(b.boxes["gone"]))
	b.set("gone", "gone")
	b.ready = false
	m := b.manager()
	before := len(b.Calls())
	res, err := m.Collect(t.Context())
	require.NoError(t, err)
	require.True(t, res.Plan.NotReady)
	require.Equal(t, "nothing is removed: not every pod source has been read\n", res.Plan.String())
	require.ErrorIs(t, m.DeleteAllUnusedContainers(t.Context()), containergc.ErrNotReady)
	plan, err := m.Plan(t.Context())
	require.NoError(t, err)
	require.True(t, plan.NotReady)
	require.Len(t, b.Calls(), before, "the runtime must not be called")
	require.Len(t, files(t, root), 1)

	b.ready = true
	_, err = m.Collect(t.Context())
	require.NoError(t, err)
	require.Empty(t, b.left())
	require.Empty(t, files(t, root))
}

func TestDeleteAllUnusedContainers_RemovesTerminatedPods(t *testing.T) {
	b := newBed(t)
	b.dead("job", "app", 0)
	require.NoError(t, b.KillSandbox(b.boxes["job"]))
	b.set("job", "ended")
	b.dead("web", "app", 0)
	var gc interface { // the interface that package eviction declares
		DeleteAllUnusedContainers(ctx context.Context) error
	} = b.manager()
	require.NoError(t, gc.DeleteAllUnusedContainers(t.Context()))
	require.Equal(t, []string{"web#0", "web/app#0"}, b.left())
}

func TestCollect_StopsContainersInUnknownStateFirst(t *testing.T) {
	b := newBed(t)
	b.start("web", "app", 0)
	require.NoError(t, b.SetUnknown("ns/web/app"))
	b.set("web", "gone")
	require.NoError(t, b.Fail("StopContainer", fakecri.Fault{Err: errors.New("shim is stuck"), Times: 1}))
	m := b.manager()
	_, err := m.Collect(t.Context())
	require.ErrorContains(t, err, "stop the container before its removal: shim is stuck")
	require.Empty(t, b.calls("RemoveContainer"), "a container that may be running must not be removed")
	b.clock.Step(hour)
	_, err = m.Collect(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"web#0"}, b.left(), "a ready sandbox must be kept")
}

// TestCollect_CreatedContainerDoesNotCountAsDead checks that no limit removes a created
// container, which may be started soon.
func TestCollect_CreatedContainerDoesNotCountAsDead(t *testing.T) {
	b := newBed(t, func(c *containergc.Config) {
		c.Policy.MaxPerPodContainer, c.Policy.MaxContainers = new(0), new(0)
	})
	for _, pod := range []string{"web", "evicted"} {
		b.dead(pod, "side", 0)
		b.create(pod, "app", 0)
	}
	b.set("evicted", "evicted")
	b.clock.Step(48 * hour)
	require.NoError(t, b.manager().DeleteAllUnusedContainers(t.Context()))
	require.Equal(t, []string{"evicted#0", "evicted/app#0", "web#0", "web/app#0"}, b.left())
}

// TestCollect_EqualTimesKeepTheNewestAttempt checks containers with equal creation times, in any
// order of the runtime's list.
func TestCollect_EqualTimesKeepTheNewestAttempt(t *testing.T) {
	in := containergc.Input{Now: now(), Pods: pods{}}
	for n := range uint32(8) {
		in.Snapshot.Containers = append(in.Snapshot.Containers, containergc.Container{
			ID: fmt.Sprint("c", n*5%8), PodUID: "web", Name: "app", Attempt: n, CreatedAt: now(), FinishedAt: now(),
			State: runtimeapi.ContainerState_CONTAINER_EXITED,
		})
	}
	for range 50 {
		rand.Shuffle(8, func(i, j int) {
			c := in.Snapshot.Containers
			c[i], c[j] = c[j], c[i]
		})
		for _, d := range containergc.PlanRemovals(in).Decisions {
			require.Equal(t, d.Attempt != 7, d.Remove)
		}
	}
}

// TestMinAge_CountsFromTheExit checks a container that was created 48 hours ago and has just
// exited.
func TestMinAge_CountsFromTheExit(t *testing.T) {
	b := newBed(t, func(c *containergc.Config) { c.Policy.MinAge = hour })
	id := b.start("web", "app", 0)
	b.clock.Step(48 * hour)
	require.NoError(t, b.Kill(id, 1))
	b.set("web", "gone")
	m := b.manager()
	for range 5 {
		_, err := m.Collect(t.Context())
		require.NoError(t, err)
		require.Contains(t, b.left(), "web/app#0")
		b.clock.Step(11 * time.Minute)
	}
	require.Len(t, b.calls("ContainerStatus"), 1, "the exit time must be requested once")
	b.clock.Step(10 * time.Minute)
	_, err := m.Collect(t.Context())
	require.NoError(t, err)
	require.NotContains(t, b.left(), "web/app#0")
}

func TestMinAge_UnknownExitTimeIsRequestedAgain(t *testing.T) {
	b := newBed(t, func(c *containergc.Config) { c.Policy.MinAge = time.Minute })
	b.dead("web", "app", 0)
	b.clock.Step(hour)
	b.set("web", "gone")
	require.NoError(t, b.Fail("ContainerStatus", fakecri.Fault{Err: errors.New("busy"), Times: 1}))
	m := b.manager()
	_, err := m.Collect(t.Context())
	require.ErrorContains(t, err, "get exit time of container ")
	require.ErrorContains(t, err, ": busy")
	require.Contains(t, b.left(), "web/app#0")
	_, err = m.Collect(t.Context())
	require.NoError(t, err)
	require.NotContains(t, b.left(), "web/app#0")
}

// TestCollect_FailedRemovalDoesNotStopOthers also checks the back-off of the failed removal.
func TestCollect_FailedRemovalDoesNotStopOthers(t *testing.T) {
	root := logs(t, "ns_bad_bad/app/0.log", "ns_good_good/app/0.log")
	b := newBed(t, func(c *containergc.Config) { c.PodLogs = root })
	for _, pod := range []string{"bad", "good"} {
		b.dead(pod, "app", 0)
		require.NoError(t, b.KillSandbox(b.boxes[pod]))
		b.set(pod, "gone")
	}
	require.NoError(t, b.Fail("RemoveContainer", fakecri.Fault{Object: "ns/bad/app", Err: errors.New("device is busy")}))
	m := b.manager()
	_, err := m.Collect(t.Context())
	require.ErrorContains(t, err, "remove container ns/bad/app#0")
	require.ErrorContains(t, err, "device is busy")
	require.Equal(t, []string{"bad#0", "bad/app#0"}, b.left(), "the sandbox of the failed container must be kept, too")
	require.Equal(t, []string{"ns_bad_bad/app/0.log"}, files(t, root), "the logs of the failed container must be kept")

	tries := len(b.calls("RemoveContainer"))
	for range 60 {
		b.clock.Step(time.Minute)
		_, _ = m.Collect(t.Context())
	}
	require.Equal(t, 7, len(b.calls("RemoveContainer"))-tries, "attempts after 1, 3, 7, 15, 30, 45 and 60 minutes")
	b.ClearFaults("")
	b.clock.Step(hour)
	_, err = m.Collect(t.Context())
	require.NoError(t, err)
	require.Empty(t, b.left())
	require.Empty(t, files(t, root))
}

func TestCollect_HungRemovalTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in the bubble, only the hanging call takes time
		b := newBed(t, func(c *containergc.Config) { c.CallTimeout = time.Second })
		b.dead("bad", "app", 0)
		b.dead("good", "app", 0)
		b.set("bad", "gone")
		b.set("good", "gone")
		require.NoError(t, b.Fail("RemoveContainer", fakecri.Fault{Object: "ns/bad/app", Hang: true}))
		_, err := b.manager().Collect(t.Context())
		require.ErrorContains(t, err, "ns/bad/app")
		require.NotContains(t, b.left(), "good/app#0")
	})
}

// A removal that is cancelled with its pass does not count as a failure of the container.
func TestCollect_CancelledRemovalDoesNotBackOff(t *testing.T) {
	b := newBed(t)
	b.dead("web", "app", 0)
	b.set("web", "gone")
	require.NoError(t, b.Fail("RemoveContainer", fakecri.Fault{Err: errors.New("cut off")}))
	ctx, cancel := context.WithCancel(t.Context())
	b.cfg.Remover = lateCancel{b.Node, cancel}
	m := b.manager()
	_, err := m.Collect(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, m.Failures())
	b.ClearFaults("")
	_, err = m.Collect(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"web#0"}, b.left(), "the next pass must retry without back-off")
}

// lateCancel is a runtime that cancels the context when a removal has started.
type lateCancel struct {
	*fakecri.Node
	cancel context.CancelFunc
}

func (l lateCancel) RemoveContainer(ctx context.Context, id string) error {
	l.cancel()
	return l.Node.RemoveContainer(ctx, id)
}

func TestCollect_SandboxThatCannotBeStopped(t *testing.T) {
	b := newBed(t)
	require.NoError(t, b.KillSandbox(b.box("web")))
	b.set("web", "gone")
	require.NoError(t, b.Fail("StopPodSandbox", fakecri.Fault{Err: errors.New("network is stuck")}))
	_, err := b.manager().Collect(t.Context())
	require.ErrorContains(t, err, "remove sandbox ns/web#0")
	require.Empty(t, b.calls("RemovePodSandbox"))
}

func TestCollect_FailedListsChangeNothing(t *testing.T) {
	for _, method := range []string{"ListContainers", "ListPodSandbox"} {
		b := newBed(t)
		b.dead("web", "app", 0)
		b.set("web", "gone")
		require.NoError(t, b.Fail(method, fakecri.Fault{Err: errors.New("busy"), Times: 2}))
		m := b.manager()
		_, err := m.Collect(t.Context())
		require.ErrorContains(t, err, "busy")
		_, err = m.Plan(t.Context())
		require.ErrorContains(t, err, "busy")
		require.Len(t, b.left(), 2)
	}
}

func TestCollect_MalformedAnswersOfTheRuntime(t *testing.T) {
	for _, answer := range []fakecri.Answer{{Nil: true}, {Bare: true}} {
		b := newBed(t, func(c *containergc.Config) { c.Policy.MinAge = 1 })
		b.dead("web", "app", 0)
		for _, method := range []string{"ListContainers", "ListPodSandbox", "ContainerStatus"} {
			require.NoError(t, b.Fail(method, fakecri.Fault{Answer: answer}))
		}
		res, err := b.manager().Collect(t.Context())
		require.NoError(t, err)
		require.Empty(t, res.Removed)
	}
}

func TestSnapshot_ReplacesTheLists(t *testing.T) {
	b := newBed(t)
	id := b.dead("web", "app", 0)
	b.set("web", "gone")
	status, err := b.ContainerStatus(t.Context(), id, false)
	require.NoError(t, err)
	box, err := b.PodSandboxStatus(t.Context(), b.boxes["web"], false)
	require.NoError(t, err)
	given := containergc.Snapshot{
		Containers: []containergc.Container{containergc.ContainerFromStatus(status.GetStatus(), b.boxes["web"])},
		Sandboxes:  []containergc.Sandbox{containergc.SandboxFromStatus(box.GetStatus())},
	}
	given.Containers[0].PodUID = "" // the container belongs to the pod of its sandbox
	var fails error
	b.cfg.Snapshot = func(context.Context) (containergc.Snapshot, error) { return given, fails }
	b.cfg.Policy.MinAge = 1
	b.clock.Step(hour)
	m := b.manager()
	before := len(b.Calls())
	res, err := m.Collect(t.Context())
	require.NoError(t, err)
	require.Len(t, res.Removed, 1)
	require.Len(t, b.Calls(), before+1, "only the removal must be called")
	require.Empty(t, given.Containers[0].PodUID, "the snapshot must not be modified")
	fails = errors.New("no idea")
	_, err = m.Collect(t.Context())
	require.ErrorIs(t, err, fails)
}

func TestOwned_OtherObjectsAreNotTouched(t *testing.T) {
	root := logs(t, "ns_web_web/app/0.log", "ns_stranger_stranger/app/0.log")
	b := newBed(t, func(c *containergc.Config) {
		c.PodLogs, c.Owned = root, func(o containergc.Object) bool { return o.Pod == "web" }
	})
	b.dead("web", "app", 0)
	b.dead("stranger", "app", 0)
	b.set("web", "gone")
	b.set("stranger", "gone")
	require.NoError(t, b.manager().DeleteAllUnusedContainers(t.Context()))
	require.Equal(t, []string{"stranger#0", "stranger/app#0", "web#0"}, b.left())
	require.Contains(t, files(t, root), "ns_stranger_stranger/app/0.log")
}

func TestEvents_ConsecutiveFailures(t *testing.T) {
	var events recorder
	b := newBed(t, func(c *containergc.Config) { c.Recorder, c.Node = &events, &corev1.Node{} })
	require.NoError(t, b.Fail("ListPodSandbox", fakecri.Fault{Err: errors.New("busy"), Times: 12}))
	m := b.manager()
	for range 13 {
		_, _ = m.Collect(t.Context())
		b.clock.Step(time.Minute)
	}
	require.Equal(t, recorder{
		"Warning ContainerGCFailed list sandboxes: busy", "Warning ContainerGCFailed list sandboxes: busy",
	}, events, "the first failure and the one ten minutes later must be recorded")
	require.NoError(t, b.Fail("ListPodSandbox", fakecri.Fault{Err: errors.New("busy")}))
	_, _ = m.Collect(t.Context())
	require.Len(t, events, 3, "after a success, the first failure must be recorded again")
}

// slowRemover is a runtime whose removals take a second.
type slowRemover struct {
	*fakecri.Node
	t    *testing.T
	busy *sync.Map // IDs of containers that are being removed
}

func (r slowRemover) RemoveContainer(ctx context.Context, id string) error {
	if _, busy := r.busy.LoadOrStore(id, true); busy {
		r.t.Errorf("container %s is removed twice at the same time", id)
	}
	defer r.busy.Delete(id)
	select {
	case <-time.After(time.Second):
		return r.Node.RemoveContainer(ctx, id)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestCollect_CancelledPassLeavesTheRestToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *containergc.Config) { c.Clock = clock.RealClock{} })
		for i := range 21 {
			pod := fmt.Sprint("pod", i)
			b.dead(pod, "app", 0)
			b.set(pod, "gone")
		}
		b.cfg.Remover = slowRemover{b.Node, t, &sync.Map{}}
		m := b.manager()
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		res, err := m.Collect(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, res.Removed, 8, "four workers remove two containers each in this time")
		_, err = m.Collect(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = m.Collect(t.Context())
		require.NoError(t, err)
		require.Len(t, b.left(), 21, "the sandboxes must be left")
	})
}

func TestCollect_TwoPassesDoNotRemoveTheSameObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *containergc.Config) { c.Clock = clock.RealClock{} })
		for i := range 21 {
			pod := fmt.Sprint("pod", i)
			b.dead(pod, "app", 0)
			b.set(pod, "gone")
		}
		b.cfg.Remover = slowRemover{b.Node, t, &sync.Map{}}
		m := b.manager()
		done := make(chan error, 1)
		go func() {
			_, err := m.Collect(t.Context())
			done <- err
		}()
		synctest.Wait()
		require.NoError(t, m.DeleteAllUnusedContainers(t.Context()))
		require.NoError(t, <-done)
		require.Len(t, b.left(), 21, "the sandboxes must be left")
	})
}

func TestRun_CollectsEveryMinuteWithOneListOfEachKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *containergc.Config) { c.Clock = clock.RealClock{} })
		b.dead("web", "app", 0)
		m := b.manager()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+time.Second)
		defer cancel()
		go func() {
			time.Sleep(time.Second)
			if err := m.Run(ctx); !errors.Is(err, containergc.ErrRunning) {
				t.Errorf("error of the second Run: %v", err)
			}
		}()
		require.NoError(t, m.Run(ctx))
		require.Len(t, b.calls("ListContainers"), 11)
		require.Len(t, b.calls("ListPodSandbox"), 11)
		require.Empty(t, b.calls("ContainerStatus"))
		synctest.Wait()
	})
}

func TestValidate(t *testing.T) {
	_, err := containergc.New(containergc.Config{
		Policy: containergc.Policy{MinAge: -1}, Period: -1, Workers: -1, CallTimeout: -1, Recorder: &recorder{},
	})
	require.EqualError(t, err, `containergc: invalid config: field Runtime is required
field Remover is required
field Pods is required
field SourcesReady is required
invalid minimum garbage collection age: -1ns
field Period: -1ns is negative
field Workers: -1 is negative
field CallTimeout: -1ns is negative
field Node is required with Recorder`)
}
