package podworker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// answers calls all queries by UID.
func (b *bed) answers(uid types.UID) [7]bool {
	return [7]bool{
		b.IsPodKnownTerminated(uid),
		b.CouldHaveRunningContainers(uid),
		b.ShouldPodBeFinished(uid),
		b.IsPodTerminationRequested(uid),
		b.ShouldPodContainersBeTerminating(uid),
		b.ShouldPodRuntimeBeRemoved(uid),
		b.ShouldPodContentBeRemoved(uid),
	}
}

func TestQueries(t *testing.T) {
	inBubble(t, func(b *bed) {
		const y, n = true, false
		// known terminated, could run, finished, requested, terminating, runtime gone, content gone
		require.Equal(t, [7]bool{n, y, n, n, n, n, n}, b.answers("a"), "unknown pod, before the first SyncKnownPods")
		pod := newPod("a")
		b.update(podworker.Create, pod)
		require.Equal(t, [7]bool{n, y, n, n, n, n, n}, b.answers("a"), "syncing")
		b.SyncKnownPods(desired(pod))
		require.Equal(t, [7]bool{n, n, y, n, y, y, y}, b.answers("nobody"), "unknown pod, after the first SyncKnownPods")

		b.sync.fail("terminating", errors.New("no"))
		b.sync.fail("terminated", errors.New("no"))
		gate := make(chan struct{})
		b.sync.set("sync", func(context.Context, podworker.SyncRequest) (bool, error) { <-gate; return false, nil })
		b.update(podworker.Sync, pod)
		b.update(podworker.Kill, pod)
		require.Equal(t, [7]bool{n, y, n, y, n, n, n}, b.answers("a"), "termination requested, but not yet handled by the worker")
		close(gate)
		synctest.Wait()
		require.Equal(t, [7]bool{n, y, n, y, y, n, n}, b.answers("a"), "terminating")
		b.sync.set("terminating", nil)
		b.update(podworker.Sync, pod)
		require.Equal(t, [7]bool{y, n, n, y, y, y, n}, b.answers("a"), "terminated, still desired")
		b.update(podworker.Sync, newPod("a", deleted(1)))
		require.Equal(t, [7]bool{y, n, n, y, y, y, y}, b.answers("a"), "terminated and deleted")
		b.sync.set("terminated", nil)
		b.update(podworker.Sync, pod)
		require.Equal(t, [7]bool{y, n, y, y, y, y, y}, b.answers("a"), "finished")
	})
}

// A PLEG event may reach the workers before the pod's Create. If the event started the pod,
// the Create could arrive after the pod's end and start it again.
func TestUpdatePod_SyncOfAnUnknownPodIsIgnored(t *testing.T) {
	inBubble(t, func(b *bed) {
		pod := newPod("a")
		b.sync.set("sync", func(context.Context, podworker.SyncRequest) (bool, error) { return true, nil })
		b.update(podworker.Sync, pod)
		require.Empty(t, b.sync.log())
		require.Equal(t, []string{"the pod was never created"}, b.ignored)

		b.update(podworker.Create, pod)
		require.Equal(t, []string{"sync a", "terminating a", "terminated a"}, b.sync.log())
		require.Contains(t, b.SyncKnownPods(desired(pod)), pod.UID, "the pod must stay terminated")
		require.Empty(t, b.restarted)
	})
}

func TestShouldPodContentBeRemoved_EvictedPod(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.fail("terminating", errors.New("no"))
		b.update(podworker.Create, newPod("a"))
		b.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: newPod("a"), Kill: podworker.KillOptions{Evict: true}})
		require.True(t, b.ShouldPodContentBeRemoved("a"))
	})
}

func TestSyncKnownPods_TerminatesOrphansAndForgetsFinishedOnes(t *testing.T) {
	inBubble(t, func(b *bed) {
		a, c := newPod("a"), newPod("c")
		b.update(podworker.Create, a)
		b.update(podworker.Create, c)
		known := b.SyncKnownPods(desired(a, c))
		require.Equal(t, map[types.UID]podworker.Known{"a": {HasConfig: true}, "c": {HasConfig: true}}, known)
		b.sync.log()
		b.sync.fail("terminating", errors.New("no"))

		known = b.SyncKnownPods(desired(c))
		require.Equal(t, podworker.Known{Phase: podworker.Terminating, Orphan: true, HasConfig: true}, known["a"])
		synctest.Wait()
		require.Equal(t, 30*time.Second, b.sync.last().Grace)
		b.SyncKnownPods(desired(c))
		synctest.Wait()
		require.Equal(t, []string{"terminating a", "terminating a"}, b.sync.log(), "each SyncKnownPods must retry")

		b.sync.set("terminating", nil)
		require.Contains(t, b.SyncKnownPods(desired(c)), types.UID("a"))
		synctest.Wait()
		require.NotContains(t, b.SyncKnownPods(desired(c)), types.UID("a"))
	})
}

func TestSyncKnownPods_DoesNotCancelARunningSync(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.update(podworker.Create, newPod("a"))
		b.sync.hang("terminating")
		for range 5 {
			b.SyncKnownPods(desired())
			synctest.Wait()
		}
		require.Equal(t, []string{"sync a", "terminating a"}, b.sync.log())
	})
}

func TestKnownPods_NewPodIsNoOrphan(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.SyncKnownPods(desired())
		b.update(podworker.Create, newPod("a"))
		require.False(t, b.KnownPods()["a"].Orphan, "no list is newer than the pod")
		require.True(t, b.SyncKnownPods(desired())["a"].Orphan)
	})
}

func TestSyncKnownPods_TerminatingPodBecomesOrphan(t *testing.T) {
	inBubble(t, func(b *bed) {
		pod := newPod("a")
		b.update(podworker.Create, pod)
		b.sync.hang("terminating")
		b.update(podworker.Kill, pod)
		require.False(t, b.SyncKnownPods(desired(pod))["a"].Orphan)
		require.True(t, b.SyncKnownPods(desired())["a"].Orphan)
		require.False(t, b.SyncKnownPods(desired(pod))["a"].Orphan)
	})
}

func TestSyncKnownPods_FinishedPodStaysKnownWhileDesired(t *testing.T) {
	inBubble(t, func(b *bed) {
		pod := newPod("a")
		b.update(podworker.Create, pod)
		b.update(podworker.Kill, pod)
		for range 3 {
			require.Equal(t, podworker.Finished, b.SyncKnownPods(desired(pod))["a"].Phase)
		}
	})
}

func TestSyncKnownPods_NoChangesAllocateNothing(t *testing.T) {
	b := newBed(t)
	all := manyPods(500)
	for _, pod := range all {
		b.UpdatePod(podworker.Update{Type: podworker.Create, Pod: pod})
	}
	source := desired(all...)
	b.SyncKnownPods(source)
	require.Zero(t, testing.AllocsPerRun(100, func() { b.SyncKnownPods(source) }))
}

// The computation of the desired pods takes time. Pods that are added during that time must
// not be terminated because the list is older.
func TestSyncKnownPods_PodNewerThanTheListIsNotTerminated(t *testing.T) {
	inBubble(t, func(b *bed) {
		old := newPod("old")
		b.update(podworker.Create, old)
		known := b.SyncKnownPods(func() []*corev1.Pod {
			list := []*corev1.Pod{old, nil} // a nil entry must be ignored
			b.UpdatePod(podworker.Update{Type: podworker.Create, Pod: newPod("new")})
			return list
		})
		require.Equal(t, map[types.UID]podworker.Known{"old": {HasConfig: true}, "new": {HasConfig: true}}, known)
		synctest.Wait()
		require.Equal(t, []string{"sync old", "sync new"}, b.sync.log())

		known = b.SyncKnownPods(desired(old))
		require.True(t, known["new"].Orphan, "the next list is newer than the pod, so the pod is an orphan")
	})
}

// A pod that exists only in the runtime is not desired.
func TestSyncKnownPods_NewRuntimePodIsAnOrphan(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.hang("runtime")
		known := b.SyncKnownPods(func() []*corev1.Pod {
			b.UpdatePod(podworker.Update{Type: podworker.Kill, Running: running("a")})
			return nil
		})
		require.Equal(t, map[types.UID]podworker.Known{"a": {Phase: podworker.Terminating, Orphan: true}}, known)
	})
}

func TestSyncKnownPods_PodCreatedAgainWhileTerminatingRestartsOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		gate := make(chan struct{})
		b.sync.set("terminating", func(context.Context, podworker.SyncRequest) (bool, error) { <-gate; return false, nil })
		pod := newPod("a", static("web"))
		b.update(podworker.Create, pod)
		b.SyncKnownPods(desired(pod))
		b.update(podworker.Kill, pod)
		b.update(podworker.Create, pod)
		b.SyncKnownPods(desired(pod))
		require.Empty(t, b.restarted, "the pod has not terminated yet")
		close(gate)
		synctest.Wait()
		b.SyncKnownPods(desired(pod))
		require.Equal(t, []types.UID{"a"}, b.restarted)
		b.update(podworker.Create, pod)
		b.SyncKnownPods(desired(pod))
		require.Equal(t, []types.UID{"a"}, b.restarted)

		b.update(podworker.Kill, pod)
		b.SyncKnownPods(desired())
		require.Equal(t, []types.UID{"a"}, b.restarted, "a pod that is only forgotten must not be restarted")
	})
}

func TestKnownPods_AreCurrent(t *testing.T) {
	inBubble(t, func(b *bed) {
		require.Empty(t, b.KnownPods())
		b.update(podworker.Create, newPod("a"))
		b.update(podworker.Create, newPod("b"))
		b.SyncKnownPods(desired(newPod("a"), newPod("b")))
		b.sync.hang("terminating")
		b.update(podworker.Kill, newPod("b"))
		require.Equal(t, map[types.UID]podworker.Known{
			"a": {HasConfig: true},
			"b": {HasConfig: true, Phase: podworker.Terminating},
		}, b.KnownPods())
	})
}

// A caller that tracks pods itself can make the workers forget a pod, and create it again.
func TestForget(t *testing.T) {
	inBubble(t, func(b *bed) {
		pod := newPod("a")
		require.True(t, b.Forget("a"), "an unknown pod can be forgotten")
		b.update(podworker.Create, pod)
		require.False(t, b.Forget("a"), "a running pod cannot be forgotten")
		b.sync.fail("terminated", errors.New("no"))
		b.update(podworker.Kill, pod)
		require.False(t, b.Forget("a"), "an unfinished pod cannot be forgotten")
		b.sync.set("terminated", nil)
		b.update(podworker.Sync, pod)
		require.True(t, b.Forget("a"))
		require.Empty(t, b.KnownPods())
		b.sync.log()
		b.update(podworker.Create, pod)
		require.Contains(t, b.KnownPods(), pod.UID)
		require.False(t, b.IsPodTerminationRequested("a"))
	})
}
