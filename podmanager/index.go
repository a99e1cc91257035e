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
	shared atomic.Bool // list was returned to a caller; atomic, because readers set this field while they share the read lock
	byUID  map[types.UID]*corev1.Pod
	byName map[types.NamespacedName]*corev1.Pod // the last pod in list with each name
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
// changed. If the name of a pod has changed, set removes the old version and appends the
// new version.
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
		x.list = append(x.list, pod) // slices that were returned do not contain the new element
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

// copyIfShared copies the list if the list was returned to a caller. Call it before a
// change of the list.
func (x *index) copyIfShared() {
	if x.shared.Load() {
		x.list = slices.Clone(x.list)
		x.shared.Store(false)
	}
}

// all returns the list and marks it as shared. The list is clipped, so that an append by
// the caller copies it. The caller needs only the read lock.
func (x *index) all() []*corev1.Pod {
	if !x.shared.Load() { // an unconditional store would make readers compete for the cache line
		x.shared.Store(true)
	}
	return slices.Clip(x.list)
}

// lastOfName returns a map like index.byName: the last pod in list with each name. Methods
// that read many pods compute this map from a snapshot, so that they do not hold the lock
// and do not delay writers.
func lastOfName(list []*corev1.Pod) map[types.NamespacedName]*corev1.Pod {
	byName := make(map[types.NamespacedName]*corev1.Pod, len(list))
	for _, pod := range list {
		byName[nameOf(pod)] = pod
	}
	return byName
}
