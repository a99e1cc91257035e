package eviction_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/eviction"
)

// twoCalls answers the call that ends a pod slowly, and the one that gives it no more
// time.
type twoCalls struct{ slow, hard chan error }

func (c twoCalls) Kill(_ context.Context, _ *corev1.Pod, e eviction.Eviction) error {
	if e.GracePeriodSeconds == 1 {
		return <-c.hard
	}
	return <-c.slow
}

func TestFirstCallMayFailBesideAnEscalation(t *testing.T) {
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
		require.NotContains(t, strings.Join(n.take(), "\n"), "evicted slow", "the other call goes on")
		calls.hard <- nil
		m.Wait()
		require.Contains(t, strings.Join(n.take(), "\n"), "evicted slow for memory.available: <nil>")
	})
}
