package fakecri

import (
	"context"
	"maps"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pauseMemoryBytes is the memory usage of a sandbox without its containers, about the
// memory usage of a pause container.
const pauseMemoryBytes = 512 << 10

// filesystem is the mount point of the filesystem with the images and the writable layers
// of containers.
const filesystem = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"

// usage is the resource usage of a container or a sandbox at one point in time.
type usage struct {
	cpuNanoseconds, cpuNanoCores uint64
	memoryBytes, diskBytes       uint64
	inodes                       uint64
}

// usage returns the current usage of a container, computed from its program. An exited
// container keeps its disk usage.
func (n *Node) usage(c *container) usage {
	if c.startedAt == 0 {
		return usage{}
	}
	age, p := n.age(c), c.program
	u := usage{diskBytes: p.Disk.at(age), inodes: p.Inodes.at(age)}
	if c.running() {
		u.cpuNanoCores = p.CPUMilli * 1e6
		u.cpuNanoseconds = amountAfter(u.cpuNanoCores, age)
		u.memoryBytes = p.Memory.at(age)
	}
	return u
}

// ContainerStats returns the stats of a container. It returns an error if the container
// does not run.
func (n *Node) ContainerStats(ctx context.Context, containerID string) (*runtimeapi.ContainerStats, error) {
	if err := n.enter(ctx, "ContainerStats", containerID, ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	c, ok := n.containers.byID[containerID]
	if !ok {
		return nil, errNotFound("failed to find container: not found")
	}
	if !c.running() {
		return nil, errUnknown("unexpected metrics response: []")
	}
	return n.stats(c), nil
}

// ListContainerStats returns stats in the order in which the containers were created. The
// stats of a container that does not run have only its disk usage.
func (n *Node) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	return n.listContainerStats(ctx, "ListContainerStats", filter)
}

func (n *Node) listContainerStats(ctx context.Context, method string, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	if err := n.enter(ctx, method, "", ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	var out []*runtimeapi.ContainerStats
	for _, c := range n.containers.only(filter.GetId()) {
		if want := filter.GetPodSandboxId(); want != "" && want != c.pod.id {
			continue
		}
		if selects(filter.GetLabelSelector(), c.config.GetLabels()) {
			out = append(out, n.stats(c))
		}
	}
	return out, nil
}

func (n *Node) stats(c *container) *runtimeapi.ContainerStats {
	at, u := n.wall().UnixNano(), n.usage(c)
	out := &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: c.metadata(),
			Labels: maps.Clone(c.config.GetLabels()), Annotations: maps.Clone(c.config.GetAnnotations()),
		},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: at, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: filesystem},
			UsedBytes: number(u.diskBytes), InodesUsed: number(u.inodes),
		},
	}
	if c.running() {
		out.Cpu, out.Memory = cpuStats(at, u), memoryStats(at, u)
		if limit := c.resources.GetLinux().GetMemoryLimitInBytes(); limit > 0 {
			out.Memory.AvailableBytes = number(uint64(limit) - min(u.memoryBytes, uint64(limit)))
		}
	}
	return out
}

// PodSandboxStats returns the stats of a sandbox. It returns an error if the sandbox is not
// ready.
func (n *Node) PodSandboxStats(ctx context.Context, podSandboxID string) (*runtimeapi.PodSandboxStats, error) {
	if err := n.enter(ctx, "PodSandboxStats", podSandboxID, ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	s, ok := n.sandboxes.byID[podSandboxID]
	if !ok {
		return nil, errNotFound("an error occurred when trying to find sandbox %s: not found", podSandboxID)
	}
	if !s.ready {
		return nil, grpcstatus.Errorf(codes.Unavailable,
			"failed to decode pod sandbox metrics %s: failed to get pod sandbox stats since sandbox container %q is not in ready state: unavailable", s.id, s.id)
	}
	return n.podStats(s), nil
}

// ListPodSandboxStats returns the stats of the sandboxes that are ready.
func (n *Node) ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return n.listPodSandboxStats(ctx, "ListPodSandboxStats", filter)
}

func (n *Node) listPodSandboxStats(ctx context.Context, method string, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	if err := n.enter(ctx, method, "", ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	var out []*runtimeapi.PodSandboxStats
	for _, s := range n.sandboxes.only(filter.GetId()) {
		if s.ready && selects(filter.GetLabelSelector(), s.config.GetLabels()) {
			out = append(out, n.podStats(s))
		}
	}
	return out, nil
}

// podStats returns the stats of a sandbox: the usage of its running containers, plus the
// memory and the process of a pause container. Network traffic is zero.
func (n *Node) podStats(s *sandbox) *runtimeapi.PodSandboxStats {
	at := n.wall().UnixNano()
	sum := usage{memoryBytes: pauseMemoryBytes}
	linux := &runtimeapi.LinuxPodSandboxStats{}
	processes := uint64(1)
	for _, c := range s.containers {
		if !c.running() {
			continue
		}
		u := n.usage(c)
		sum.cpuNanoCores = saturatingAdd(sum.cpuNanoCores, u.cpuNanoCores)
		sum.cpuNanoseconds = saturatingAdd(sum.cpuNanoseconds, u.cpuNanoseconds)
		sum.memoryBytes = saturatingAdd(sum.memoryBytes, u.memoryBytes)
		linux.Containers = append(linux.Containers, n.stats(c))
		processes++
	}
	linux.Cpu, linux.Memory = cpuStats(at, sum), memoryStats(at, sum)
	linux.Process = &runtimeapi.ProcessUsage{Timestamp: at, ProcessCount: number(processes)}
	if s.ip != "" {
		linux.Network = &runtimeapi.NetworkUsage{Timestamp: at, DefaultInterface: &runtimeapi.NetworkInterfaceUsage{
			Name: "eth0", RxBytes: number(0), RxErrors: number(0), TxBytes: number(0), TxErrors: number(0),
		}}
	}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id: s.id, Metadata: s.metadata(),
			Labels: maps.Clone(s.config.GetLabels()), Annotations: maps.Clone(s.config.GetAnnotations()),
		},
		Linux: linux,
	}
}

func cpuStats(at int64, u usage) *runtimeapi.CpuUsage {
	return &runtimeapi.CpuUsage{
		Timestamp: at, UsageCoreNanoSeconds: number(u.cpuNanoseconds), UsageNanoCores: number(u.cpuNanoCores),
	}
}

func memoryStats(at int64, u usage) *runtimeapi.MemoryUsage {
	return &runtimeapi.MemoryUsage{
		Timestamp: at, WorkingSetBytes: number(u.memoryBytes), UsageBytes: number(u.memoryBytes),
		RssBytes: number(u.memoryBytes), PageFaults: number(u.memoryBytes >> 12), MajorPageFaults: number(0),
	}
}

func number(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }
