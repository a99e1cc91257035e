package stats_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/eviction"
)

// A watched is one call of Watch.
type watched struct {
	*testing.T
	sources chan []string
	reasons chan string
	ended   chan error
	cancel  context.CancelFunc
}

func startWatch(t *testing.T, cfg stats.Config, levels ...eviction.Level) *watched {
	t.Helper()
	return startWatchEvery(t, stats.Rearm, cfg, func() []eviction.Level { return levels })
}

// startWatchEvery starts a Watch that looks for new sources after each period without an
// event.
func startWatchEvery(t *testing.T, every time.Duration, cfg stats.Config, levels func() []eviction.Level) *watched {
	t.Helper()
	w := &watched{T: t, sources: make(chan []string, 10), reasons: make(chan string, 10_000), ended: make(chan error, 1)}
	cfg.Observer.Watching = func(sources []string) { w.sources <- sources }
	p := newProvider(t, cfg)
	p.SetRearm(every)
	ctx, cancel := context.WithCancel(t.Context())
	w.cancel = cancel
	go func() {
		w.ended <- p.Watch(ctx, levels, func(reason string) { w.reasons <- reason })
	}()
	t.Cleanup(cancel)
	return w
}

// next waits for a wake-up.
func (w *watched) next(within time.Duration) string {
	w.Helper()
	select {
	case reason := <-w.reasons:
		return reason
	case err := <-w.ended:
		require.Fail(w, "Watch has returned", "%v", err)
	case <-time.After(within):
		require.Fail(w, "no wake-up")
	}
	return ""
}

// stop stops the watch. The test fails if Watch has already returned.
func (w *watched) stop() {
	w.Helper()
	w.cancel()
	require.NoError(w, <-w.ended)
}

// These tests watch files on a disk instead of kernel files. Such files can be armed, and
// inotify reports their changes too. cgroup2_test.go tests the kernel's own files.

func TestWatch_NothingToWatch(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v1-cgroupfs")
	require.NoError(t, os.RemoveAll(filepath.Join(cfg.ProcRoot, "pressure")))
	err := <-startWatch(t, cfg).ended
	require.ErrorContains(t, err, "watch: no source of pressure can be watched")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestWatch_ArmsAndStops(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-cgroupfs")
	pods := filepath.Join(cfg.CgroupRoot, "kubepods")
	write(t, "max 0\n", pods, "memory.events.local")
	w := startWatch(t, cfg)
	require.Equal(t, []string{
		filepath.Join(cfg.ProcRoot, "pressure", "memory"), filepath.Join(pods, "memory.pressure"),
		filepath.Join(pods, "memory.events.local"),
	}, <-w.sources)
	armed, err := os.ReadFile(filepath.Join(pods, "memory.pressure"))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(armed), "some 150000 1000000\x00"), "%q", armed)

	write(t, "max 1\n", pods, "memory.events.local")
	require.Equal(t, "the pods reach their common memory limit", w.next(10*time.Second))
	w.stop()
}

func TestWatch_EventsOfOlderKernels(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-systemd")
	write(t, "max 0\n", cfg.CgroupRoot, "kubepods.slice", "memory.events")
	w := startWatch(t, cfg)
	require.Contains(t, <-w.sources, filepath.Join(cfg.CgroupRoot, "kubepods.slice", "memory.events"))
	w.stop()
}

func TestWatch_EndsWithItsCgroup(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-cgroupfs")
	pods := filepath.Join(cfg.CgroupRoot, "kubepods")
	write(t, "max 0\n", pods, "memory.events.local")
	w := startWatch(t, cfg)
	<-w.sources
	require.NoError(t, os.RemoveAll(pods))
	err := <-w.ended
	require.ErrorContains(t, err, "was removed")
	require.Empty(t, w.reasons, "a write without pressure must not wake")
}

func TestWatch_ArmsUsageOnVersion1(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v1-cgroupfs")
	memory := filepath.Join(cfg.CgroupRoot, "memory")
	write(t, "", memory, "cgroup.event_control")
	write(t, "", memory, "kubepods", "cgroup.event_control")
	levels := []eviction.Level{
		{Signal: eviction.MemoryAvailable, Available: 100 << 20},
		{Signal: eviction.AllocatableMemoryAvailable, Available: 1 << 20},
	}
	w := startWatch(t, cfg, levels...)
	require.Len(t, <-w.sources, 1, "sources that are not configured must not be watched")
	w.stop()

	cfg.UsageEvents = true
	w = startWatch(t, cfg, levels...)
	require.Equal(t, []string{
		filepath.Join(cfg.ProcRoot, "pressure", "memory"), filepath.Join(memory, "memory.usage_in_bytes"),
		filepath.Join(memory, "kubepods", "memory.usage_in_bytes"),
	}, <-w.sources)
	level := func(path ...string) int64 {
		b, err := os.ReadFile(filepath.Join(append([]string{memory}, append(path, "cgroup.event_control")...)...))
		require.NoError(t, err)
		fields := strings.Fields(string(b))
		require.Len(t, fields, 3)
		n, err := strconv.ParseInt(fields[2], 10, 64)
		require.NoError(t, err)
		return n
	}
	const mebi = 1 << 20
	require.EqualValues(t, 10002*mebi+6000*mebi+keptByProcessors-100*mebi, level(), "level: used + available - threshold")
	require.EqualValues(t, 8000*mebi-1*mebi+400*mebi, level("kubepods"), "level: limit - threshold + reclaimable memory")
	w.stop()
}

// armed returns the level that Watch has written to cgroup.event_control.
func armed(t *testing.T, dir string) (level int64) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.event_control"))
	require.NoError(t, err)
	fields := strings.Fields(string(b))
	if len(fields) != 3 { // Watch has written only a part of the file
		return 0
	}
	level, err = strconv.ParseInt(fields[2], 10, 64)
	require.NoError(t, err)
	return level
}

// descriptors returns the number of open files of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

// The level changes with the threshold and with the reclaimable memory. Watch then sets the new
// level, and closes the eventfd of the previous level. The test is not parallel, because it counts
// the open files of the process.
func TestWatch_ResetsUsageLevels(t *testing.T) {
	const mebi = 1 << 20
	cfg := live(t, "v1-cgroupfs")
	cfg.UsageEvents = true
	require.NoError(t, os.RemoveAll(filepath.Join(cfg.ProcRoot, "pressure")))
	memory := filepath.Join(cfg.CgroupRoot, "memory")
	pods := filepath.Join(memory, "kubepods")
	write(t, "", pods, "cgroup.event_control")
	var threshold atomic.Int64
	threshold.Store(1 * mebi)
	rounds := make(chan struct{}, 1)
	w := startWatchEvery(t, 2*time.Millisecond, cfg, func() []eviction.Level {
		select {
		case rounds <- struct{}{}:
		default:
		}
		return []eviction.Level{{Signal: eviction.AllocatableMemoryAvailable, Available: threshold.Load()}}
	})
	require.Len(t, <-w.sources, 1)
	becomes := func(want int64) {
		var level int64
		for range 200 {
			if level = armed(t, pods); level == want {
				return
			}
			<-rounds
		}
		require.Equal(t, want, level)
	}
	becomes(8000*mebi - 1*mebi + 400*mebi)
	threshold.Store(100 * mebi)
	becomes(8000*mebi - 100*mebi + 400*mebi)
	open := descriptors(t)
	for range 200 {
		<-rounds
	}
	require.Less(t, descriptors(t), open+10)

	// A source that becomes available later is watched and reported.
	write(t, "", cfg.ProcRoot, "pressure", "memory")
	require.Len(t, <-w.sources, 2)

	// The signal is already below the threshold, which polling detects.
	threshold.Store(1 << 50)
	require.Len(t, <-w.sources, 1)
	require.Empty(t, w.reasons)
	w.stop()
}
