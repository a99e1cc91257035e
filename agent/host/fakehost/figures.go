package fakehost

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// figures has the runtime's statistics by pod. Containers are in the order of their creation.
// They include exited containers, because the layers of exited containers are still on the disk.
type figures struct {
	sandboxes  map[types.UID]*runtimeapi.LinuxPodSandboxStats
	containers map[types.UID][]*runtimeapi.ContainerStats
}

// measure gets the runtime's statistics. If one of the two calls fails, the result has the
// figures of the other call.
func measure(ctx context.Context, node *fakecri.Node) (figures, error) {
	sandboxes, errSandboxes := node.ListPodSandboxStats(ctx, nil)
	containers, errContainers := node.ListContainerStats(ctx, nil)
	f := figures{map[types.UID]*runtimeapi.LinuxPodSandboxStats{}, map[types.UID][]*runtimeapi.ContainerStats{}}
	for _, s := range sandboxes {
		f.sandboxes[crilabels.UID(s.GetAttributes().GetLabels())] = s.GetLinux()
	}
	for _, c := range containers {
		uid := crilabels.UID(c.GetAttributes().GetLabels())
		f.containers[uid] = append(f.containers[uid], c)
	}
	return f, errors.Join(errSandboxes, errContainers)
}

// has reports whether there are figures of a pod.
func (f figures) has(pod types.UID) bool {
	return f.sandboxes[pod] != nil || len(f.containers[pod]) > 0
}

// podStats returns those figures of a pod that eviction uses.
func (f figures) podStats(pod types.UID) eviction.PodStats {
	memory, process := f.sandboxes[pod].GetMemory(), f.sandboxes[pod].GetProcess()
	out := eviction.PodStats{
		UID:       pod,
		Memory:    usage(memory.GetWorkingSetBytes(), memory.GetTimestamp()),
		Processes: usage(process.GetProcessCount(), process.GetTimestamp()),
	}
	for _, c := range f.containers[pod] {
		layer := c.GetWritableLayer()
		out.Containers = append(out.Containers, eviction.ContainerStats{
			Name:   c.GetAttributes().GetMetadata().GetName(),
			Memory: usage(c.GetMemory().GetWorkingSetBytes(), c.GetMemory().GetTimestamp()),
			Rootfs: eviction.DiskUsage{
				Bytes:  usage(layer.GetUsedBytes(), layer.GetTimestamp()),
				Inodes: usage(layer.GetInodesUsed(), layer.GetTimestamp()),
			},
		})
	}
	return out
}

// usage returns a figure of the runtime. It returns an unknown figure if v is nil.
func usage(v *runtimeapi.UInt64Value, nanoseconds int64) eviction.Usage {
	if v == nil {
		return eviction.Usage{}
	}
	return eviction.Usage{Value: signed(v.GetValue()), Time: time.Unix(0, nanoseconds)}
}
