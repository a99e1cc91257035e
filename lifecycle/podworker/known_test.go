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

// answers asks all queries by UID.
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
		require.Equal(t, [7]bool{n, y, n, n, n, n, n}, b.answers("a"), "unknown, before the first sweep")
		pod := newPod("a")
		b.update(podworker.Create, pod)
		require.Equal(t, [7]bool{n, y, n, n, n, n, n}, b.answers("a"), "syncing")
		b.SyncKnownPods([]*corev1.Pod{pod})
		require.Equal(t, [7]bool{n, n, y, n, y, y, y}, b.answers("nobody"), "unknown, after the first sweep")

		b.sync.fail("terminating", errors.New("no"))
		b.sync.fail("terminated", errors.New("no"))
		gate := make(chan struct{})
		b.sync.set("sync", func(context.Context, podworker.Turn) (bool, error) { <-gate; return false, nil })
		b.update(podworker.Sync, pod)
		b.update(podworker.Kill, pod)
		require.Equal(t, [7]bool{n, y, n, y, n, n, n}, b.answers("a"), "asked to end, but its worker has not seen it")
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

func TestContentOfAnEvictedPodCanGoAtOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.sync.fail("terminating", errors.New("no"))
		b.update(podworker.Create, newPod("a"))
		b.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: newPod("a"), Kill: podworker.KillOptions{Evict: true}})
		require.True(t, b.ShouldPodContentBeRemoved("a"))
	})
}

func TestSweepsEndOrphansAndForgetThemWhenFinished(t *testing.T) {
	inBubble(t, func(b *bed) {
		a, c := newPod("a"), newPod("c")
		b.update(podworker.Create, a)
		b.update(podworker.Create, c)
		known := b.SyncKnownPods([]*corev1.Pod{a, c})
		require.Equal(t, map[types.UID]podworker.Known{"a": {HasConfig: true}, "c": {HasConfig: true}}, known)
		b.sync.log()
		b.sync.fail("terminating", errors.New("no"))

		known = b.SyncKnownPods([]*corev1.Pod{c})
		require.Equal(t, podworker.Known{Phase: podworker.Terminating, Orphan: true, HasConfig: true}, known["a"])
		synctest.Wait()
		require.Equal(t, 30*time.Second, b.sync.last().Grace)
		b.SyncKnownPods([]*corev1.Pod{c})
		synctest.Wait()
		require.Equal(t, []string{"terminating a", "terminating a"}, b.sync.log(), "each sweep tries again")

		b.sync.set("terminating", nil)
		require.Contains(t, b.SyncKnownPods([]*corev1.Pod{c}), types.UID("a"))
		synctest.Wait()
		require.NotContains(t, b.SyncKnownPods([]*corev1.Pod{c}), types.UID("a"))
	})
}

func TestASweepDoesNotHurryATurnUnderWay(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.update(podworker.Create, newPod("a"))
		b.sync.hang("terminating")
		for range 5 {
			b.SyncKnownPods(nil)
			synctest.Wait()
		}
		require.Equal(t, []string{"sync a", "terminating a"}, b.sync.log())
	})
}

func TestADesiredPodThatIsEndingAndNotDesiredAnyMore(t *testing.T) {
	inBubble(t, func(b *bed) {
		pod := newPod("a")
		b.update(podworker.Create, pod)
		b.sync.hang("terminating")
		b.update(podworker.Kill, pod)
		require.False(t, b.SyncKnownPods([]*corev1.Pod{pod})["a"].Orphan)
		require.True(t, b.SyncKnownPods(nil)["a"].Orphan)
		require.False(t, b.SyncKnownPods([]*corev1.Pod{pod})["a"].Orphan)
	})
}

func TestAFinishedPodStaysKnownWhileItIsDesired(t *testing.T) {
	inBubble(t, func(b *bed) {
		pod := newPod("a")
		b.update(podworker.Create, pod)
		b.update(podworker.Kill, pod)
		for range 3 {
			require.Equal(t, podworker.Finished, b.SyncKnownPods([]*corev1.Pod{pod})["a"].Phase)
		}
	})
}

func TestSweepsOfNothingNewAllocateNothing(t *testing.T) {
	b := newBed(t)
	var desired []*corev1.Pod
	for _, uid := range []types.UID{"a", "b", "c"} {
		pod := newPod(uid)
		desired = append(desired, pod)
		b.UpdatePod(podworker.Update{Type: podworker.Create, Pod: pod})
	}
	b.SyncKnownPods(desired)
	require.Zero(t, testing.AllocsPerRun(100, func() { b.SyncKnownPods(desired) }))
}
