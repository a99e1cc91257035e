//go:build linux && e2e

package stats_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/eviction"
)

// TestE2EPressureTrigger_FallsBackWithoutPrivileges drops CAP_SYS_RESOURCE on a thread that ends with its
// goroutine. It needs Linux 6.4 with pressure stall information.
func TestE2EPressureTrigger_FallsBackWithoutPrivileges(t *testing.T) {
	const file = "/proc/pressure/memory"
	require.FileExists(t, file)
	type result struct {
		given, tried, fallback, widest, long error
	}
	results := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		var r result
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if r.given = unix.Capget(&header, &data[0]); r.given == nil {
			data[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
			r.given = unix.Capset(&header, &data[0])
		}
		r.tried = stats.TryTrigger(file, 150*time.Millisecond, time.Second)
		r.fallback = stats.OpenTrigger(file, 150*time.Millisecond, time.Second)
		r.widest = stats.OpenTrigger(file, 900*time.Millisecond, 9*time.Second)
		r.long = stats.OpenTrigger(file, time.Second, 12*time.Second)
		results <- r
	}()
	r := <-results
	require.NoError(t, r.given)
	require.ErrorIs(t, r.tried, unix.EINVAL)
	require.NoError(t, r.fallback, "fallback with a window of 2 s")
	require.NoError(t, r.widest, "fallback with a window of 10 s")
	require.ErrorContains(t, r.long, "without CAP_SYS_RESOURCE a multiple of 2s")
}

// TestE2ENode_MemoryOfAnEndedProcessIsAvailable checks that the memory of a process of a gibibyte
// is available after the process has ended. Otherwise an eviction would seem to have no
// effect, and the manager would evict another pod. Other processes of the machine may allocate memory
// during the test. Therefore what all processes have allocated since the beginning is subtracted, and up
// to five processes run in turn.
func TestE2ENode_MemoryOfAnEndedProcessIsAvailable(t *testing.T) {
	const mebi = int64(1 << 20)
	p := newProvider(t, stats.Config{NodePath: t.TempDir()})
	memory := func() int64 {
		node, err := p.Node(t.Context())
		require.NoError(t, err)
		return available(t, node, eviction.MemoryAvailable)
	}
	allocated := func() (kibi int64) {
		data, err := os.ReadFile("/proc/meminfo")
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(data), "\nAnonPages:")
		_, err = fmt.Sscan(rest, &kibi)
		require.NoError(t, err)
		return kibi
	}
	before, allocatedBefore := memory(), allocated()
	require.Greater(t, before, 1500*mebi, "this machine has too little memory for the test")
	for range 5 {
		hog := exec.CommandContext(t.Context(), "sh", "-c", "head -c 1G /dev/zero | { tail -n 1 >/dev/null; }")
		require.NoError(t, hog.Run())
		after, others := memory(), max(0, allocated()-allocatedBefore)<<10
		t.Logf("%d MiB were available before, and %d MiB after the process had exited; others allocated %d MiB", before/mebi, after/mebi, others/mebi)
		if after > before-100*mebi-others {
			return
		}
	}
	require.Fail(t, "after each process, less memory was available than before")
}

// TestE2EWatch_UsageEventsWakeOnVersion1 needs cgroup version 1 and root. It creates a cgroup with a
// limit. A process in the cgroup uses so much memory that allocatableMemory.available falls below its
// threshold, but far less than the limit.
func TestE2EWatch_UsageEventsWakeOnVersion1(t *testing.T) {
	const (
		root = "/sys/fs/cgroup"
		mebi = int64(1 << 20)
	)
	require.Zero(t, os.Geteuid(), "this test creates cgroups: run it as root")
	require.FileExists(t, root+"/memory/cgroup.event_control", "this test needs cgroup version 1")
	name := fmt.Sprintf("/kp-stats-%d", os.Getpid())
	dir := filepath.Join(root, "memory", name)
	require.NoError(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.Remove(dir)) })
	require.NoError(t, os.WriteFile(dir+"/memory.limit_in_bytes", []byte(fmt.Sprint(256*mebi)), 0))

	cfg := live(t, "v1-cgroupfs") // provides a /proc without pressure stall information
	require.NoError(t, os.RemoveAll(filepath.Join(cfg.ProcRoot, "pressure")))
	cfg.CgroupRoot, cfg.PodsCgroup, cfg.UsageEvents = root, name, true
	w := startWatch(t, cfg, eviction.Level{Signal: eviction.AllocatableMemoryAvailable, Available: 200 * mebi})
	require.Equal(t, []string{dir + "/memory.usage_in_bytes"}, <-w.sources)
	select {
	case reason := <-w.reasons:
		require.Fail(t, "wake-up without an event", reason)
	case <-time.After(500 * time.Millisecond):
	}

	// The process uses 120 of 256 MiB, so 136 MiB are available, less than the threshold of
	// 200 MiB.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	hog := exec.CommandContext(ctx, "sh", "-c", `echo $$ >"$0/cgroup.procs" && exec head -c 120M /dev/zero | tail -n 1 | { sleep 2; cat; } >/dev/null`, dir)
	began := time.Now()
	require.NoError(t, hog.Start())
	require.Equal(t, "allocatableMemory.available passes its threshold", w.next(20*time.Second))
	t.Logf("wake-up %v after the hog started", time.Since(began).Round(time.Millisecond))
	w.stop()
	require.NoError(t, hog.Wait())
}

// TestE2ELatency_FromCrossingToKillIsBoundedOnVersion1 runs a process in a new cgroup that allocates
// memory until the pods' available memory falls below a threshold, twenty times with polling
// and twenty times with wake-ups. The limit of the cgroup protects the machine.
func TestE2ELatency_FromCrossingToKillIsBoundedOnVersion1(t *testing.T) {
	const (
		memory    = "/sys/fs/cgroup/memory"
		mebi      = int64(1 << 20)
		limit     = 1024 * mebi
		threshold = 768 * mebi
	)
	require.Zero(t, os.Geteuid(), "this test creates cgroups: run it as root")
	pods := fmt.Sprintf("/kp-crossing-%d", os.Getpid())
	dir := filepath.Join(memory, pods, "pod"+string(burstable))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, errors.Join(os.Remove(dir), os.Remove(filepath.Dir(dir)))) })
	usage := filepath.Join(memory, pods, "memory.usage_in_bytes")
	require.NoError(t, os.WriteFile(filepath.Join(memory, pods, "memory.limit_in_bytes"), []byte(fmt.Sprint(limit)), 0))

	cfg := live(t, "v1-cgroupfs") // provides a /proc without pressure stall information
	require.NoError(t, os.RemoveAll(filepath.Join(cfg.ProcRoot, "pressure")))
	cfg.CgroupRoot, cfg.PodsCgroup, cfg.UsageEvents, cfg.Clock = "/sys/fs/cgroup", pods, true, nil
	hog := slope{cfg, []*corev1.Pod{pod("hog", burstable)}, hard(eviction.AllocatableMemoryAvailable, threshold), func() func() { return hogIn(t, dir) }, func() bool {
		b, err := os.ReadFile(usage)
		require.NoError(t, err)
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		require.NoError(t, err)
		return limit-n < threshold
	}}
	for _, w := range []way{polling, wakeUps} {
		t.Run(string(w), func(t *testing.T) {
			const figure = 100 * time.Millisecond
			requireQuick(t, crossTwentyTimes(t, figure, func() crossing { return hog.cross(t, w) }), figure)
		})
	}
}

// hogIn starts a process in a cgroup whose memory usage grows. It returns a function that
// kills the process.
func hogIn(t *testing.T, dir string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	hog := exec.CommandContext(ctx, "sh", "-c", `echo $$ >"$0/cgroup.procs" && exec tail -n 1 /dev/zero`, dir)
	require.NoError(t, hog.Start())
	return func() {
		cancel()
		require.Error(t, hog.Wait(), "the process exited by itself")
	}
}
