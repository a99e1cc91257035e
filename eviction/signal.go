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

// allSignals returns all signals in the order in which thresholds that are due at the
// same time are acted on: the most dangerous shortage first, bytes before inodes, and
// containerfs signals last, because their thresholds follow from the others.
func allSignals() []Signal {
	return []Signal{
		MemoryAvailable, AllocatableMemoryAvailable, PIDAvailable,
		NodeFSAvailable, NodeFSInodesFree,
		ImageFSAvailable, ImageFSInodesFree,
		ContainerFSAvailable, ContainerFSInodesFree,
	}
}

// index returns the place of s in allSignals, -1 if s does not exist.
func (s Signal) index() int { return slices.Index(allSignals(), s) }

// urgency returns the index, with the same value for both memory signals.
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

// isDisk reports whether the signal is of a disk. The disk space of a killed pod is free
// only when the pod was cleaned up, not when its processes have exited.
func (s Signal) isDisk() bool { return s.condition() == corev1.NodeDiskPressure }

// inBytes reports whether amounts of the signal are bytes and not counts.
func (s Signal) inBytes() bool {
	r := s.resource()
	return r == corev1.ResourceMemory || r == corev1.ResourceEphemeralStorage
}

// source returns the signal of the same filesystem whose thresholds also apply to the
// containerfs signal s.
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

// parts are the places where a pod has data on disk.
type parts struct{ rootfs, logs, volumes bool }

// partsOn returns which parts of a pod are on the disk of s.
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

// Actions, in the order in which they run.
const (
	// DeleteContainers deletes dead containers.
	DeleteContainers ReclaimAction = "delete unused containers"
	// DeleteImages deletes images that no container uses.
	DeleteImages ReclaimAction = "delete unused images"
)

// reclaims reports which actions free the disk of s: neither for memory and processes.
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
