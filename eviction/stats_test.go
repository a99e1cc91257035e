package eviction_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/eviction"
)

// With a hanging runtime, stats are not updated.
func TestPodStats_CountUntilTheyAreTooOld(t *testing.T) {
	t.Parallel()
	for age, known := range map[time.Duration]bool{time.Minute: true, time.Minute + 1: false} {
		n := newNode(t)
		n.podsAt = epoch()
		n.saw(eviction.MemoryAvailable, 0, 10*gi)
		n.add(newPod("hog"), memoryStats(newPod("hog"), gi))
		cfg := n.config(hard(eviction.MemoryAvailable, gi))
		cfg.Mode = eviction.DryRun
		d := n.step(newManager(t, cfg), age)
		require.Equal(t, known, d.Candidates[0].Usage.Known(), age)
		require.Equal(t, !known, d.Candidates[0].Missing, age)
		require.Equal(t, memoryStats(newPod("hog"), gi), n.stats[0], "the input must not be modified")
	}
	for age, known := range map[time.Duration]bool{time.Hour: true, time.Hour + 1: false} {
		n := newNode(t)
		n.podsAt = epoch()
		n.saw(eviction.NodeFSAvailable, 5*gi, 10*gi)
		full := newPod("full", emptyDir("data", "1Gi", ""))
		n.add(full, diskStats(full, 0, 0, 2*gi))
		cfg := n.config(hard(eviction.NodeFSAvailable, gi))
		cfg.Mode = eviction.DryRun
		require.Equal(t, known, len(n.step(newManager(t, cfg), age).Limits) == 1, age)
	}
}
