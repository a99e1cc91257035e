package eviction_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/eviction"
)

// twoCalls is a Killer for one pod. Values on slow end the call with the pod's grace period,
// and values on hard end the call with the short grace period.
type twoCalls struct{ slow, hard chan error }

func (c twoCalls) Kill(_ context.Context, _ *corev1.Pod, e eviction.Eviction) error {
	if e.GracePeriodSeconds == 1 {
		return <-c.hard
	}
	return <-c.slow
}

// An escalated pod has two calls of the Killer. While the second call is running, the pod is not
// reported as evicted, whatever the first call has returned.
func TestEscalation_FirstKillMayFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.add(newPod("slow", grace(600)), memoryStats(newPod("slow"), 2*gi))
		cfg := n.config(soft(eviction.MemoryAvailable, 2*gi, time.Second), hard(eviction.MemoryAvailable, gi))
		calls := twoCalls{make(chan error), make(chan error)}
		cfg.Policy.MaxPodGracePeriodSeconds, cfg.Killer = -1, calls
		m := newManager(t, cfg)
		n.saw(eviction.MemoryAvailable, gi+1, 10*gi)
		n.step(m, 0)
		n.step(m, time.Second)
		n.saw(eviction.MemoryAvailable, 0, 10*gi)
		require.Len(t, n.step(m, time.Second).Escalate, 1)
		calls.slow <- errors.New("no more time")
		synctest.Wait()
		require.NotContains(t, strings.Join(n.take(), "\n"), "evicted slow", "the pod must not be reported while the second call is running")
		calls.hard <- nil
		m.Wait()
		require.Contains(t, strings.Join(n.take(), "\n"), "evicted slow for memory.available: <nil>")
	})
}

// Calls start and end while other goroutines wait for them.
func TestWait_DuringEvaluate(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.instant = true
	for i := range 500 {
		pod := newPod(fmt.Sprintf("pod-%03d", i))
		n.add(pod, memoryStats(pod, 1))
	}
	n.saw(eviction.MemoryAvailable, 0, 10*gi)
	cfg := n.config(hard(eviction.MemoryAvailable, gi))
	cfg.Policy.MaxParallelEvictions = 1
	m := newManager(t, cfg)
	kills, waiting, done := 0, sync.WaitGroup{}, make(chan struct{})
	for range 4 {
		waiting.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					m.Wait()
				}
			}
		})
	}
	for range 1000 {
		kills += len(n.step(m, time.Millisecond).Victims)
	}
	close(done)
	waiting.Wait()
	m.Wait()
	require.Len(t, n.waitCalls(kills), kills)
	require.Positive(t, kills)
}
