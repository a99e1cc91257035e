package eviction

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Resource names that occur only in events and messages.
const (
	resourceInodes corev1.ResourceName = "inodes"
	resourcePIDs   corev1.ResourceName = "pids"
)

// allSignals returns all signals in the order in which PlanEviction acts on them if
// several thresholds are due: the most dangerous shortage first, and bytes before inodes.
// Containerfs signals are last, because their thresholds are copies of other thresholds.
func allSignals() []Signal {
	return []Signal{
		MemoryAvailable, AllocatableMemoryAvailable, PIDAvailable,
		NodeFSAvailable, NodeFSInodesFree,
		ImageFSAvailable, ImageFSInodesFree,
		ContainerFSAvailable, ContainerFSInodesFree,
	}
}

// index returns the index of s in allSignals, or -1 if s is not a signal.
func (s Signal) index() int { return slices.Index(allSignals(), s) }

// urgency returns the index of s in allSignals, but the same value for both memory
// signals.
func (s Signal) urgency() int { return max(s.index(), 1) }

// resource returns the resource of the signal, as named in events and messages.
func (s Signal) resource() corev1.ResourceName {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return corev1.ResourceMemory
	case PIDAvailable:
		return resourcePIDs
	case NodeFSInodesFree, ImageFSInodesFree, ContainerFSInodesFree:
		return resourceInodes
	default:
		return corev1.ResourceEphemeralStorage
	}
}

// condition returns the node condition of the signal.
func (s Signal) condition() corev1.NodeConditionType {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return corev1.NodeMemoryPressure
	case PIDAvailable:
		return corev1.NodePIDPressure
	default:
		return corev1.NodeDiskPressure
	}
}

// isDisk reports whether s is a signal of a disk. The disk space of a killed pod becomes
// free only when its data is removed, some time after its processes have exited.
func (s Signal) isDisk() bool { return s.condition() == corev1.NodeDiskPressure }

// inBytes reports whether amounts of the signal are bytes and not counts.
func (s Signal) inBytes() bool {
	r := s.resource()
	return r == corev1.ResourceMemory || r == corev1.ResourceEphemeralStorage
}

// source returns the nodefs or imagefs signal whose thresholds also apply to the
// containerfs signal s, because both signals are of the same filesystem.
func (s Signal) source(layout Layout) Signal {
	switch {
	case s == ContainerFSAvailable && layout == DedicatedImageFS:
		return ImageFSAvailable
	case s == ContainerFSAvailable:
		return NodeFSAvailable
	case layout == DedicatedImageFS:
		return ImageFSInodesFree
	default:
		return NodeFSInodesFree
	}
}

// parts is a set of the kinds of data that a pod has on disk.
type parts struct{ rootfs, logs, volumes bool }

// partsOn returns the kinds of a pod's data that are on the disk of s.
func (s Signal) partsOn(layout Layout) parts {
	switch s {
	case NodeFSAvailable, NodeFSInodesFree:
		return parts{rootfs: layout != DedicatedImageFS, logs: true, volumes: true}
	case ImageFSAvailable, ImageFSInodesFree:
		if layout == SplitFS {
			return parts{}
		}
	default:
	}
	if layout == DedicatedImageFS {
		return parts{rootfs: true}
	}
	return parts{rootfs: true, logs: true, volumes: true}
}

// ReclaimAction is an action that frees disk space without evicting a pod.
type ReclaimAction string

// Reclaim actions, in the order in which they run.
const (
	// DeleteContainers deletes dead containers.
	DeleteContainers ReclaimAction = "delete unused containers"
	// DeleteImages deletes images that no container uses.
	DeleteImages ReclaimAction = "delete unused images"
)

// reclaims reports which actions free space on the disk of s. Both results are false for
// memory and processes.
func (s Signal) reclaims(layout Layout) (containers, images bool) {
	if !s.isDisk() {
		return false, false
	}
	onImageFS := s == ImageFSAvailable || s == ImageFSInodesFree
	onNodeFS := s == NodeFSAvailable || s == NodeFSInodesFree
	switch layout {
	case DedicatedImageFS:
		return !onNodeFS, !onNodeFS
	case SplitFS:
		return !onImageFS, onImageFS
	default:
		return true, true
	}
}
