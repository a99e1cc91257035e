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

// TestCgroup2Latency_FromCrossingToKillIsBounded runs a process that allocates memory until the
// available memory falls below a threshold, twenty times with polling and twenty times with
// wake-ups. The times are those of an emulated machine.
func TestCgroup2Latency_FromCrossingToKillIsBounded(t *testing.T) {
	lab(t)
	for _, w := range []way{polling, wakeUps} {
		t.Run(string(w), func(t *testing.T) {
			settings := []string{"cgroup.subtree_control=+memory +pids"}
			cross := nodeCrossing
			if w == wakeUps { // for wake-ups, the kernel reports only the limits of the pods
				cross = podsCrossing
				settings = append(settings, fmt.Sprintf("memory.max=%d", 400*mebi), fmt.Sprintf("memory.high=%d", 80*mebi))
			}
			cgroup(t, "kubepods", settings...)
			const figure = 100 * time.Millisecond
			requireQuick(t, crossTwentyTimes(t, figure, func() crossing { return cross(t, w) }), figure)
		})
	}
}

// nodeCrossing measures the crossing of a threshold of the node's memory. At this threshold,
// the kernel does not reclaim memory yet.
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

// podsCrossing measures the crossing of the threshold of all pods, which is equal to
// memory.high of their cgroup.
func podsCrossing(t *testing.T, w way) crossing {
	t.Helper()
	cfg, pods, hog, remove := hogPod(t)
	defer remove()
	cfg.Stall, cfg.StallWindow = 10*time.Second, 10*time.Second // disables the wake-up by pressure
	current := opened(t, filepath.Join(mount, "kubepods/memory.current"))
	return slope{cfg, pods, hard(eviction.AllocatableMemoryAvailable, 320*mebi), hog, func() bool {
		n, err := strconv.ParseInt(strings.TrimSpace(current()), 10, 64)
		require.NoError(t, err)
		return n > 80*mebi
	}}.cross(t, w)
}

// hogPod creates the cgroup of a pod. It returns the pod, and a function that starts a
// process in the cgroup whose memory usage grows.
func hogPod(t *testing.T) (cfg stats.Config, pods []*corev1.Pod, hog func() (end func()), remove func()) {
	t.Helper()
	remove = cgroup(t, "kubepods/pod"+string(burstable), "memory.max="+fmt.Sprint(500*mebi))
	return labConfig(), []*corev1.Pod{pod("hog", burstable)}, func() func() { return run(t, "kubepods/pod"+string(burstable), "tail", "-n", "1", "/dev/zero") }, remove
}

// opened opens a file. It returns a function that reads the file's current first line.
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
