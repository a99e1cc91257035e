package podworker_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// few is the number of goroutines of the test binary besides the workers'.
const few = 8

// kubelet 1.36: 5.4 KB and a goroutine per pod.
func TestWorkers_IdlePodHasNoGoroutine(t *testing.T) {
	const n, ceiling = 5000, 400
	w, done := lightWorkers(t)
	pods := manyPods(n)
	before, goroutines := heap(), runtime.NumGoroutine()
	for _, p := range pods {
		w.UpdatePod(podworker.Update{Type: podworker.Create, Pod: p})
		<-done
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+few)
	require.LessOrEqual(t, int64(heap()-before)/n, int64(ceiling))
	runtime.KeepAlive(pods)
}

func TestSync_LeavesNoGoroutine(t *testing.T) {
	inBubble(t, func(b *bed) {
		const n = 100
		gate := make(chan struct{})
		b.sync.set("sync", func(context.Context, podworker.SyncRequest) (bool, error) { <-gate; return false, nil })
		before := runtime.NumGoroutine()
		for _, p := range manyPods(n) {
			b.UpdatePod(podworker.Update{Type: podworker.Create, Pod: p})
		}
		synctest.Wait()
		close(gate)
		synctest.Wait()
		require.LessOrEqual(t, runtime.NumGoroutine(), before+few)
	})
}

// Pods are terminated concurrently: the termination of all pods lasts as long as the runtime
// needs for one pod.
func TestKillPod_HundredPodsConcurrently(t *testing.T) {
	inBubble(t, func(b *bed) {
		const stop = 200 * time.Millisecond
		b.sync.set("terminating", func(context.Context, podworker.SyncRequest) (bool, error) {
			time.Sleep(stop)
			return false, nil
		})
		pods := manyPods(100)
		for _, p := range pods {
			b.UpdatePod(podworker.Update{Type: podworker.Create, Pod: p})
		}
		synctest.Wait()
		began := time.Now()
		var kills sync.WaitGroup
		for _, p := range pods {
			kills.Go(func() { require.NoError(t, b.KillPod(b.t.Context(), p, podworker.KillOptions{})) })
		}
		kills.Wait()
		require.Equal(t, stop, time.Since(began))
	})
}

// Goroutines that a Syncer has started with a sync's ctx end with the sync.
func TestSync_ContextEndsWithTheSync(t *testing.T) {
	inBubble(t, func(b *bed) {
		var left context.Context
		b.sync.set("sync", func(ctx context.Context, _ podworker.SyncRequest) (bool, error) {
			left = ctx
			return false, ctx.Err()
		})
		b.update(podworker.Create, newPod("a"))
		require.Error(t, left.Err())
		first := left
		b.update(podworker.Sync, newPod("a"))
		require.NotSame(t, first, left)
		require.NoError(t, b.turns[1].Err)
	})
}
