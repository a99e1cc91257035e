package podworker_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// kubelet 1.36: 6 allocations, 8 with its ctx.
func TestATurnAllocatesItsContextAndNothingElse(t *testing.T) {
	w, done := lightWorkers(t)
	pod := newPod("a")
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		w.UpdatePod(podworker.Update{Type: podworker.Sync, Pod: pod})
		<-done
	}), 2.0)
}

// kubelet 1.36: 5.4 KB and a goroutine per pod.
func TestAnIdlePodCostsAFewHundredBytesAndNoGoroutine(t *testing.T) {
	const n, ceiling, spares = 5000, 400, 8
	w, done := lightWorkers(t)
	pods := manyPods(n)
	before, goroutines := heap(), runtime.NumGoroutine()
	for _, p := range pods {
		w.UpdatePod(podworker.Update{Type: podworker.Create, Pod: p})
		<-done
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+spares)
	require.LessOrEqual(t, int64(heap()-before)/n, int64(ceiling))
	runtime.KeepAlive(pods)
}
