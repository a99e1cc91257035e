//go:build linux && cgroup2

package stats_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/eviction"
)

const (
	mount = "/sys/fs/cgroup"
	mebi  = int64(1 << 20)
)

// lab requires a guest with cgroup v2 whose memory may be exhausted.
func lab(t *testing.T) {
	t.Helper()
	require.Equal(t, "1", os.Getenv("CGROUP2_LAB"), "these tests exhaust the machine's memory: use make test-cgroup2")
}

// cgroup creates a cgroup with settings of the form "file=value". It returns a
// function that removes the cgroup. The cgroup is also removed when the test ends.
func cgroup(t *testing.T, path string, settings ...string) (remove func()) {
	t.Helper()
	dir := filepath.Join(mount, path)
	require.NoError(t, os.Mkdir(dir, 0o755))
	remove = func() {
		await(t, "the removal of "+dir, func() bool {
			err := os.Remove(dir)
			return err == nil || os.IsNotExist(err)
		})
	}
	t.Cleanup(remove)
	for _, s := range settings {
		file, value, _ := strings.Cut(s, "=")
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(value), 0))
	}
	return remove
}

// await calls the function is every 20 ms until it returns true. The test fails after 20 s.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if is() {
			return
		}
		<-tick.C
	}
	require.Fail(t, "condition not reached in time: "+what)
}

// run starts a program of busybox in a cgroup. It returns a function that kills the
// program.
func run(t *testing.T, path string, args ...string) (stop func()) {
	t.Helper()
	dir, err := os.Open(filepath.Join(mount, path))
	require.NoError(t, err)
	defer dir.Close()
	cmd := exec.CommandContext(context.Background(), "/bin/busybox", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Setpgid: true}
	require.NoError(t, cmd.Start())
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
		}
	}
	t.Cleanup(stop)
	return stop
}

func readNumber(t *testing.T, path string) int64 {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	n, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
	require.NoError(t, err)
	return n
}

// labConfig returns the configuration for the guest, whose pods are below /kubepods.
func labConfig() stats.Config {
	return stats.Config{NodePath: "/", LogPath: "/nonexistent"}
}

func observation(t *testing.T, node eviction.NodeStats, signal eviction.Signal) eviction.Observation {
	t.Helper()
	at := slices.IndexFunc(node.Observations, func(o eviction.Observation) bool { return o.Signal == signal })
	require.GreaterOrEqual(t, at, 0, "no signal %s", signal)
	return node.Observations[at]
}

func TestCgroup2Node_FiguresAreTheKernels(t *testing.T) {
	lab(t)
	cgroup(t, "kubepods", "cgroup.subtree_control=+memory +pids +cpu", "memory.max="+fmt.Sprint(256*mebi), "pids.max=100")
	cgroup(t, "kubepods/pod"+string(guaranteed), "memory.max="+fmt.Sprint(64*mebi))
	p := newProvider(t, labConfig())
	before, err := p.Node(t.Context())
	require.NoError(t, err)
	require.Equal(t, eviction.SingleFS, before.Layout)

	requireKernels(t, before)
	allocatable := observation(t, before, eviction.AllocatableMemoryAvailable)
	require.Equal(t, 256*mebi, allocatable.Capacity)
	require.InDelta(t, allocatable.Capacity, allocatable.Available, float64(mebi), "without processes, all memory must be available")
	pids := observation(t, before, eviction.PIDAvailable)
	require.EqualValues(t, 100, pids.Capacity, "the limit must be that of the pods, which is below the node's")

	// The memory of a 40 MiB file on an in-memory filesystem can't be reclaimed.
	require.NoError(t, os.Mkdir("/mnt-fill", 0o755))
	require.NoError(t, syscall.Mount("fill", "/mnt-fill", "tmpfs", 0, ""))
	t.Cleanup(func() { _ = syscall.Unmount("/mnt-fill", syscall.MNT_DETACH) })
	stop := run(t, "kubepods/pod"+string(guaranteed), "dd", "if=/dev/zero", "of=/mnt-fill/file", "bs=1M", "count=40")
	await(t, "the file", func() bool {
		s, err := os.Stat("/mnt-fill/file")
		return err == nil && s.Size() == 40*mebi
	})
	stop()
	run(t, "kubepods/pod"+string(guaranteed), "sleep", "1000")
	after, err := p.Node(t.Context())
	require.NoError(t, err)
	requireKernels(t, after)
	used := allocatable.Available - observation(t, after, eviction.AllocatableMemoryAvailable).Available
	require.InDelta(t, 40*mebi, used, float64(4*mebi))

	pods, err := p.Pods(t.Context(), []*corev1.Pod{pod("static", guaranteed)})
	require.NoError(t, err)
	current := readNumber(t, mount+"/kubepods/pod"+string(guaranteed)+"/memory.current")
	require.InDelta(t, current, pods[0].Memory.Value, float64(2*mebi))
	require.EqualValues(t, 1, pods[0].Processes.Value)
	after, err = p.Node(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 99, observation(t, after, eviction.PIDAvailable).Available)
}

// requireKernels compares the available memory of the node with the kernel's current
// figures.
func requireKernels(t *testing.T, node eviction.NodeStats) {
	t.Helper()
	require.InDelta(t, kernels(t)(), observation(t, node, eviction.MemoryAvailable).Available, float64(8*mebi))
}

// kernels returns a function that returns the available memory in bytes: the
// kernel's MemAvailable plus the free pages on the per-CPU lists.
func kernels(t *testing.T) (available func() int64) {
	t.Helper()
	meminfo, zoneinfo := opened(t, "/proc/meminfo"), opened(t, "/proc/zoneinfo")
	return func() int64 {
		return sumOf(t, meminfo(), "MemAvailable:")<<10 + sumOf(t, zoneinfo(), "count:")*int64(os.Getpagesize())
	}
}

// sumOf adds the numbers of all lines that start with word.
func sumOf(t *testing.T, text, word string) (sum int64) {
	t.Helper()
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == word {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			require.NoError(t, err)
			sum += n
		}
	}
	return sum
}

func TestCgroup2Estimators_DifferAsDocumented(t *testing.T) {
	lab(t)
	available := map[stats.Estimator]int64{}
	measure := func() {
		for _, e := range []stats.Estimator{stats.MemAvailable, stats.WorkingSet, stats.KubeletWorkingSet} {
			cfg := labConfig()
			cfg.Estimator = e
			node, err := newProvider(t, cfg).Node(t.Context())
			require.NoError(t, err)
			available[e] = observation(t, node, eviction.MemoryAvailable).Available
		}
	}
	measure()
	t.Logf("available: %v", available)
	require.Less(t, available[stats.WorkingSet], available[stats.KubeletWorkingSet], "watermarks")
	before := available[stats.KubeletWorkingSet]
	setHugePages(t, 20)
	pages := readNumber(t, "/proc/sys/vm/nr_hugepages")
	require.Positive(t, pages)
	work := available[stats.WorkingSet]
	measure()
	t.Logf("with %d huge pages: %v", pages, available)
	require.InDelta(t, before, available[stats.KubeletWorkingSet], float64(8*mebi), "huge pages must not change the kubelet's working set")
	require.InDelta(t, work-pages*2*mebi, available[stats.WorkingSet], float64(8*mebi))
	node, err := newProvider(t, labConfig()).Node(t.Context())
	require.NoError(t, err)
	requireKernels(t, node)
}

func setHugePages(t *testing.T, n int) {
	t.Helper()
	const file = "/proc/sys/vm/nr_hugepages"
	require.NoError(t, os.WriteFile(file, []byte(strconv.Itoa(n)), 0))
	t.Cleanup(func() { require.NoError(t, os.WriteFile(file, []byte("0"), 0)) })
}

func TestCgroup2Watch_PressureWakes(t *testing.T) {
	lab(t)
	cgroup(t, "kubepods", "cgroup.subtree_control=+memory")
	cgroup(t, "kubepods/pod"+string(guaranteed), "memory.high="+fmt.Sprint(16*mebi), "memory.max="+fmt.Sprint(64*mebi))
	cfg := labConfig()
	cfg.Stall, cfg.StallWindow = 50*time.Millisecond, 500*time.Millisecond
	w := startWatch(t, cfg)
	sources := <-w.sources
	t.Logf("sources: %v", sources)
	require.Contains(t, sources, "/proc/pressure/memory")
	require.Contains(t, sources, mount+"/kubepods/memory.pressure")
	require.Contains(t, sources, mount+"/kubepods/memory.events.local")
	select {
	case reason := <-w.reasons:
		require.Fail(t, "wake-up without pressure", reason)
	case <-time.After(2 * time.Second):
	}
	began := time.Now()
	stop := run(t, "kubepods/pod"+string(guaranteed), "tail", "-n", "1", "/dev/zero") // throttled at memory.high
	reason := w.next(30 * time.Second)
	t.Logf("wake-up with reason %q %v after the hog started", reason, time.Since(began).Round(time.Millisecond))
	require.Contains(t, []string{"the node waits for memory", "a pod waits for memory"}, reason)
	stop()
	w.stop()
}

func TestCgroup2Watch_EventsWakeAtTheCommonLimit(t *testing.T) {
	lab(t)
	cgroup(t, "kubepods", "cgroup.subtree_control=+memory", "memory.max="+fmt.Sprint(32*mebi))
	cgroup(t, "kubepods/pod"+string(guaranteed))
	cgroup(t, "kubepods/pod"+string(burstable), "memory.max="+fmt.Sprint(8*mebi))
	cfg := labConfig()
	cfg.Stall, cfg.StallWindow = 10*time.Second, 10*time.Second // disables the wake-up by pressure
	w := startWatch(t, cfg)
	<-w.sources

	kills := func(path string) bool {
		b, err := os.ReadFile(filepath.Join(mount, path, "memory.events.local"))
		require.NoError(t, err)
		return !strings.Contains(string(b), "oom_kill 0")
	}
	run(t, "kubepods/pod"+string(burstable), "tail", "-n", "1", "/dev/zero")
	await(t, "an OOM kill of a container over its own limit", func() bool { return kills("kubepods/pod" + string(burstable)) })
	select {
	case reason := <-w.reasons:
		require.Fail(t, "wake-up at a container's own limit", reason)
	case <-time.After(time.Second):
	}
	run(t, "kubepods/pod"+string(guaranteed), "tail", "-n", "1", "/dev/zero")
	require.Equal(t, "the pods reach their common memory limit", w.next(30*time.Second))
	w.stop()
}

// TestCgroup2Watch_RemovedCgroupDoesNotWake removes the watched cgroup. For its trigger,
// poll then returns POLLERR|POLLPRI forever.
func TestCgroup2Watch_RemovedCgroupDoesNotWake(t *testing.T) {
	lab(t)
	remove := cgroup(t, "kubepods")
	w := startWatch(t, labConfig())
	require.Len(t, <-w.sources, 3)
	remove()
	err := <-w.ended
	require.ErrorContains(t, err, "was removed")
	require.Empty(t, w.reasons, "wake-ups without pressure")

	// The caller calls Watch again. Watch then watches the node at once, and the pods' cgroup
	// when it exists again.
	again := startWatch(t, labConfig())
	require.Equal(t, []string{"/proc/pressure/memory"}, <-again.sources)
	cgroup(t, "kubepods")
	select {
	case sources := <-again.sources:
		require.Len(t, sources, 3)
	case <-time.After(stats.Rearm + 20*time.Second):
		require.Fail(t, "the new cgroup is not watched")
	}
	again.stop()
}

func TestCgroup2PressureTrigger_ReportsRefusedWindows(t *testing.T) {
	lab(t)
	for _, c := range []struct {
		stall, window time.Duration
		ok            bool
	}{
		{150 * time.Millisecond, time.Second, true},
		{50 * time.Millisecond, 500 * time.Millisecond, true},
		{time.Second, 10 * time.Second, true},
		{time.Millisecond, 30 * time.Second, false},
		{time.Millisecond, 300 * time.Millisecond, false},
		{2 * time.Second, time.Second, false},
		{0, time.Second, false},
	} {
		err := stats.OpenTrigger("/proc/pressure/memory", c.stall, c.window)
		if c.ok {
			require.NoError(t, err, "%v in %v", c.stall, c.window)
			continue
		}
		require.ErrorContains(t, err, fmt.Sprintf("the kernel refuses a trigger for %v in %v", c.stall, c.window))
		require.ErrorContains(t, err, "windows must be between 500ms and 10s")
	}
	require.ErrorIs(t, stats.OpenTrigger("/proc/pressure/nothing", time.Second, time.Second), os.ErrNotExist)
}

func TestCgroup2Summary_HasFiguresOfARealNode(t *testing.T) {
	lab(t)
	cgroup(t, "kubepods", "cgroup.subtree_control=+memory +pids +cpu")
	cgroup(t, "kubepods/pod"+string(guaranteed))
	p := newProvider(t, labConfig())
	_, err := p.Summary(t.Context(), []*corev1.Pod{pod("static", guaranteed)})
	require.NoError(t, err)
	run(t, "kubepods/pod"+string(guaranteed), "sh", "-c", "while :; do :; done")
	<-time.After(3 * time.Second)
	s, err := p.Summary(t.Context(), []*corev1.Pod{pod("static", guaranteed)})
	require.NoError(t, err)
	require.Len(t, s.Pods, 1)
	cores := float64(*s.Pods[0].CPU.UsageNanoCores) / 1e9
	t.Logf("a busy loop uses %.2f CPUs", cores)
	require.InDelta(t, 0.9, cores, 0.5)
	require.Positive(t, *s.Node.CPU.UsageNanoCores) // the node's CPU time is counted in ticks, and an emulator loses many ticks
	require.NotNil(t, s.Node.Memory.PSI)
	require.NotNil(t, s.Pods[0].Memory.PSI)
	require.NotNil(t, s.Node.Fs.CapacityBytes)
	require.Positive(t, *s.Node.Memory.WorkingSetBytes)
}
