package fakehost

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/fakecri"
)

// Summary returns the figures of the disk and of the pods' programs. The node's usage is the
// sum of the given pods.
func (s statistics) Summary(ctx context.Context, pods []*corev1.Pod) (*statsapi.Summary, error) {
	all, err := measure(ctx, s.node)
	now := metav1.NewTime(clock.RealClock{}.Now())
	out := &statsapi.Summary{
		Node: statsapi.NodeStats{
			CPU:    &statsapi.CPUStats{Time: now, UsageNanoCores: new(uint64), UsageCoreNanoSeconds: new(uint64)},
			Memory: &statsapi.MemoryStats{Time: now, UsageBytes: new(uint64), WorkingSetBytes: new(uint64), RSSBytes: new(uint64)},
			Fs:     filesystem(now, s.node.DiskUsage()),
		},
		Pods: []statsapi.PodStats{},
	}
	for _, pod := range pods {
		if pod == nil || all.sandboxes[pod.UID] == nil {
			continue
		}
		p := all.summary(pod, now)
		out.Pods = append(out.Pods, p)
		add(out.Node.CPU.UsageNanoCores, p.CPU.UsageNanoCores)
		add(out.Node.CPU.UsageCoreNanoSeconds, p.CPU.UsageCoreNanoSeconds)
		add(out.Node.Memory.UsageBytes, p.Memory.UsageBytes)
		add(out.Node.Memory.WorkingSetBytes, p.Memory.WorkingSetBytes)
		add(out.Node.Memory.RSSBytes, p.Memory.RSSBytes)
	}
	out.Node.Memory.AvailableBytes = new(memoryBytes - min(*out.Node.Memory.WorkingSetBytes, memoryBytes))
	if err != nil {
		return out, fmt.Errorf("fakehost: measure pods: %w", err)
	}
	return out, nil
}

// summary returns the figures of a pod that has a sandbox. Exited containers only count for the
// ephemeral storage of the pod.
func (f figures) summary(pod *corev1.Pod, now metav1.Time) statsapi.PodStats {
	sandbox := f.sandboxes[pod.UID]
	out := statsapi.PodStats{
		PodRef:           statsapi.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)},
		StartTime:        pod.CreationTimestamp,
		CPU:              cpu(sandbox.GetCpu()),
		Memory:           memory(sandbox.GetMemory()),
		ProcessStats:     &statsapi.ProcessStats{ProcessCount: value(sandbox.GetProcess().GetProcessCount())},
		EphemeralStorage: &statsapi.FsStats{Time: now, UsedBytes: new(uint64), InodesUsed: new(uint64)},
		Containers:       []statsapi.ContainerStats{},
	}
	if pod.Status.StartTime != nil {
		out.StartTime = *pod.Status.StartTime
	}
	for _, c := range f.containers[pod.UID] {
		layer := c.GetWritableLayer()
		rootfs := &statsapi.FsStats{Time: at(layer.GetTimestamp()), UsedBytes: value(layer.GetUsedBytes()), InodesUsed: value(layer.GetInodesUsed())}
		add(out.EphemeralStorage.UsedBytes, rootfs.UsedBytes)
		add(out.EphemeralStorage.InodesUsed, rootfs.InodesUsed)
		if c.GetMemory() == nil {
			continue
		}
		out.Containers = append(out.Containers, statsapi.ContainerStats{
			Name: c.GetAttributes().GetMetadata().GetName(), StartTime: out.StartTime,
			CPU: cpu(c.GetCpu()), Memory: memory(c.GetMemory()), Rootfs: rootfs,
		})
	}
	return out
}

func filesystem(now metav1.Time, u fakecri.DiskUsage) *statsapi.FsStats {
	return &statsapi.FsStats{
		Time: now, CapacityBytes: &u.CapacityBytes, AvailableBytes: &u.AvailableBytes, UsedBytes: &u.UsedBytes,
		Inodes: &u.Inodes, InodesFree: &u.InodesFree, InodesUsed: &u.InodesUsed,
	}
}

func cpu(c *runtimeapi.CpuUsage) *statsapi.CPUStats {
	return &statsapi.CPUStats{
		Time: at(c.GetTimestamp()), UsageNanoCores: value(c.GetUsageNanoCores()), UsageCoreNanoSeconds: value(c.GetUsageCoreNanoSeconds()),
	}
}

func memory(m *runtimeapi.MemoryUsage) *statsapi.MemoryStats {
	return &statsapi.MemoryStats{
		Time: at(m.GetTimestamp()), AvailableBytes: value(m.GetAvailableBytes()), UsageBytes: value(m.GetUsageBytes()),
		WorkingSetBytes: value(m.GetWorkingSetBytes()), RSSBytes: value(m.GetRssBytes()),
	}
}

// add adds n to sum if n is known.
func add(sum, n *uint64) {
	if n != nil {
		*sum += *n
	}
}

// value returns a number of the runtime, or nil if the number is missing.
func value(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return new(v.GetValue())
}

func at(nanoseconds int64) metav1.Time { return metav1.NewTime(time.Unix(0, nanoseconds)) }
