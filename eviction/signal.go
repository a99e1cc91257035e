package eviction

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Resources that only events and messages name.
const (
	resourceInodes corev1.ResourceName = "inodes"
	resourcePIDs   corev1.ResourceName = "pids"
)

// allSignals are in the order in which thresholds that are due at once are acted upon:
// what kills the node soonest is first, bytes come before inodes, and the thresholds that
// were set before those of containerfs, which follow from them.
func allSignals() []Signal {
	return []Signal{
		MemoryAvailable, AllocatableMemoryAvailable, PIDAvailable,
		NodeFSAvailable, NodeFSInodesFree,
		ImageFSAvailable, ImageFSInodesFree,
		ContainerFSAvailable, ContainerFSInodesFree,
	}
}

// index returns the place of s in allSignals, -1 for one that does not exist.
func (s Signal) index() int { return slices.Index(allSignals(), s) }

// urgency is the index, but the same for both signals of memory.
func (s Signal) urgency() int { return max(s.index(), 1) }

// resource is what the signal is of, as events and messages name it.
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

// condition is the node condition that the signal tells of.
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

// isDisk says whether what a killed pod held is free only when it was cleaned
// up, and not when its processes have ended.
func (s Signal) isDisk() bool { return s.condition() == corev1.NodeDiskPressure }

// inBytes says whether amounts of the signal are bytes, and not counts.
func (s Signal) inBytes() bool {
	r := s.resource()
	return r == corev1.ResourceMemory || r == corev1.ResourceEphemeralStorage
}

// source returns the signal of the same device whose thresholds also stand for
// the containerfs signal s.
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

// parts are the places where a pod keeps things on disks.
type parts struct{ rootfs, logs, volumes bool }

// partsOn returns which parts of a pod take space of the disk that s is of.
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

// ReclaimAction is something that frees a disk without evicting a pod.
type ReclaimAction string

// Actions, in the order in which they are taken.
const (
	// DeleteContainers removes containers that have ended.
	DeleteContainers ReclaimAction = "delete unused containers"
	// DeleteImages removes images that no container uses.
	DeleteImages ReclaimAction = "delete unused images"
)

// reclaims returns what frees the disk that s is of, nothing for memory and
// processes.
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
