package main

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// summary is what runs uses. Of the embedded runtime that is what its programs make
// up: this machine's figures are none of theirs.
func (a *agent) summary(ctx context.Context) (*statsapi.Summary, error) {
	if a.stats != nil {
		return a.stats.Summary(ctx, a.evictable())
	}
	pods, errPods := a.node.cri.ListPodSandboxStats(ctx, &runtimeapi.PodSandboxStatsFilter{LabelSelector: a.ownLabels()})
	containers, errContainers := a.node.cri.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{LabelSelector: a.ownLabels()})
	if err := errors.Join(errPods, errContainers); err != nil {
		return nil, err
	}
	disk := a.node.fake.DiskUsage()
	out := &statsapi.Summary{
		Node: statsapi.NodeStats{
			NodeName: a.opts.nodeName, StartTime: metav1.NewTime(a.began),
			Fs: &statsapi.FsStats{
				Time: metav1.Now(), AvailableBytes: new(disk.AvailableBytes), CapacityBytes: new(disk.CapacityBytes),
				UsedBytes: new(disk.CapacityBytes - min(disk.AvailableBytes, disk.CapacityBytes)),
			},
		},
		Pods: []statsapi.PodStats{},
	}
	byUID := map[types.UID]*runtimeapi.PodSandboxStats{}
	for _, p := range pods {
		byUID[crilabels.UID(p.GetAttributes().GetLabels())] = p
	}
	for _, p := range a.evictable() {
		s := byUID[p.UID]
		if s == nil {
			continue
		}
		out.Pods = append(out.Pods, madeUp(p, s, slices.DeleteFunc(slices.Clone(containers), func(c *runtimeapi.ContainerStats) bool {
			return crilabels.UID(c.GetAttributes().GetLabels()) != p.UID
		})))
	}
	return out, nil
}

// madeUp are the figures of a pod in the embedded runtime.
func madeUp(p *corev1.Pod, s *runtimeapi.PodSandboxStats, containers []*runtimeapi.ContainerStats) statsapi.PodStats {
	out := statsapi.PodStats{
		PodRef:     statsapi.PodReference{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)},
		CPU:        cpuOf(s.GetLinux().GetCpu()),
		Memory:     memoryOf(s.GetLinux().GetMemory()),
		Containers: []statsapi.ContainerStats{},
	}
	if p.Status.StartTime != nil {
		out.StartTime = *p.Status.StartTime
	}
	var bytes, inodes uint64
	for _, c := range containers {
		layer := c.GetWritableLayer()
		bytes, inodes = bytes+layer.GetUsedBytes().GetValue(), inodes+layer.GetInodesUsed().GetValue()
		if c.GetCpu() == nil && c.GetMemory() == nil {
			continue // it has ended, and only its layer is left
		}
		out.Containers = append(out.Containers, statsapi.ContainerStats{
			Name: c.GetAttributes().GetLabels()[crilabels.ContainerName],
			CPU:  cpuOf(c.GetCpu()), Memory: memoryOf(c.GetMemory()),
			Rootfs: &statsapi.FsStats{
				Time: at(layer.GetTimestamp()), UsedBytes: new(layer.GetUsedBytes().GetValue()), InodesUsed: new(layer.GetInodesUsed().GetValue()),
			},
		})
	}
	out.EphemeralStorage = &statsapi.FsStats{Time: metav1.Now(), UsedBytes: &bytes, InodesUsed: &inodes}
	return out
}

func cpuOf(c *runtimeapi.CpuUsage) *statsapi.CPUStats {
	if c == nil {
		return nil
	}
	return &statsapi.CPUStats{Time: at(c.GetTimestamp()), UsageNanoCores: valueOf(c.GetUsageNanoCores()), UsageCoreNanoSeconds: valueOf(c.GetUsageCoreNanoSeconds())}
}

func memoryOf(m *runtimeapi.MemoryUsage) *statsapi.MemoryStats {
	if m == nil {
		return nil
	}
	return &statsapi.MemoryStats{
		Time: at(m.GetTimestamp()), WorkingSetBytes: valueOf(m.GetWorkingSetBytes()), AvailableBytes: valueOf(m.GetAvailableBytes()),
		UsageBytes: valueOf(m.GetUsageBytes()), RSSBytes: valueOf(m.GetRssBytes()),
	}
}

func valueOf(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return &v.Value
}

func at(nanoseconds int64) metav1.Time { return metav1.NewTime(time.Unix(0, nanoseconds)) }
