package podmanager

import (
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// index is a set of pods in the order in which they were added, with lookups by UID and by
// name. The caller must guard it with an RWMutex.
type index struct {
	list   []*corev1.Pod
	shared atomic.Bool // list was returned to a caller; atomic, because readers set it
	byUID  map[types.UID]*corev1.Pod
	byName map[types.NamespacedName]*corev1.Pod // for each name the last pod in list
}

func newIndex(size int) *index {
	return &index{
		list:   make([]*corev1.Pod, 0, size),
		byUID:  make(map[types.UID]*corev1.Pod, size),
		byName: make(map[types.NamespacedName]*corev1.Pod, size),
	}
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// set replaces the pod with the same UID, or appends pod, and reports whether anything
// changed. A pod with a new name is appended like a new pod.
func (x *index) set(pod *corev1.Pod) bool {
	name := nameOf(pod)
	old, known := x.byUID[pod.UID]
	if old == pod && known {
		return false
	}
	if known && nameOf(old) != name {
		x.remove(pod.UID)
		known = false
	}
	x.byUID[pod.UID] = pod
	if !known {
		x.list = append(x.list, pod) // beyond the length of any slice that was returned
		x.byName[name] = pod
		return true
	}
	x.copyIfShared()
	x.list[slices.Index(x.list, old)] = pod
	if x.byName[name] == old {
		x.byName[name] = pod
	}
	return true
}

// remove removes the pod with the given UID, and reports whether it was in the index.
func (x *index) remove(uid types.UID) bool {
	old, known := x.byUID[uid]
	if !known {
		return false
	}
	x.copyIfShared()
	i := slices.Index(x.list, old)
	x.list = slices.Delete(x.list, i, i+1)
	delete(x.byUID, uid)

	name := nameOf(old)
	if x.byName[name] != old {
		return true
	}
	delete(x.byName, name)
	for _, pod := range slices.Backward(x.list) {
		if nameOf(pod) == name {
			x.byName[name] = pod
			break
		}
	}
	return true
}

// copyIfShared copies the list before it is changed if it was returned to a caller.
func (x *index) copyIfShared() {
	if x.shared.Load() {
		x.list = slices.Clone(x.list)
		x.shared.Store(false)
	}
}

// all returns the list, which becomes shared, clipped so that a caller's append copies it.
// The caller needs the read lock only.
func (x *index) all() []*corev1.Pod {
	if !x.shared.Load() { // an unconditional store would make readers compete for the cache line
		x.shared.Store(true)
	}
	return slices.Clip(x.list)
}

// lastOfName returns the last pod of each name in a list, as index.byName does. Readers
// that visit many pods compute it from a snapshot, so that they do not hold the lock and
// delay writers.
func lastOfName(list []*corev1.Pod) map[types.NamespacedName]*corev1.Pod {
	byName := make(map[types.NamespacedName]*corev1.Pod, len(list))
	for _, pod := range list {
		byName[nameOf(pod)] = pod
	}
	return byName
}
