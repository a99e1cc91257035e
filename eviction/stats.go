package eviction

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Signal names a figure of the node that thresholds are set on, as in the
// kubelet's configuration.
type Signal string

// The signals. Those of bytes are in bytes, the others count inodes or
// processes.
const (
	// MemoryAvailable is the memory that the node can still give without
	// reclaiming what its processes work with.
	MemoryAvailable Signal = "memory.available"
	// AllocatableMemoryAvailable is the same below the limit of all pods
	// together.
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	// NodeFSAvailable and NodeFSInodesFree are of the filesystem with volumes
	// and logs.
	NodeFSAvailable  Signal = "nodefs.available"
	NodeFSInodesFree Signal = "nodefs.inodesFree"
	// ImageFSAvailable and ImageFSInodesFree are of the filesystem with images.
	ImageFSAvailable  Signal = "imagefs.available"
	ImageFSInodesFree Signal = "imagefs.inodesFree"
	// ContainerFSAvailable and ContainerFSInodesFree are of the filesystem with
	// the containers' writable layers.
	ContainerFSAvailable  Signal = "containerfs.available"
	ContainerFSInodesFree Signal = "containerfs.inodesFree"
	// PIDAvailable is how many processes and threads the node can still start.
	PIDAvailable Signal = "pid.available"
)

// Layout says which filesystems of the node are apart (KEP-4191). The zero value
// is one that is not known.
type Layout string

// Layouts.
const (
	// UnknownLayout is that of a provider that can't tell yet.
	UnknownLayout Layout = ""
	// SingleFS is one filesystem for everything.
	SingleFS Layout = "single"
	// DedicatedImageFS has images and writable layers on one filesystem, and
	// volumes and logs on another.
	DedicatedImageFS Layout = "imagefs"
	// SplitFS has images alone on one filesystem; writable layers are with
	// volumes and logs.
	SplitFS Layout = "split"
)

// Observation is what was measured of one signal.
type Observation struct {
	// Signal is what was measured.
	Signal Signal `json:"signal"`
	// Available is what is left and Capacity what there is in all, in bytes or
	// as a count. Neither is negative.
	Available int64 `json:"available"`
	Capacity  int64 `json:"capacity"`
	// Time is when it was measured; zero counts as now.
	Time time.Time `json:"time,omitzero"`
}

// NodeStats is what is known of the node. A signal that is missing is unknown,
// which is neither zero nor plenty.
type NodeStats struct {
	// Observations has each signal at most once, in any order.
	Observations []Observation
	// Layout is how the filesystems are laid out now.
	Layout Layout
}

// Usage is how much of something is used, in bytes or as a count. Its zero value
// is unknown: a figure that is known has a Time.
type Usage struct {
	Value int64     `json:"value"`
	Time  time.Time `json:"time,omitzero"`
}

// Known says whether there is a figure at all.
func (u Usage) Known() bool { return !u.Time.IsZero() }

// DiskUsage is what something takes of a filesystem. Each figure may be unknown.
type DiskUsage struct {
	Bytes, Inodes Usage
}

// ContainerStats is what one container uses. Figures may be unknown.
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

// PodStats is what one pod uses. Figures may be unknown.
type PodStats struct {
	UID types.UID
	// Memory is the working set of the whole pod in bytes, of its sandbox and
	// all containers.
	Memory Usage
	// Processes counts its processes and threads.
	Processes Usage
	// Containers has what is known of each container. Of one that has ended
	// there may be writable layers and logs of several attempts: each is an
	// entry under the same name.
	Containers []ContainerStats
	// Volumes has what is known of each volume. Of which kind it is, is looked
	// up in the pod's spec.
	Volumes []VolumeStats
	// Other is what the pod takes of the node's filesystem beside those, such
	// as logs of the pod and its /etc/hosts.
	Other DiskUsage
}

// maxDiskAge is how old the disk usage of a pod may be to count. To measure a volume of
// millions of files takes many minutes.
const maxDiskAge = time.Hour

// since returns s without what was measured too long ago, as unknown: what is used of
// disks before disk, and all else before rest.
func (s PodStats) since(rest, disk time.Time) PodStats {
	s.Memory, s.Processes = s.Memory.since(rest), s.Processes.since(rest)
	s.Containers, s.Volumes = slices.Clone(s.Containers), slices.Clone(s.Volumes)
	for i := range s.Containers {
		c := &s.Containers[i]
		c.Memory, c.Rootfs, c.Logs = c.Memory.since(rest), c.Rootfs.since(disk), c.Logs.since(disk)
	}
	for i := range s.Volumes {
		s.Volumes[i].DiskUsage = s.Volumes[i].since(disk)
	}
	s.Other = s.Other.since(disk)
	return s
}

func (d DiskUsage) since(t time.Time) DiskUsage {
	return DiskUsage{d.Bytes.since(t), d.Inodes.since(t)}
}

func (u Usage) since(t time.Time) Usage {
	if u.Time.Before(t) {
		return Usage{}
	}
	return u
}

// Stats measures the node and its pods. Both methods are called by one goroutine
// at a time.
//
// A result counts even beside an error: what is in it is used, and the error
// tells why the rest is missing. What is returned is read until the next call of
// the same method and never modified, so that memory may be used again.
type Stats interface {
	// Node measures the node's signals now. It is called as often as every
	// 50 ms and should take microseconds: no walks, no remote calls.
	Node(ctx context.Context) (NodeStats, error)
	// Pods returns what each of the given pods uses, in any order. It is called
	// with the active pods when a victim has to be found and when local storage
	// limits are checked. Memory and processes should be measured now, disk usage
	// may be cached: each figure has its own time. Pods that are not known may be
	// left out of the result. The argument is neither retained nor modified, and may
	// have nil entries.
	Pods(ctx context.Context, pods []*corev1.Pod) ([]PodStats, error)
}

// Level is where a signal is about to matter: a threshold in absolute terms.
type Level struct {
	Signal Signal
	// Available is the amount below which the threshold is met.
	Available int64
}

// Waker tells when it is worth to look before the next poll: when the kernel
// reports that processes wait for memory, for example. A wake-up is never more
// than that: nothing is evicted unless the look finds a threshold met.
type Waker interface {
	// Watch calls wake, with a few words on what happened, whenever a look is
	// due, from any goroutine; wake never blocks. It returns nil when ctx is
	// done, and an error when it cannot watch (any more); it is called again
	// after a while then. No wake comes after it has returned.
	//
	// levels returns the present levels of all hard thresholds, for sources that
	// have to be armed with one; it may be called at any time, and its result
	// changes when the node's capacity does.
	Watch(ctx context.Context, levels func() []Level, wake func(reason string)) error
}
