package stats_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/stats"
)

// usageTree writes the cgroups of a node in one version: the root, all pods, a burstable pod
// with a sandbox and two containers, and a container outside of pod cgroups. The numbers in
// the files are multiples of scale, which differs between cgroups.
type usageTree struct {
	tb   testing.TB
	root string
	v2   bool
}

// newUsageTree returns a configuration for a copy of testdata's proc, with a tree of cgroups.
func newUsageTree(tb testing.TB, v2 bool) (stats.Config, usageTree) {
	tb.Helper()
	cfg := live(tb, "v2-cgroupfs") // provides proc
	cfg.CgroupRoot = tb.TempDir()
	write(tb, "processor\t: 0\nphysical id\t: 0\ncore id\t\t: 0\n\nprocessor\t: 1\nphysical id\t: 0\ncore id\t\t: 0\n\n"+
		"processor\t: 2\nphysical id\t: 1\ncore id\t\t: 0\n", cfg.ProcRoot, "cpuinfo")
	write(tb, "cpu 1 2 3\nbtime 1767300000\n", cfg.ProcRoot, "stat")
	write(tb, "   8       0 sda 1 2 3\n   8       1 sda1 1 2 3\n", cfg.ProcRoot, "diskstats")
	for pid, bytes := range map[string]string{"self": "1", "4001": "4"} {
		write(tb, "Inter-|   Receive\n face |bytes    packets\n"+
			"    lo: 9 9 9 9 0 0 0 0 9 9 9 9 0 0 0 0\n  veth12: 9 9 9 9 0 0 0 0 9 9 9 9 0 0 0 0\n"+
			"  eth0: "+bytes+"01 "+bytes+"02 "+bytes+"03 "+bytes+"04 0 0 0 0 "+bytes+"05 "+bytes+"06 "+bytes+"07 "+bytes+"08 0 0 0 0\n",
			cfg.ProcRoot, pid, "net", "dev")
	}
	t := usageTree{tb, cfg.CgroupRoot, v2}
	if v2 {
		write(tb, "cpu memory io pids\n", cfg.CgroupRoot, "cgroup.controllers")
	}
	return cfg, t
}

// file writes a file of a cgroup. controller is only used in version 1.
func (t usageTree) file(controller, cgroup, name, format string, args ...any) {
	t.tb.Helper()
	path := filepath.Join(t.root, cgroup, name)
	if !t.v2 {
		path = filepath.Join(t.root, controller, cgroup, name)
	}
	write(t.tb, fmt.Sprintf(format, args...), path)
}

// add writes all files of a cgroup with these process IDs.
func (t usageTree) add(cgroup string, scale int, pids string) {
	t.tb.Helper()
	n := func(i int) int { return i * scale }
	t.file("cpu", cgroup, "cgroup.procs", "%s", pids)
	if t.v2 {
		t.addV2(cgroup, n)
	} else {
		t.addV1(cgroup, n)
	}
	if cgroup != "/" {
		t.file("pids", cgroup, "pids.current", "%d\n", n(30))
		t.file("pids", cgroup, "pids.max", "max\n")
	}
}

func (t usageTree) addV2(cgroup string, n func(int) int) {
	t.tb.Helper()
	t.file("", cgroup, "cpu.stat", "usage_usec %d\nuser_usec %d\nsystem_usec %d\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d\nnr_bursts %d\nburst_usec %d\n",
		n(30000), n(20000), n(10000), n(4), n(3), n(2000), n(2), n(1000))
	t.file("", cgroup, "memory.stat", "anon %d\nfile %d\nkernel %d\nfile_mapped %d\nactive_file %d\ninactive_file %d\npgfault %d\npgmajfault %d\nother 1\n",
		n(5000), n(4000), n(300), n(200), n(1500), n(1000), n(70), n(7))
	t.file("", cgroup, "io.stat", "8:0 rbytes=%d wbytes=%d rios=%d wios=%d dbytes=0 dios=0\n7:9 rbytes=%d\n", n(40), n(41), n(42), n(43), n(1))
	if cgroup == "/" {
		return
	}
	t.file("", cgroup, "cpu.max", "50000 100000\n")
	t.file("", cgroup, "cpu.weight", "39\n")
	t.file("", cgroup, "memory.current", "%d\n", n(10000))
	t.file("", cgroup, "memory.peak", "%d\n", n(11000))
	t.file("", cgroup, "memory.swap.current", "%d\n", n(600))
	t.file("", cgroup, "memory.events", "low 0\nhigh 0\nmax %d\noom 0\n", n(8))
	t.file("", cgroup, "memory.max", "%d\n", n(20000))
	t.file("", cgroup, "memory.swap.max", "max\n")
	t.file("", cgroup, "memory.min", "%d\n", n(500))
	for i, resource := range []string{"cpu", "memory", "io"} {
		t.file("", cgroup, resource+".pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n", n(90+i), n(80+i))
	}
}

func (t usageTree) addV1(cgroup string, n func(int) int) {
	t.tb.Helper()
	t.file("cpuacct", cgroup, "cpuacct.usage", "%d\n", n(30_000_000))
	t.file("cpuacct", cgroup, "cpuacct.stat", "user %d\nsystem %d\n", n(2), n(1))
	t.file("cpu", cgroup, "cpu.stat", "nr_periods %d\nnr_throttled %d\nthrottled_time %d\nnr_bursts %d\nburst_time %d\n", n(4), n(3), n(2_000_000), n(2), n(1_000_000))
	t.file("cpu", cgroup, "cpu.cfs_quota_us", "50000\n")
	t.file("cpu", cgroup, "cpu.cfs_period_us", "100000\n")
	t.file("cpu", cgroup, "cpu.shares", "998\n")
	t.file("memory", cgroup, "memory.stat", "cache 1\nrss 1\npgfault %d\npgmajfault %d\ntotal_cache %d\ntotal_rss %d\ntotal_mapped_file %d\ntotal_swap %d\n"+
		"total_active_file %d\ntotal_inactive_file %d\ntotal_pgfault %d\ntotal_pgmajfault %d\n",
		n(60), n(6), n(4000), n(5000), n(200), n(600), n(1500), n(1000), n(70), n(7))
	for name, v := range map[string]int{
		"usage": 10000, "max_usage": 11000, "kmem.usage": 300, "limit": 20000, "soft_limit": 500,
	} {
		t.file("memory", cgroup, "memory."+name+"_in_bytes", "%d\n", n(v))
	}
	t.file("memory", cgroup, "memory.memsw.limit_in_bytes", "9223372036854771712\n")
	t.file("memory", cgroup, "memory.failcnt", "%d\n", n(8))
	t.file("blkio", cgroup, "blkio.throttle.io_service_bytes_recursive", "Total 0\n")
	t.file("blkio", cgroup, "blkio.throttle.io_serviced_recursive", "Total 0\n")
	t.file("blkio", cgroup, "blkio.bfq.io_service_bytes_recursive", "8:0 Read %d\n8:0 Write %d\n8:0 Total 9\n7:9 Read %d\nTotal 9\n", n(40), n(41), n(1))
	t.file("blkio", cgroup, "blkio.bfq.io_serviced_recursive", "8:0 Read %d\n8:0 Write %d\nTotal 9\n", n(42), n(43))
}

const burstablePath = "/kubepods/burstable/pod" + string(burstable)

// fill writes the cgroups of a node.
func (t usageTree) fill() {
	t.tb.Helper()
	t.add("/", 1000, "1\n2\n3\n")
	t.add("/kubepods", 100, "")
	t.add("/kubepods/burstable", 50, "")
	t.add("/kubepods/besteffort", 40, "")
	t.add("/kubepods/podnobody", 1, "") // a pod of another agent
	t.add(burstablePath, 10, "")
	t.add(burstablePath+"/sandbox1", 1, "4001\n4002\n")
	t.add(burstablePath+"/cri-containerd-app1.scope", 2, "4011\n")
	t.add(burstablePath+"/crio-conmon-app1.scope", 3, "")
	t.add("/k8s.io/lone1", 4, "0\n")
}

// nodeContainers returns the containers of the tree, and a container that has not started.
func nodeContainers() []stats.Container {
	return []stats.Container{
		{ID: "sandbox1", Pod: burstable, IsSandbox: true},
		{ID: "app1", Pod: burstable},
		{ID: "waiting1", Pod: burstable},
		{ID: "lone1", Pod: bestEffort, IsSandbox: true},
		{ID: "../../kubepods", Pod: bestEffort},
		{ID: "", Pod: bestEffort},
	}
}

// showCgroups prints the figures with their names.
func showCgroups(u stats.Usage) string {
	var out strings.Builder
	figures := func(of map[stats.Figure]uint64) string {
		var words []string
		for _, f := range slices.Sorted(maps.Keys(of)) {
			words = append(words, fmt.Sprintf("%s=%d", figureName(f), of[f]))
		}
		return strings.Join(words, " ")
	}
	fmt.Fprintf(&out, "machine: %s\n", figures(u.Machine))
	for _, g := range u.Cgroups {
		fmt.Fprintf(&out, "%s pod=%s container=%s\n  %s\n", g.Path, g.Pod, g.ContainerID, figures(g.Figures))
		for _, d := range g.Devices {
			fmt.Fprintf(&out, "  %+v\n", d)
		}
		for _, i := range g.Interfaces {
			fmt.Fprintf(&out, "  %+v\n", i)
		}
	}
	return out.String()
}

// figureName returns a short name of a figure.
func figureName(f stats.Figure) string {
	names := map[stats.Figure]string{
		stats.CPUUsage: "cpu", stats.CPUUser: "user", stats.CPUSystem: "system", stats.CPUPeriods: "periods",
		stats.CPUThrottledPeriods: "throttledPeriods", stats.CPUThrottledTime: "throttled", stats.CPUBursts: "bursts", stats.CPUBurstTime: "burst",
		stats.CPUQuota: "quota", stats.CPUPeriod: "period", stats.CPUShares: "shares",
		stats.MemoryUsage: "memory", stats.MemoryMaxUsage: "maxMemory", stats.MemoryWorkingSet: "workingSet", stats.MemoryRSS: "rss",
		stats.MemoryCache: "cache", stats.MemoryMappedFile: "mapped", stats.MemorySwap: "swap", stats.MemoryKernel: "kernel",
		stats.MemoryActiveFile: "activeFile", stats.MemoryInactiveFile: "inactiveFile", stats.MemoryFailures: "failures",
		stats.MemoryLimit: "limit", stats.MemorySwapLimit: "swapLimit", stats.MemoryReservation: "reservation",
		stats.OwnPageFaults: "ownFaults", stats.OwnMajorPageFaults: "ownMajorFaults", stats.PageFaults: "faults", stats.MajorPageFaults: "majorFaults",
		stats.Processes: "processes", stats.Threads: "threads", stats.ThreadsMax: "maxThreads",
		stats.CPUWaiting: "cpuWaiting", stats.CPUStalled: "cpuStalled", stats.MemoryWaiting: "memoryWaiting", stats.MemoryStalled: "memoryStalled",
		stats.IOWaiting: "ioWaiting", stats.IOStalled: "ioStalled", stats.StartTime: "started",
		stats.Cores: "cores", stats.PhysicalCores: "physicalCores", stats.Sockets: "sockets", stats.MemoryTotal: "total", stats.SwapTotal: "swapTotal",
	}
	return names[f]
}

// TestCgroups_Golden reads the same node in both cgroup versions.
func TestCgroups_Golden(t *testing.T) {
	datadriven.RunTest(t, "testdata/usage.txt", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		cfg, tree := newUsageTree(t, d.Cmd == "v2")
		tree.fill()
		u, err := newProvider(t, cfg).Cgroups(t.Context(), nodeContainers())
		require.NoError(t, err)
		return showCgroups(u)
	})
}

func TestCgroups_SystemdNames(t *testing.T) {
	cfg, tree := newUsageTree(t, true)
	tree.add("/", 1, "")
	path := "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + strings.ReplaceAll(string(bestEffort), "-", "_") + ".slice"
	for _, cgroup := range []string{"/kubepods.slice", "/kubepods.slice/kubepods-besteffort.slice", path, path + "/crio-app1.scope"} {
		tree.add(cgroup, 1, "")
	}
	u, err := newProvider(t, cfg).Cgroups(t.Context(), []stats.Container{{ID: "app1", Pod: bestEffort}})
	require.NoError(t, err)
	var paths []string
	for _, g := range u.Cgroups {
		paths = append(paths, g.Path)
	}
	require.Equal(t, []string{"/", "/kubepods.slice", "/kubepods.slice/kubepods-besteffort.slice", path, path + "/crio-app1.scope"}, paths)
}

// TestCgroups_MissingFilesLeaveFiguresOut checks that an unknown figure is omitted, and not
// 0.
func TestCgroups_MissingFilesLeaveFiguresOut(t *testing.T) {
	for _, v2 := range []bool{false, true} {
		cfg, tree := newUsageTree(t, v2)
		require.NoError(t, os.Remove(filepath.Join(cfg.ProcRoot, "diskstats")))
		require.NoError(t, os.Remove(filepath.Join(cfg.ProcRoot, "cpuinfo")))
		tree.file("pids", "/", "pids.current", "5\n")
		tree.file("memory", "/kubepods", "memory.stat", "anon x\ntotal_rss x\n")
		tree.file("memory", "/kubepods", "memory.limit_in_bytes", "x\n")
		tree.file("blkio", "/kubepods", "io.stat", "8:0 rbytes=x\n")
		tree.file("blkio", "/kubepods", "blkio.throttle.io_service_bytes_recursive", "8:0 Read x\n")
		u, err := newProvider(t, cfg).Cgroups(t.Context(), nodeContainers())
		require.NoError(t, err)
		require.Len(t, u.Cgroups, 1, "only the cgroup of all pods, without figures")
		root := u.Cgroups[0].Figures
		require.EqualValues(t, 5, root[stats.Threads])
		require.NotContains(t, root, stats.MemoryUsage)
		require.NotContains(t, root, stats.MemoryWorkingSet)
		require.NotContains(t, u.Machine, stats.Cores)
		require.Contains(t, u.Machine, stats.MemoryTotal)
	}
}

func TestCgroups_ReportsThatNothingCanBeRead(t *testing.T) {
	cfg := live(t, "v2-cgroupfs")
	cfg.CgroupRoot, cfg.ProcRoot = t.TempDir(), t.TempDir()
	_, err := newProvider(t, cfg).Cgroups(t.Context(), nil)
	require.EqualError(t, err, "could not read any figure of the root cgroup in "+cfg.CgroupRoot)
}

func TestCgroups_EndsWithTheContext(t *testing.T) {
	cfg, tree := newUsageTree(t, true)
	tree.fill()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	u, err := newProvider(t, cfg).Cgroups(ctx, nodeContainers())
	require.ErrorIs(t, err, context.Canceled)
	require.NotEmpty(t, u.Cgroups, "figures that were read before the error must be returned")
}

// layersRuntime reports a writable layer for each container.
type layersRuntime struct{}

func (layersRuntime) ListContainerStats(context.Context, *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	of := func(id string, used *runtimeapi.UInt64Value) *runtimeapi.ContainerStats {
		return &runtimeapi.ContainerStats{
			Attributes:    &runtimeapi.ContainerAttributes{Id: id, Labels: map[string]string{"io.kubernetes.pod.uid": string(burstable)}},
			WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: used},
		}
	}
	return []*runtimeapi.ContainerStats{of("app1", &runtimeapi.UInt64Value{Value: 12345}), of("waiting1", nil)}, nil
}

func (layersRuntime) ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return nil, nil
}

// TestCgroups_Filesystems checks that the node's filesystem, which has three roles, is listed
// once, and that the writable layers are those of the last refresh.
func TestCgroups_Filesystems(t *testing.T) {
	cfg, tree := newUsageTree(t, true)
	tree.fill()
	cfg.Runtime = layersRuntime{}
	write(t, "30 1 8:1 / / rw - ext4 /dev/sda1 rw\n", cfg.ProcRoot, "self", "mountinfo")
	p := newProvider(t, cfg)
	_, err := p.Refresh(t.Context())
	require.NoError(t, err)
	u, err := p.Cgroups(t.Context(), nodeContainers())
	require.NoError(t, err)
	var node []stats.FilesystemUsage
	layers := map[string][]stats.FilesystemUsage{}
	for _, g := range u.Cgroups {
		if g.Path == "/" {
			node = g.Filesystems
		} else if len(g.Filesystems) > 0 {
			layers[g.ContainerID] = g.Filesystems
		}
	}
	require.Len(t, node, 1)
	require.Equal(t, "/dev/sda1", node[0].Device)
	require.Positive(t, node[0].CapacityBytes)
	require.Len(t, layers, 1)
	require.EqualValues(t, 12345, layers["app1"][0].UsedBytes)
	require.Equal(t, node[0].CapacityBytes, layers["app1"][0].CapacityBytes)

	// Without a list of mounts, the device is unknown and the path is used as its name.
	require.NoError(t, os.Remove(filepath.Join(cfg.ProcRoot, "self", "mountinfo")))
	u, err = p.Cgroups(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, cfg.NodePath, u.Cgroups[0].Filesystems[0].Device)
}

// manyContainers writes n pods, each with a sandbox and a container.
func manyContainers(tb testing.TB, n int, v2 bool) (stats.Config, []stats.Container) {
	tb.Helper()
	cfg, tree := newUsageTree(tb, v2)
	tree.fill()
	var all []stats.Container
	for i := range n {
		uid := types.UID(fmt.Sprintf("22222222-0000-0000-0000-%012d", i))
		path := "/kubepods/burstable/pod" + string(uid)
		tree.add(path, 1, "")
		for _, c := range []stats.Container{{ID: fmt.Sprintf("s%d", i), Pod: uid, IsSandbox: true}, {ID: fmt.Sprintf("c%d", i), Pod: uid}} {
			tree.add(path+"/"+c.ID, 1, "4001\n")
			all = append(all, c)
		}
	}
	return cfg, all
}

// BenchmarkCgroups reads the cgroups of 110 pods, each with a sandbox and a container: 333
// cgroups. The files are on a disk. The kernel's own files are slower, because the kernel
// computes sums.
func BenchmarkCgroups(b *testing.B) {
	for _, version := range []string{"v1", "v2"} {
		b.Run(version+"/pods=110", func(b *testing.B) {
			cfg, all := manyContainers(b, 110, version == "v2")
			p := newProvider(b, cfg)
			b.ReportAllocs()
			for b.Loop() {
				u, err := p.Cgroups(b.Context(), all)
				require.NoError(b, err)
				require.Greater(b, len(u.Cgroups), 330)
			}
		})
	}
}
