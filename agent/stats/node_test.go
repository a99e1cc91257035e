package stats_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/eviction"
)

// live returns a configuration for a copy of a tree, which the test may change. It has folders
// for the agent and for logs.
func live(tb testing.TB, root string) stats.Config {
	tb.Helper()
	cfg := tree(tb, root)
	dir := tb.TempDir()
	for from, to := range map[*string]string{&cfg.ProcRoot: "proc", &cfg.CgroupRoot: "cgroup"} {
		at := filepath.Join(dir, to)
		require.NoError(tb, os.CopyFS(at, os.DirFS(*from)))
		*from = at
	}
	cfg.NodePath, cfg.LogPath = filepath.Join(dir, "kubelet"), filepath.Join(dir, "logs")
	require.NoError(tb, os.Mkdir(cfg.NodePath, 0o755))
	require.NoError(tb, os.Mkdir(cfg.LogPath, 0o755))
	return cfg
}

func write(tb testing.TB, text string, path ...string) {
	tb.Helper()
	at := filepath.Join(path...)
	require.NoError(tb, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(tb, os.WriteFile(at, []byte(text), 0o644))
}

func signals(node eviction.NodeStats) (all []eviction.Signal) {
	for _, o := range node.Observations {
		all = append(all, o.Signal)
	}
	return all
}

func available(tb testing.TB, node eviction.NodeStats, signal eviction.Signal) int64 {
	tb.Helper()
	for _, o := range node.Observations {
		if o.Signal == signal {
			return o.Available
		}
	}
	require.Fail(tb, "no signal", signal)
	return 0
}

// images is an image service that returns the locations of images and writable layers.
type images struct {
	image, container string
	err              error
}

func (i *images) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	usage := func(path string, used uint64) []*runtimeapi.FilesystemUsage {
		if path == "" {
			return []*runtimeapi.FilesystemUsage{nil, {}}
		}
		return []*runtimeapi.FilesystemUsage{{
			FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: path}, UsedBytes: &runtimeapi.UInt64Value{Value: used},
		}}
	}
	return &runtimeapi.ImageFsInfoResponse{
		ImageFilesystems: usage(i.image, 1000), ContainerFilesystems: usage(i.container, 2000),
	}, i.err
}

func TestConfig_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := stats.New(stats.Config{
		Estimator: "guess", ProcRoot: "proc", Period: -1, WalkPeriod: -1, WalkEntries: -1,
		StallWindow: time.Minute, Stall: time.Hour, Images: &images{}, ImagePath: "/x",
	})
	for _, problem := range []string{
		`field Estimator: "guess" is not one of MemAvailable, WorkingSet, KubeletWorkingSet`,
		`field ProcRoot: "proc" is not absolute`, "field Period: -1ns is negative", "field WalkPeriod: -1ns is negative", "field WalkEntries: -1 is negative",
		"field StallWindow: must be between 500ms and 10s, is 1m0s", "field Stall: 1h0m0s must be at least 1µs and at most StallWindow (1m0s)",
		"fields ImagePath and ContainerPath have no effect if Images is set",
	} {
		require.ErrorContains(t, err, problem)
	}
	require.NoError(t, stats.Config{}.Validate(), "all fields must be optional")
}

func TestNode_ReturnsAvailableSignalsWithAnError(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-systemd")
	require.NoError(t, os.Remove(filepath.Join(cfg.ProcRoot, "loadavg")))
	write(t, "MemTotal: 100 kB\nMemAvailable: 18446744073709551615 kB\n", cfg.ProcRoot, "meminfo")
	node, err := newProvider(t, cfg).Node(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "could not compute the available memory (estimator MemAvailable) from "+filepath.Join(cfg.ProcRoot, "meminfo"))
	require.NotContains(t, signals(node), eviction.MemoryAvailable, "an unreadable value must be omitted")
	require.Contains(t, signals(node), eviction.AllocatableMemoryAvailable)
	require.EqualValues(t, 19600, available(t, node, eviction.PIDAvailable), "the pods' limit is known, and must be used")
	if runtime.GOOS == "linux" {
		require.Contains(t, signals(node), eviction.NodeFSAvailable)
		require.Equal(t, eviction.SingleFS, node.Layout)
	}
}

// keptByProcessors is the size of the per-CPU lists in testdata/proc/zoneinfo, in bytes.
const keptByProcessors = (23 + 40000 + 10000) * 4096

// The cgroup of all pods is created with the first pod, and its limit is set later. Node
// detects both without a refresh.
func TestNode_FindsPodsCgroupCreatedLater(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-cgroupfs")
	made := filepath.Join(cfg.CgroupRoot, "kubepods")
	require.NoError(t, os.Rename(made, made+"-later"))
	cfg.Images = &images{image: cfg.NodePath, container: cfg.NodePath}
	p := newProvider(t, cfg)
	_, err := p.Refresh(t.Context())
	require.NoError(t, err)
	node, err := p.Node(t.Context())
	require.NoError(t, err)
	require.NotContains(t, signals(node), eviction.AllocatableMemoryAvailable)

	require.NoError(t, os.Rename(made+"-later", made))
	write(t, "max\n", made, "memory.max")
	node, err = p.Node(t.Context())
	require.NoError(t, err)
	require.NotContains(t, signals(node), eviction.AllocatableMemoryAvailable)
	pods, err := p.Pods(t.Context(), treePods())
	require.NoError(t, err)
	require.True(t, pods[0].Memory.Known())

	write(t, "9999999999\n", made, "memory.max")
	node, err = p.Node(t.Context())
	require.NoError(t, err)
	require.Contains(t, signals(node), eviction.AllocatableMemoryAvailable)
	require.Contains(t, signals(node), eviction.ImageFSAvailable, "signals found by a refresh must be kept")
}

// Pods also detects the cgroup without a call of Node.
func TestPods_FindsPodsCgroupCreatedLater(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"v1-cgroupfs", "v2-cgroupfs"} {
		cfg := live(t, root)
		parent := filepath.Join(cfg.CgroupRoot, "memory")
		if root == "v2-cgroupfs" {
			parent = cfg.CgroupRoot
		}
		cfg.PodsCgroup = "/new/kubepods"
		p := newProvider(t, cfg)
		_, err := p.Refresh(t.Context())
		require.NoError(t, err)
		pods, err := p.Pods(t.Context(), treePods())
		require.NoError(t, err)
		require.False(t, pods[0].Memory.Known(), root)

		require.NoError(t, os.Mkdir(filepath.Join(parent, "new"), 0o755))
		require.NoError(t, os.Rename(filepath.Join(parent, "kubepods"), filepath.Join(parent, "new", "kubepods")))
		pods, err = p.Pods(t.Context(), treePods())
		require.NoError(t, err)
		require.True(t, pods[0].Memory.Known(), root)
	}
}

func TestNode_FollowsTheFiles(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-cgroupfs")
	p := newProvider(t, cfg)
	node, _ := p.Node(t.Context())
	require.EqualValues(t, 6144000<<10+keptByProcessors, available(t, node, eviction.MemoryAvailable))
	write(t, "MemTotal: 16384000 kB\nMemAvailable: 7 kB\n", cfg.ProcRoot, "meminfo")
	node, _ = p.Node(t.Context())
	require.EqualValues(t, 7<<10+keptByProcessors, available(t, node, eviction.MemoryAvailable))
	require.NoError(t, os.Remove(filepath.Join(cfg.ProcRoot, "zoneinfo")))
	require.NoError(t, p.Close(), "close the files of removed cgroups, so that they are opened again")
	node, _ = p.Node(t.Context())
	require.EqualValues(t, 7<<10, available(t, node, eviction.MemoryAvailable))

	// A refresh reads the limit of all pods.
	write(t, "max\n", cfg.CgroupRoot, "kubepods", "memory.max")
	_, _ = p.Refresh(t.Context())
	node, _ = p.Node(t.Context())
	require.NotContains(t, signals(node), eviction.AllocatableMemoryAvailable, "without a limit, the signal must be omitted")

	// Closed files are opened again.
	require.NoError(t, p.Close())
	node, _ = p.Node(t.Context())
	require.EqualValues(t, 7<<10, available(t, node, eviction.MemoryAvailable))
}

func TestNode_WorkingSetAboveTheLimit(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-cgroupfs")
	write(t, "4096\n", cfg.CgroupRoot, "kubepods", "memory.max")
	node, _ := newProvider(t, cfg).Node(t.Context())
	require.Zero(t, available(t, node, eviction.AllocatableMemoryAvailable), "kubernetes#52386")
}

func TestNode_UnlimitedPodPIDsUseTheNodeLimit(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v1-cgroupfs")
	write(t, "max\n", cfg.CgroupRoot, "pids", "kubepods", "pids.max")
	node, _ := newProvider(t, cfg).Node(t.Context())
	require.EqualValues(t, 32768-1234, available(t, node, eviction.PIDAvailable))
	write(t, "2000\n", cfg.ProcRoot, "sys", "kernel", "threads-max")
	node, _ = newProvider(t, cfg).Node(t.Context())
	require.EqualValues(t, 2000-1234, available(t, node, eviction.PIDAvailable), "the smaller of the two limits must be used")
}

func TestPods_EachFigureHasItsTime(t *testing.T) {
	t.Parallel()
	cfg := tree(t, "v2-systemd")
	clock := testingclock.NewFakeClock(epoch())
	cfg.Clock = clock
	p := newProvider(t, cfg)
	clock.Step(time.Minute)
	node, _ := p.Node(t.Context())
	for _, o := range node.Observations {
		require.Equal(t, epoch().Add(time.Minute), o.Time, o.Signal)
	}
	pods, err := p.Pods(t.Context(), treePods())
	require.NoError(t, err)
	require.Equal(t, epoch().Add(time.Minute), pods[0].Memory.Time)
}

func TestRefresh_FailingRuntimeKeepsFilesystemLocations(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // this system has no statfs
	}
	t.Parallel()
	cfg := live(t, "v2-systemd")
	at := &images{}
	cfg.Images = at
	p := newProvider(t, cfg)
	node, err := p.Node(t.Context())
	require.NoError(t, err, "without a refresh, Node must not return the error of the image service")
	require.Equal(t, eviction.UnknownLayout, node.Layout)
	require.Contains(t, signals(node), eviction.NodeFSAvailable)
	require.NotContains(t, signals(node), eviction.ImageFSAvailable)

	_, err = p.Refresh(t.Context())
	require.ErrorContains(t, err, "the runtime reports no image filesystem")

	at.image = cfg.NodePath
	_, err = p.Refresh(t.Context())
	require.NoError(t, err)
	node, err = p.Node(t.Context())
	require.NoError(t, err)
	require.Equal(t, eviction.SingleFS, node.Layout)
	require.Contains(t, signals(node), eviction.ImageFSInodesFree)

	at.err = errors.New("runtime is down")
	_, err = p.Refresh(t.Context())
	require.ErrorContains(t, err, "get image filesystem info: runtime is down")
	node, err = p.Node(t.Context())
	require.ErrorContains(t, err, "runtime is down")
	require.Equal(t, eviction.SingleFS, node.Layout, "the layout must be kept")
	require.Contains(t, signals(node), eviction.ContainerFSAvailable)

	// If a path does not exist, its signals and the layout are unknown.
	at.err, at.image = nil, "/nonexistent/images"
	_, err = p.Refresh(t.Context())
	require.ErrorContains(t, err, "/nonexistent/images")
	node, err = p.Node(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Equal(t, eviction.UnknownLayout, node.Layout)
	require.Contains(t, signals(node), eviction.NodeFSAvailable)
}

func TestNode_DoesNotAllocate(t *testing.T) {
	cfg := live(t, "v2-systemd")
	p := newProvider(t, cfg)
	_, _ = p.Node(t.Context())
	allocs := testing.AllocsPerRun(100, func() {
		_, _ = p.Node(t.Context())
	})
	require.LessOrEqual(t, allocs, 1.0, "one allocation, for the path of the filesystem")
}

func TestRun_RefreshesAndStops(t *testing.T) {
	cfg := live(t, "v1-systemd")
	cfg.Clock = nil
	write(t, "", cfg.LogPath, "other")
	synctest.Test(t, func(t *testing.T) {
		var times []time.Time
		cfg.Observer.Refreshed = func(stats.Refreshed, error) { times = append(times, time.Now()) }
		cfg.Images = &images{err: errors.New("down")} // Run must continue
		p, err := stats.New(cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		began := time.Now()
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		require.ErrorIs(t, p.Run(ctx), stats.ErrRunning)
		require.NoError(t, <-done)
		require.NoError(t, p.Close())
		require.Equal(t, []time.Time{began, began.Add(10 * time.Second), began.Add(20 * time.Second)}, times)
	})
}

func TestRefresh_WaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	cfg := tree(t, "v2-systemd")
	held, release := make(chan struct{}), make(chan struct{})
	cfg.Observer.Refreshed = func(stats.Refreshed, error) {
		close(held)
		<-release
	}
	p := newProvider(t, cfg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = p.Refresh(t.Context())
	}()
	<-held
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Refresh(ctx)
	require.ErrorIs(t, err, context.Canceled)
	node, _ := p.Node(t.Context())
	require.NotEmpty(t, node.Observations, "Node must not wait for a refresh")
	close(release)
	<-done
}

func TestPods_UIDsThatAreOtherPathsHaveNoCgroup(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-cgroupfs")
	write(t, "1", cfg.CgroupRoot, "memory.current")
	write(t, "secret", cfg.NodePath, "elsewhere", "file")
	p := newProvider(t, cfg)
	_, err := p.Refresh(t.Context())
	require.NoError(t, err)
	pods, err := p.Pods(t.Context(), []*corev1.Pod{pod("a", "../.."), pod("b", ""), pod("../../x", "u"), pod("c", "/etc")})
	require.NoError(t, err)
	require.Len(t, pods, 4)
	for _, measured := range pods {
		require.False(t, measured.Memory.Known(), measured.UID)
		require.Empty(t, measured.Volumes)
		require.False(t, measured.Other.Bytes.Known(), measured.UID)
	}
}

func TestPods_CgroupOfAnotherDriverOrRoot(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-cgroupfs")
	nested := filepath.Join(cfg.CgroupRoot, "kubelet.slice", "kubelet-kubepods.slice")
	name := "kubelet-kubepods-besteffort-pod" + strings.ReplaceAll(string(bestEffort), "-", "_") + ".slice"
	write(t, "8192\n", nested, "kubelet-kubepods-besteffort.slice", name, "memory.current")
	write(t, "inactive_file 4096\n", nested, "kubelet-kubepods-besteffort.slice", name, "memory.stat")
	cfg.PodsCgroup = "/kubelet.slice/kubelet-kubepods.slice"
	pods, err := newProvider(t, cfg).Pods(t.Context(), treePods())
	require.NoError(t, err)
	at := slices.IndexFunc(pods, func(p eviction.PodStats) bool { return p.UID == bestEffort })
	require.EqualValues(t, 4096, pods[at].Memory.Value)
	require.False(t, pods[0].Memory.Known(), "a cgroup in the default location must not be used if another is configured")
}
