package fakehost

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/fakecri"
)

// device is the name of the node's disk.
const device = "/dev/fake"

// Cgroups returns the figures that the runtime reports, as if each pod and each container had a
// cgroup. The root cgroup has the sum of the pods' figures.
func (s statistics) Cgroups(ctx context.Context, containers []stats.Container) (stats.Usage, error) {
	all, err := measure(ctx, s.node)
	root := stats.Cgroup{
		Path: "/", Figures: map[stats.Figure]uint64{stats.MemoryLimit: memoryBytes},
		Filesystems: []stats.FilesystemUsage{filesystemUsage(s.node.DiskUsage())},
	}
	var pods []stats.Cgroup
	seen := map[types.UID]bool{}
	for _, c := range containers {
		sandbox := all.sandboxes[c.Pod]
		if sandbox == nil {
			continue
		}
		path := "/kubepods/pod" + string(c.Pod)
		if !seen[c.Pod] {
			seen[c.Pod] = true
			pod := cgroup(path, sandbox.GetCpu(), sandbox.GetMemory())
			pod.Pod = c.Pod
			pods = append(pods, pod)
			for f, n := range pod.Figures {
				root.Figures[f] += n
			}
		}
		if g, ok := all.container(c, path); ok {
			for i := range g.Filesystems { // the writable layer is on the node's only disk
				used := g.Filesystems[i].UsedBytes
				g.Filesystems[i] = root.Filesystems[0]
				g.Filesystems[i].UsedBytes = used
			}
			pods = append(pods, g)
		}
	}
	u := stats.Usage{
		Machine: map[stats.Figure]uint64{stats.Cores: processors, stats.MemoryTotal: memoryBytes, stats.SwapTotal: 0},
		Cgroups: append([]stats.Cgroup{root, {Path: "/kubepods", Figures: maps.Clone(root.Figures)}}, pods...),
	}
	if err != nil {
		return u, fmt.Errorf("fakehost: measure containers: %w", err)
	}
	return u, nil
}

// container returns the figures of a container or a sandbox in a pod's cgroup. It returns false
// if the container is not running.
func (f figures) container(c stats.Container, pod string) (stats.Cgroup, bool) {
	g := stats.Cgroup{Path: pod + "/" + c.ID, Pod: c.Pod, ContainerID: c.ID}
	if c.IsSandbox { // the CPU and memory of the sandbox statistics belong to the cgroup of the pod
		g.Figures = map[stats.Figure]uint64{}
		if n := f.sandboxes[c.Pod].GetNetwork().GetDefaultInterface(); n != nil {
			g.Interfaces = []stats.InterfaceUsage{{
				Name: n.GetName(), RxBytes: n.GetRxBytes().GetValue(), RxErrors: n.GetRxErrors().GetValue(),
				TxBytes: n.GetTxBytes().GetValue(), TxErrors: n.GetTxErrors().GetValue(),
			}}
		}
		return g, true
	}
	for _, s := range f.containers[c.Pod] {
		if s.GetAttributes().GetId() == c.ID && s.GetMemory() != nil {
			of := cgroup(g.Path, s.GetCpu(), s.GetMemory())
			of.Pod, of.ContainerID = c.Pod, c.ID
			of.Filesystems = []stats.FilesystemUsage{{UsedBytes: s.GetWritableLayer().GetUsedBytes().GetValue()}}
			return of, true
		}
	}
	return g, false
}

// cgroup returns a cgroup with the figures of the runtime.
func cgroup(path string, c *runtimeapi.CpuUsage, m *runtimeapi.MemoryUsage) stats.Cgroup {
	g := stats.Cgroup{Path: path, Figures: map[stats.Figure]uint64{}}
	for figure, v := range map[stats.Figure]*runtimeapi.UInt64Value{
		stats.CPUUsage: c.GetUsageCoreNanoSeconds(), stats.MemoryUsage: m.GetUsageBytes(), stats.MemoryRSS: m.GetRssBytes(),
		stats.MemoryWorkingSet: m.GetWorkingSetBytes(), stats.PageFaults: m.GetPageFaults(),
	} {
		if v != nil {
			g.Figures[figure] = v.GetValue()
		}
	}
	return g
}

func filesystemUsage(u fakecri.DiskUsage) stats.FilesystemUsage {
	return stats.FilesystemUsage{
		Device: device, UsedBytes: u.UsedBytes, CapacityBytes: u.CapacityBytes, Inodes: u.Inodes, InodesFree: u.InodesFree,
	}
}
