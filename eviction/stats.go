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

// Signals. Those of memory and disk space are in bytes, the others count inodes or
// processes.
const (
	// MemoryAvailable is the memory that is available without reclaiming the working set
	// of the node's processes.
	MemoryAvailable Signal = "memory.available"
	// AllocatableMemoryAvailable is the same for the memory limit of all pods together.
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	// NodeFSAvailable and NodeFSInodesFree are of the filesystem with volumes and logs.
	NodeFSAvailable  Signal = "nodefs.available"
	NodeFSInodesFree Signal = "nodefs.inodesFree"
	// ImageFSAvailable and ImageFSInodesFree are of the filesystem with images.
	ImageFSAvailable  Signal = "imagefs.available"
	ImageFSInodesFree Signal = "imagefs.inodesFree"
	// ContainerFSAvailable and ContainerFSInodesFree are of the filesystem with the
	// containers' writable layers.
	ContainerFSAvailable  Signal = "containerfs.available"
	ContainerFSInodesFree Signal = "containerfs.inodesFree"
	// PIDAvailable is how many more processes and threads the node can start.
	PIDAvailable Signal = "pid.available"
)

// Layout is which of the node's filesystems are separate (KEP-4191). The zero value is
// [UnknownLayout].
type Layout string

// Layouts.
const (
	// UnknownLayout: the provider does not know the layout yet.
	UnknownLayout Layout = ""
	// SingleFS: one filesystem for everything.
	SingleFS Layout = "single"
	// DedicatedImageFS: images and writable layers are on one filesystem, volumes and
	// logs on another.
	DedicatedImageFS Layout = "imagefs"
	// SplitFS: images have a filesystem of their own; writable layers are with volumes
	// and logs.
	SplitFS Layout = "split"
)

// Observation is what was measured of one signal.
type Observation struct {
	// Signal is the measured signal.
	Signal Signal `json:"signal"`
	// Available is the available amount and Capacity the total, in bytes or as a count.
	// Neither is negative.
	Available int64 `json:"available"`
	Capacity  int64 `json:"capacity"`
	// Time is when it was measured; zero means now.
	Time time.Time `json:"time,omitzero"`
}

// NodeStats is what was measured of the node. A signal that is missing is unknown, which
// is neither zero nor plenty.
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

// DiskUsage is the usage of a filesystem. Each value may be unknown.
type DiskUsage struct {
	Bytes, Inodes Usage
}

// ContainerStats is what one container uses. Values may be unknown.
type ContainerStats struct {
	// Name is the container's name in the pod's spec.
	Name string
	// Memory is its working set in bytes.
	Memory Usage
	// Rootfs is its writable layer, and Logs are its log files.
	Rootfs, Logs DiskUsage
}

// VolumeStats is what one volume of a pod uses.
type VolumeStats struct {
	// Name is the volume's name in the pod's spec.
	Name string
	DiskUsage
}

// PodStats is what one pod uses. Values may be unknown.
type PodStats struct {
	UID types.UID
	// Memory is the working set of the whole pod in bytes, including its sandbox and all
	// containers.
	Memory Usage
	// Processes is the number of its processes and threads.
	Processes Usage
	// Containers has an entry for each container. A container that was restarted may have
	// writable layers and logs of several attempts: each is an entry with the same name.
	Containers []ContainerStats
	// Volumes has an entry for each volume. The kind of a volume is looked up in the
	// pod's spec.
	Volumes []VolumeStats
	// Other is what else the pod uses on the node's filesystem, such as pod-level logs
	// and its /etc/hosts.
	Other DiskUsage
}

// maxDiskAge is the maximum age of a pod's disk usage for use in decisions. Measuring a
// volume with millions of files takes many minutes.
const maxDiskAge = time.Hour

// measuredSince returns s with values that are too old set to unknown: disk usage
// measured before disk, everything else measured before rest.
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

// Stats measures the node and its pods. The methods are not called concurrently.
//
// A result counts even if there is an error: what it has is used, and the error explains
// why the rest is missing. A result is read until the next call of the same method and
// never modified, so that its memory can be reused.
type Stats interface {
	// Node measures the node's signals now. It is called as often as every
	// 50 ms and should take microseconds: no walks, no remote calls.
	Node(ctx context.Context) (NodeStats, error)
	// Pods returns what each of the given pods uses, in any order. It is called with the
	// active pods when pods must be ranked and when local storage limits are checked.
	// Memory and processes should be measured now, disk usage may be cached: each value
	// has its own time. Unknown pods may be omitted from the result. The argument is
	// neither retained nor modified, and may have nil entries.
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
// evicted only if that finds a threshold met.
type Waker interface {
	// Watch calls wake, with a short description of what happened, whenever an evaluation
	// is needed. It may do so from any goroutine; wake never blocks. Watch returns nil
	// when ctx is done, and an error if it can't watch any more: then it is called again
	// after a while. It must not call wake after it has returned.
	//
	// levels returns the present levels of all hard thresholds, for kernel interfaces
	// that need a level to watch. It may be called at any time, and its result changes
	// when the node's capacity does.
	Watch(ctx context.Context, levels func() []Level, wake func(reason string)) error
}
