package eviction

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/eviction"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// unsigned returns a pointer to a figure.
func unsigned(n int64) *uint64 { return new(uint64(n)) }

// summary returns all figures in the kubelet's format.
func (m *machine) summary() *statsapi.Summary {
	s := &statsapi.Summary{}
	if r, ok := m.measure(memoryFigure); ok {
		s.Node.Memory = memoryStats(r)
	}
	if r, ok := m.measure(allocatableFigure); ok {
		s.Node.SystemContainers = []statsapi.ContainerStats{
			{Name: statsapi.SystemContainerKubelet, Memory: &statsapi.MemoryStats{}},
			{Name: statsapi.SystemContainerPods, Memory: memoryStats(r)},
		}
	}
	if r, ok := m.measure(pidFigure); ok {
		s.Node.Rlimit = &statsapi.RlimitStats{
			Time: metav1.NewTime(r.time), MaxPID: new(r.capacity), NumOfRunningProcesses: new(r.capacity - r.available),
		}
	}
	image := nodeBytes
	if m.w.Layout != eviction.SingleFS {
		image = imageBytes
	}
	container := nodeBytes
	if m.w.Layout == eviction.DedicatedImageFS {
		container = imageBytes
	}
	s.Node.Fs = m.filesystem(nodeBytes)
	s.Node.Runtime = &statsapi.RuntimeStats{ImageFs: m.filesystem(image), ContainerFs: m.filesystem(container)}
	for i := range m.w.Pods {
		p := &m.w.Pods[i]
		if u, ok := p.usage(m.now()); ok {
			s.Pods = append(s.Pods, m.podStats(p, u))
		}
	}
	return s
}

func memoryStats(r measurement) *statsapi.MemoryStats {
	return &statsapi.MemoryStats{
		Time: metav1.NewTime(r.time), AvailableBytes: unsigned(r.available), WorkingSetBytes: unsigned(r.capacity - r.available),
	}
}

// filesystem returns the known figures of a filesystem. The kubelet has one time for bytes
// and inodes: that of the bytes.
func (m *machine) filesystem(bytes figure) *statsapi.FsStats {
	s := &statsapi.FsStats{}
	if r, ok := m.measure(bytes); ok {
		s.Time, s.AvailableBytes, s.CapacityBytes = metav1.NewTime(r.time), unsigned(r.available), unsigned(r.capacity)
	}
	if r, ok := m.measure(bytes + 1); ok {
		s.Time, s.InodesFree, s.Inodes = metav1.NewTime(r.time), unsigned(r.available), unsigned(r.capacity)
	}
	return s
}

func (m *machine) podStats(p *podSpec, u podUsage) statsapi.PodStats {
	s := statsapi.PodStats{PodRef: statsapi.PodReference{Name: p.Pod.Name, Namespace: p.Pod.Namespace, UID: string(p.Pod.UID)}}
	if u.Memory != nil {
		s.Memory = &statsapi.MemoryStats{WorkingSetBytes: unsigned(*u.Memory)}
	}
	if u.Processes != nil {
		s.ProcessStats = &statsapi.ProcessStats{ProcessCount: unsigned(*u.Processes)}
	}
	total := u.Other
	for _, c := range u.Containers {
		one := statsapi.ContainerStats{Name: c.Name}
		if c.Memory != nil {
			one.Memory = &statsapi.MemoryStats{WorkingSetBytes: unsigned(*c.Memory)}
		}
		if c.Rootfs != nil {
			one.Rootfs = &statsapi.FsStats{UsedBytes: unsigned(c.Rootfs.Bytes), InodesUsed: unsigned(c.Rootfs.Inodes)}
		}
		if c.Logs != nil {
			one.Logs = &statsapi.FsStats{UsedBytes: unsigned(c.Logs.Bytes), InodesUsed: unsigned(c.Logs.Inodes)}
		}
		total += orZero(c.Rootfs).Bytes + orZero(c.Logs).Bytes
		s.Containers = append(s.Containers, one)
	}
	for _, v := range u.Volumes {
		s.VolumeStats = append(s.VolumeStats, statsapi.VolumeStats{
			Name: v.Name, FsStats: statsapi.FsStats{UsedBytes: unsigned(v.Disk.Bytes), InodesUsed: unsigned(v.Disk.Inodes)},
		})
		if isLocal(p.volume(v.Name)) {
			total += v.Disk.Bytes
		}
	}
	s.EphemeralStorage = &statsapi.FsStats{UsedBytes: unsigned(total)}
	return s
}

// nodeStats returns the figures of the node in our format.
func (m *machine) nodeStats() (all []eviction.Observation) {
	for _, s := range []eviction.Signal{
		eviction.MemoryAvailable, eviction.AllocatableMemoryAvailable, eviction.PIDAvailable,
		eviction.NodeFSAvailable, eviction.NodeFSInodesFree, eviction.ImageFSAvailable, eviction.ImageFSInodesFree,
		eviction.ContainerFSAvailable, eviction.ContainerFSInodesFree,
	} {
		r, ok := m.measure(m.w.figureOf(s))
		if !ok {
			continue
		}
		all = append(all, eviction.Observation{Signal: s, Available: r.available, Capacity: r.capacity, Time: r.time})
	}
	return all
}

// figuresOfPods returns the pod figures in our format.
func (m *machine) figuresOfPods() (all []eviction.PodStats) {
	var at time.Time
	known := func(n int64) eviction.Usage { return eviction.Usage{Value: n, Time: at} }
	maybe := func(n *int64) eviction.Usage {
		if n == nil {
			return eviction.Usage{}
		}
		return known(*n)
	}
	onDisk := func(d *disk) eviction.DiskUsage {
		if d == nil {
			return eviction.DiskUsage{}
		}
		return eviction.DiskUsage{Bytes: known(d.Bytes), Inodes: known(d.Inodes)}
	}
	for i := range m.w.Pods {
		p := &m.w.Pods[i]
		u, ok := p.usage(m.now())
		if !ok {
			continue
		}
		at = time.Now().Add(-p.Age)
		s := eviction.PodStats{UID: types.UID("uid-" + p.Pod.Name), Memory: maybe(u.Memory), Processes: maybe(u.Processes)}
		for _, c := range u.Containers {
			s.Containers = append(s.Containers, eviction.ContainerStats{
				Name: c.Name, Memory: maybe(c.Memory), Rootfs: onDisk(c.Rootfs), Logs: onDisk(c.Logs),
			})
		}
		for _, v := range u.Volumes {
			s.Volumes = append(s.Volumes, eviction.VolumeStats{Name: v.Name, DiskUsage: onDisk(&v.Disk)})
		}
		if u.Other > 0 {
			s.Other = eviction.DiskUsage{Bytes: known(u.Other)}
		}
		all = append(all, s)
	}
	return all
}
