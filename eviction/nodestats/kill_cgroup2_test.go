//go:build linux && cgroup2

package nodestats_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/eviction"
)

// killed takes the time of each call.
type killed chan time.Time

func (k killed) Kill(context.Context, *corev1.Pod, eviction.Eviction) error {
	k <- time.Now()
	return nil
}

// TestCgroup2CrossingToKillCall has a real hog take the guest's memory down to a threshold,
// twenty times, with wake-ups and without. The times are those of an emulated machine.
func TestCgroup2CrossingToKillCall(t *testing.T) {
	lab(t)
	cgroup(t, "kubepods", "cgroup.subtree_control=+memory +pids")
	for _, wakes := range []bool{false, true} {
		t.Run(fmt.Sprintf("wake-ups=%v", wakes), func(t *testing.T) {
			var all []time.Duration
			for range 20 {
				all = append(all, crossing(t, wakes))
			}
			slices.Sort(all)
			at := func(percent int) time.Duration { return all[(len(all)-1)*percent/100].Round(100 * time.Microsecond) }
			t.Logf("crossing to kill call, %d runs: min %v, median %v, p90 %v, max %v; all %v", len(all), at(0), at(50), at(90), at(100), all)
			require.Less(t, at(50), 250*time.Millisecond)
			require.Less(t, at(100), 2*time.Second)
		})
	}
}

// crossing returns how long it takes from when the memory is seen below the threshold,
// by a look each millisecond, to the call of the killer.
func crossing(t *testing.T, wakes bool) time.Duration {
	t.Helper()
	hog := pod("hog", burstable)
	remove := cgroup(t, "kubepods/pod"+string(burstable), "memory.max="+fmt.Sprint(500*mebi))
	defer remove()
	p := newProvider(t, labConfig(hog))
	_, err := p.Refresh(t.Context())
	require.NoError(t, err)
	node, err := p.Node(t.Context())
	require.NoError(t, err)
	threshold := observation(t, node, eviction.MemoryAvailable).Available - 150*mebi

	kills := make(killed, 100)
	cfg := eviction.Config{
		Stats: p, Pods: func() []*corev1.Pod { return []*corev1.Pod{hog} }, Killer: kills,
		Policy: eviction.Policy{Thresholds: []eviction.Threshold{{
			Signal: eviction.MemoryAvailable, Value: eviction.Value{Quantity: threshold},
		}}},
	}
	if wakes {
		cfg.Waker = p
	}
	manager, err := eviction.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- manager.Run(ctx) }()

	stop := run(t, "kubepods/pod"+string(burstable), "tail", "-n", "1", "/dev/zero")
	crossed := awaitBelow(t, threshold)
	var called time.Time
	select {
	case called = <-kills:
	case <-time.After(20 * time.Second):
		require.Fail(t, "no kill")
	}
	stop()
	cancel()
	require.NoError(t, <-done)
	return called.Sub(crossed)
}

// awaitBelow returns when less than so much memory was available first.
func awaitBelow(t *testing.T, threshold int64) time.Time {
	t.Helper()
	f, err := os.Open(filepath.Clean("/proc/meminfo"))
	require.NoError(t, err)
	defer f.Close()
	buf := make([]byte, 4096)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 30_000 {
		n, err := f.ReadAt(buf, 0)
		require.Positive(t, n, err)
		var total, free, available int64
		_, err = fmt.Sscanf(string(buf[:n]), "MemTotal: %d kB\nMemFree: %d kB\nMemAvailable: %d kB", &total, &free, &available)
		require.NoError(t, err)
		if available<<10 < threshold {
			return time.Now()
		}
		<-tick.C
	}
	require.Fail(t, "the hog does not grow")
	return time.Time{}
}
