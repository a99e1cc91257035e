package eviction

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Signal names a resource of the node for which thresholds can be set, as in the
// kubelet's configuration.
type Signal string

// Signals. The signals of memory and disk space are in bytes. The other signals count
// inodes or processes.
const (
	// MemoryAvailable is the memory that is available without reclaiming the working set
	// of the node's processes.
	MemoryAvailable Signal = "memory.available"
	// AllocatableMemoryAvailable is the memory that is available below the memory limit of
	// all pods together.
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	// NodeFSAvailable and NodeFSInodesFree are the free space and the free inodes of the
	// filesystem with volumes and logs.
	NodeFSAvailable  Signal = "nodefs.available"
	NodeFSInodesFree Signal = "nodefs.inodesFree"
	// ImageFSAvailable and ImageFSInodesFree are the free space and the free inodes of the
	// filesystem with images.
	ImageFSAvailable  Signal = "imagefs.available"
	ImageFSInodesFree Signal = "imagefs.inodesFree"
	// ContainerFSAvailable and ContainerFSInodesFree are the free space and the free
	// inodes of the filesystem with the containers' writable layers.
	ContainerFSAvailable  Signal = "containerfs.available"
	ContainerFSInodesFree Signal = "containerfs.inodesFree"
	// PIDAvailable is how many more processes and threads the node can start.
	PIDAvailable Signal = "pid.available"
)

// Layout describes which data of the node is on a separate filesystem (KEP-4191). The zero
// value is [UnknownLayout].
type Layout string

// Layouts.
const (
	// UnknownLayout: [Stats] does not know the layout yet.
	UnknownLayout Layout = ""
	// SingleFS: images, writable layers, volumes and logs are on one filesystem.
	SingleFS Layout = "single"
	// DedicatedImageFS: images and writable layers are on one filesystem, volumes and
	// logs on another.
	DedicatedImageFS Layout = "imagefs"
	// SplitFS: images are on one filesystem, writable layers, volumes and logs on another.
	SplitFS Layout = "split"
)

// Observation is the measurement of one signal.
type Observation struct {
	// Signal is the measured signal.
	Signal Signal `json:"signal"`
	// Available is the available amount and Capacity the total, in bytes or as a count.
	// Neither is negative.
	Available int64 `json:"available"`
	Capacity  int64 `json:"capacity"`
	// Time is when the signal was measured. Zero means now.
	Time time.Time `json:"time,omitzero"`
}

// NodeStats has the measurements of the node. A missing signal is unknown.
type NodeStats struct {
	// Observations has each signal at most once, in any order.
	Observations []Observation
	// Layout is the present layout of the filesystems.
	Layout Layout
}

// Usage is how much of a resource is used, in bytes or as a count. The zero value means
// unknown; a known value has a Time.
type Usage struct {
	Value int64     `json:"value"`
	Time  time.Time `json:"time,omitzero"`
}

// Known reports whether the usage is known.
func (u Usage) Known() bool { return !u.Time.IsZero() }

// DiskUsage is the usage of disk space and inodes. Each value may be unknown.
type DiskUsage struct {
	Bytes, Inodes Usage
}

// ContainerStats has the resource usage of one container. Values may be unknown.
type ContainerStats struct {
	// Name is the container's name in the pod's spec.
	Name string
	// Memory is the container's working set in bytes.
	Memory Usage
	// Rootfs is the usage of the container's writable layer, Logs the usage of its log
	// files.
	Rootfs, Logs DiskUsage
}

// VolumeStats has the disk usage of one volume of a pod.
type VolumeStats struct {
	// Name is the volume's name in the pod's spec.
	Name string
	DiskUsage
}

// PodStats has the resource usage of one pod. Values may be unknown.
type PodStats struct {
	UID types.UID
	// Memory is the working set of the whole pod in bytes, including its sandbox and all
	// containers.
	Memory Usage
	// Processes is the number of the pod's processes and threads.
	Processes Usage
	// Containers has an entry for each container. A restarted container may have writable
	// layers and logs of several attempts. Each attempt then has an entry, with the same
	// name.
	Containers []ContainerStats
	// Volumes has an entry for each volume. PlanEviction finds the kind of a volume in the
	// pod's spec.
	Volumes []VolumeStats
	// Other is the usage of the pod's other files on the node's filesystem, such as
	// pod-level logs and its /etc/hosts.
	Other DiskUsage
}

// maxDiskAge is the maximum age of a pod's disk usage for use in decisions. Measuring a
// volume with millions of files takes many minutes.
const maxDiskAge = time.Hour

// measuredSince returns a copy of s in which old values are unknown. Disk usage is old if it was
// measured before disk, and any other value is old if it was measured before rest.
func (s PodStats) measuredSince(rest, disk time.Time) PodStats {
	s.Memory, s.Processes = s.Memory.measuredSince(rest), s.Processes.measuredSince(rest)
	s.Containers, s.Volumes = slices.Clone(s.Containers), slices.Clone(s.Volumes)
	for i := range s.Containers {
		c := &s.Containers[i]
		c.Memory, c.Rootfs, c.Logs = c.Memory.measuredSince(rest), c.Rootfs.measuredSince(disk), c.Logs.measuredSince(disk)
	}
	for i := range s.Volumes {
		s.Volumes[i].DiskUsage = s.Volumes[i].measuredSince(disk)
	}
	s.Other = s.Other.measuredSince(disk)
	return s
}

func (d DiskUsage) measuredSince(t time.Time) DiskUsage {
	return DiskUsage{d.Bytes.measuredSince(t), d.Inodes.measuredSince(t)}
}

func (u Usage) measuredSince(t time.Time) Usage {
	if u.Time.Before(t) {
		return Usage{}
	}
	return u
}

// Stats measures the node and its pods. The Manager does not call the methods
// concurrently.
//
// If a method returns an error, the Manager still uses the values in the result; the error
// explains why other values are missing. The Manager may read a result until the next call of the
// same method, and never modifies it. A method may therefore reuse the memory of its last result.
type Stats interface {
	// Node measures the node's signals now. It may be called every 50 ms and should take
	// microseconds. It must not walk directories or make remote calls.
	Node(ctx context.Context) (NodeStats, error)
	// Pods returns the stats of the given pods, in any order. The Manager calls it with
	// the active pods when it must rank pods or check local storage limits. Memory and
	// processes should be measured now, but disk usage may be cached: each value has its
	// own time. The result may omit pods without stats. The argument is neither retained
	// nor modified, and may have nil entries.
	Pods(ctx context.Context, pods []*corev1.Pod) ([]PodStats, error)
}

// Level is a hard threshold as an absolute amount.
type Level struct {
	Signal Signal
	// Available is the amount below which the threshold is met.
	Available int64
}

// Waker requests evaluations before the next poll is due, for example when the kernel
// reports that processes wait for memory. A wake-up only starts an evaluation: pods are
// evicted only if the evaluation finds a due threshold.
type Waker interface {
	// Watch calls wake, with a short description of what happened, whenever an evaluation
	// is needed. It may call wake from any goroutine; wake never blocks. Watch returns nil
	// when ctx is done, and an error if it cannot continue. After an error, the Manager
	// calls Watch again after [Config.MaxInterval]. Watch must not call wake after it has
	// returned.
	//
	// Some kernel interfaces need a level to watch: levels returns the present levels of the
	// hard thresholds whose signals have a valid observation. Watch may call levels at any
	// time. The result changes when the node's capacity changes.
	Watch(ctx context.Context, levels func() []Level, wake func(reason string)) error
}
