package eviction_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
)

// besideAnEviction returns a node under memory pressure with two pods. The first was evicted
// by an earlier manager and is still terminating; the second was not evicted.
func besideAnEviction(t *testing.T) (n *node, m *eviction.Manager, hog *corev1.Pod) {
	t.Helper()
	n = newNode(t)
	hog = newPod("hog", priority(-1))
	hog.Spec.TerminationGracePeriodSeconds = new(int64(20))
	eviction.Eviction{Message: "it was low on memory", Disruption: true}.Apply(&hog.Status)
	n.add(hog, memoryStats(hog, 5*gi/2))
	n.add(newPod("calm"), memoryStats(newPod("calm"), 1*gi))
	cfg := n.config(hard(eviction.MemoryAvailable, 1*gi), soft(eviction.MemoryAvailable, 3*gi, time.Second))
	cfg.Policy.MaxPodGracePeriodSeconds = 60
	m = newManager(t, cfg)
	n.has(m, 2*gi, 0)
	d := n.has(m, 2*gi, time.Second)
	require.Empty(t, d.Victims, "the adopted eviction frees enough")
	require.Len(t, d.Next.InFlight, 1)
	require.Equal(t, []string{"conditions [MemoryPressure]", "event node Warning EvictionThresholdMet: Attempting to reclaim memory"}, n.take(),
		"the adopted eviction must not be announced again")
	return n, m, hog
}

// has evaluates with the given amount of available memory.
func (n *node) has(m *eviction.Manager, available int64, after time.Duration) eviction.Decision {
	n.t.Helper()
	n.clock.Step(after)
	n.saw(eviction.MemoryAvailable, available, 10*gi)
	return n.step(m, 0)
}

func TestAdopt_HardThresholdEscalates(t *testing.T) {
	t.Parallel()
	n, m, hog := besideAnEviction(t)
	d := n.has(m, 900*mi, time.Second)
	require.Equal(t, []types.UID{hog.UID}, d.Escalate)
	require.Equal(t, []string{"kill hog 1s"}, n.waitCalls(1))
	require.Empty(t, d.Victims)
	n.end("hog", nil)
	m.Wait()
	n.remove("hog")
	require.Equal(t, []string{"calm"}, victims(n.has(m, 900*mi, time.Second)), "another pod must be evicted, because the adopted eviction freed too little")
	require.Equal(t, []string{"kill calm 1s"}, n.waitCalls(1))
	n.end("calm", nil)
	m.Wait()
}

// No killer reports the end of an adopted eviction to this manager.
func TestAdopt_EndsWithItsPod(t *testing.T) {
	t.Parallel()
	n, m, _ := besideAnEviction(t)
	n.remove("hog")
	require.Equal(t, []string{"calm"}, victims(n.has(m, 2*gi, time.Second)))
	n.waitCalls(1)
	n.end("calm", nil)
	m.Wait()
}

func TestAdopt_StopsCountingAtItsDeadline(t *testing.T) {
	t.Parallel()
	n, m, _ := besideAnEviction(t)
	require.Empty(t, n.has(m, 2*gi, 29*time.Second).Victims)
	require.Equal(t, []string{"calm"}, victims(n.has(m, 2*gi, time.Second)), "the adopted eviction has exceeded its 20 s by half")
	require.Contains(t, n.take(), "overdue hog")
	n.waitCalls(1)
	n.end("calm", nil)
	m.Wait()
}

// TestAdopt_BesideLimits is a regression test: an evaluation that checked local storage
// limits, and therefore already had pod stats, ignored terminating pods.
func TestAdopt_BesideLimits(t *testing.T) {
	t.Parallel()
	n, hog := newNode(t), newPod("hog")
	eviction.Eviction{Message: "it was low on memory", Disruption: true}.Apply(&hog.Status)
	n.add(hog, memoryStats(hog, 2*gi))
	n.add(newPod("calm", emptyDir("data", "1Gi", "")), memoryStats(newPod("calm"), gi))
	m := newManager(t, n.config(hard(eviction.MemoryAvailable, gi)))
	d := n.has(m, 0, 0)
	require.Empty(t, d.Victims, "the eviction of hog frees enough")
	require.Equal(t, []types.UID{hog.UID}, d.Escalate)
	n.waitCalls(1)
	n.end("hog", nil)
	m.Wait()
}

func TestEvaluate_GrowthOfATerminatingPodCounts_WithLimits(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.add(newPod("hog"), memoryStats(newPod("hog"), 500*mi))
	n.add(newPod("calm", emptyDir("data", "1Gi", "")), memoryStats(newPod("calm"), 1*mi))
	cfg := n.config(hard(eviction.MemoryAvailable, 1*gi))
	cfg.LimitsPeriod = 5 * time.Second
	m := newManager(t, cfg)
	require.Equal(t, []string{"hog"}, victims(n.has(m, 900*mi, 0)))
	n.stats[0] = memoryStats(n.pods[0], 3*gi)
	require.Empty(t, n.has(m, 0, 5*time.Second).Victims, "the eviction of hog now frees more")
	n.waitCalls(1)
	n.end("hog", nil)
	m.Wait()
}

// TestAdopt_WaitsNoLongerThanThePolicy is a regression test: soft thresholds waited for an
// adopted pod for 1.5 times its own grace period, even if the policy's grace period was shorter.
func TestAdopt_WaitsNoLongerThanThePolicy(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	gone := newPod("gone", grace(3600))
	eviction.Eviction{Message: "it was low on memory", Disruption: true}.Apply(&gone.Status)
	n.pods = append(n.pods, gone)
	n.add(newPod("hog"), memoryStats(newPod("hog"), gi))
	cfg := n.config(soft(eviction.MemoryAvailable, gi, time.Second))
	cfg.Policy.MaxPodGracePeriodSeconds = 20
	m := newManager(t, cfg)
	n.has(m, 0, 0)
	require.True(t, n.has(m, 0, time.Second).Thresholds[0].Pending, "the threshold must wait, because the freed amount is unknown")
	require.Empty(t, n.has(m, 0, 30*time.Second-1).Victims)
	require.Equal(t, []string{"hog"}, victims(n.has(m, 0, 1)))
	n.waitCalls(1)
	n.end("hog", nil)
	m.Wait()
}

// TestAdopt_CleanedUpPodFreesNothing checks that the disk space of a pod that is cleaned up does
// not count as being freed again.
func TestAdopt_CleanedUpPodFreesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	gone := newPod("gone")
	eviction.Eviction{Message: "it was low on disk", Disruption: true}.Apply(&gone.Status)
	n.add(gone, diskStats(gone, 2*gi, 0, 0))
	n.add(newPod("hog"), diskStats(newPod("hog"), gi, 0, 0))
	cfg := n.config(hard(eviction.NodeFSAvailable, gi))
	cfg.CleanedUp = func(types.UID) bool { return len(n.active()) == 1 }
	m := newManager(t, cfg)
	n.saw(eviction.NodeFSAvailable, 0, 10*gi)
	require.Empty(t, n.step(m, 0).Victims)
	n.waitCalls(1)
	n.remove("gone")
	require.Equal(t, []string{"hog"}, victims(n.step(m, time.Second)))
	n.waitCalls(1)
	n.end("gone", nil)
	n.end("hog", nil)
	m.Wait()
}
