package eviction_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
)

// besideAnEviction returns a node short of memory on which a pod is ending that another
// manager has evicted for it, and one that nobody has.
func besideAnEviction(t *testing.T) (n *node, m *eviction.Manager, hog *corev1.Pod) {
	t.Helper()
	n = newNode(t)
	hog = newPod("hog", priority(-1))
	hog.Spec.TerminationGracePeriodSeconds = new(int64(20))
	eviction.Eviction{Message: "it was low on memory", Disruption: true}.Apply(&hog.Status)
	n.add(hog, memoryStats(hog, 5*gi/2))
	n.add(newPod("calm"), memoryStats(newPod("calm"), 1*gi))
	m = newManager(t, n.config(hard(eviction.MemoryAvailable, 1*gi), soft(eviction.MemoryAvailable, 3*gi, time.Second)))
	n.has(m, 2*gi, 0)
	d := n.has(m, 2*gi, time.Second)
	require.Empty(t, d.Victims, "what it frees is enough")
	require.Len(t, d.Next.InFlight, 1)
	require.Equal(t, []string{"conditions [MemoryPressure]"}, n.take(), "nothing is announced again")
	return n, m, hog
}

// has steps when so much memory is available.
func (n *node) has(m *eviction.Manager, available int64, after time.Duration) eviction.Decision {
	n.t.Helper()
	n.clock.Step(after)
	n.saw(eviction.MemoryAvailable, available, 10*gi)
	return n.step(m, 0)
}

func TestAnAdoptedEvictionIsHurriedLikeOwnOnes(t *testing.T) {
	t.Parallel()
	n, m, hog := besideAnEviction(t)
	d := n.has(m, 900*mi, time.Second)
	require.Equal(t, []types.UID{hog.UID}, d.Escalate)
	require.Equal(t, []string{"kill hog 1s"}, n.waitCalls(1))
	require.Empty(t, d.Victims)
	n.end("hog", nil)
	m.Wait()
	n.remove("hog")
	require.Equal(t, []string{"calm"}, victims(n.has(m, 900*mi, time.Second)), "that was not enough")
	require.Equal(t, []string{"kill calm 1s"}, n.waitCalls(1))
	n.end("calm", nil)
	m.Wait()
}

// Nobody tells this manager when the pod has ended.
func TestAnAdoptedEvictionIsOverWithItsPod(t *testing.T) {
	t.Parallel()
	n, m, _ := besideAnEviction(t)
	n.remove("hog")
	require.Equal(t, []string{"calm"}, victims(n.has(m, 2*gi, time.Second)))
	n.waitCalls(1)
	n.end("calm", nil)
	m.Wait()
}

func TestAnAdoptedEvictionIsNotCountedOnForEver(t *testing.T) {
	t.Parallel()
	n, m, _ := besideAnEviction(t)
	require.Empty(t, n.has(m, 2*gi, 29*time.Second).Victims)
	require.Equal(t, []string{"calm"}, victims(n.has(m, 2*gi, time.Second)), "it had 20 s, and half as much again")
	require.Contains(t, n.take(), "overdue hog")
	n.waitCalls(1)
	n.end("calm", nil)
	m.Wait()
}
