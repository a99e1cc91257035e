package podmanager

import (
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// index is a set of pods in the order in which they were added, found by UID and
// by name. It needs an RWMutex around it.
type index struct {
	list   []*corev1.Pod
	lent   atomic.Bool // list has been handed out; atomic, because readers set it
	byUID  map[types.UID]*corev1.Pod
	byName map[types.NamespacedName]*corev1.Pod // the last in list of each name
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

// set puts pod in the place of the one with its UID, or at the end, and says
// whether that changed anything. A pod that changes its name is a new one.
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
		x.list = append(x.list, pod) // behind what any borrower can see
		x.byName[name] = pod
		return true
	}
	x.own()
	x.list[slices.Index(x.list, old)] = pod
	if x.byName[name] == old {
		x.byName[name] = pod
	}
	return true
}

// remove forgets the pod with the given UID, and says whether there was one.
func (x *index) remove(uid types.UID) bool {
	old, known := x.byUID[uid]
	if !known {
		return false
	}
	x.own()
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

// own makes the list one that nobody else has, before it is changed.
func (x *index) own() {
	if x.lent.Load() {
		x.list = slices.Clone(x.list)
		x.lent.Store(false)
	}
}

// all lends the list: without room to append into. A read lock is enough.
func (x *index) all() []*corev1.Pod {
	if !x.lent.Load() { // a store each time would make readers fight for the cache line
		x.lent.Store(true)
	}
	return slices.Clip(x.list)
}

// lastOfName indexes a list as an index has it by name. A reader makes it for
// itself where holding the lock for as long as its answer takes would delay writers.
func lastOfName(list []*corev1.Pod) map[types.NamespacedName]*corev1.Pod {
	byName := make(map[types.NamespacedName]*corev1.Pod, len(list))
	for _, pod := range list {
		byName[nameOf(pod)] = pod
	}
	return byName
}
