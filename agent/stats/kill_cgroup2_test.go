//go:build linux && cgroup2

package stats_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/eviction"
)

// TestCgroup2LatencyFromCrossingToKill has a real hog take memory down to a threshold, twenty
// times in each way to notice it. The times are those of an emulated machine.
func TestCgroup2LatencyFromCrossingToKill(t *testing.T) {
	lab(t)
	for _, w := range []way{polling, wakeUps} {
		t.Run(string(w), func(t *testing.T) {
			settings := []string{"cgroup.subtree_control=+memory +pids"}
			cross := nodeCrossing
			if w == wakeUps { // the kernel tells of the pods' limits alone
				cross = podsCrossing
				settings = append(settings, fmt.Sprintf("memory.max=%d", 400*mebi), fmt.Sprintf("memory.high=%d", 80*mebi))
			}
			cgroup(t, "kubepods", settings...)
			var all []crossing
			for range 20 {
				all = append(all, cross(t, w))
			}
			requireQuick(t, all, 100*time.Millisecond)
		})
	}
}

// nodeCrossing is about the memory of the node, far from where the kernel would mind.
func nodeCrossing(t *testing.T, w way) crossing {
	t.Helper()
	cfg, pods, hog, remove := hogPod(t)
	defer remove()
	node, err := newProvider(t, cfg).Node(t.Context())
	require.NoError(t, err)
	threshold := observation(t, node, eviction.MemoryAvailable).Available - 80*mebi
	available := kernels(t)
	return slope{cfg, pods, hard(eviction.MemoryAvailable, threshold), hog, func() bool { return available() < threshold }}.cross(t, w)
}

// podsCrossing is about the memory of all pods, whose threshold is where their
// memory.high is.
func podsCrossing(t *testing.T, w way) crossing {
	t.Helper()
	cfg, pods, hog, remove := hogPod(t)
	defer remove()
	cfg.Stall, cfg.StallWindow = 10*time.Second, 10*time.Second // pressure says nothing
	current := opened(t, filepath.Join(mount, "kubepods/memory.current"))
	return slope{cfg, pods, hard(eviction.AllocatableMemoryAvailable, 320*mebi), hog, func() bool {
		n, err := strconv.ParseInt(strings.TrimSpace(current()), 10, 64)
		require.NoError(t, err)
		return n > 80*mebi
	}}.cross(t, w)
}

// hogPod makes the cgroup of a pod, and returns the pod and what begins a hog in it.
func hogPod(t *testing.T) (cfg stats.Config, pods []*corev1.Pod, hog func() (end func()), remove func()) {
	t.Helper()
	remove = cgroup(t, "kubepods/pod"+string(burstable), "memory.max="+fmt.Sprint(500*mebi))
	return labConfig(), []*corev1.Pod{pod("hog", burstable)}, func() func() { return run(t, "kubepods/pod"+string(burstable), "tail", "-n", "1", "/dev/zero") }, remove
}

// opened returns what reads the beginning of a file anew each time.
func opened(t *testing.T, path string) func() string {
	t.Helper()
	f, err := os.Open(filepath.Clean(path))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	buf := make([]byte, 64<<10)
	return func() string {
		n, err := f.ReadAt(buf, 0)
		require.Positive(t, n, err)
		return string(buf[:n])
	}
}
