package podmanager

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// OpType is what happened to a pod. The zero value is none.
type OpType int

// The operations are the kubelet's, and so are their names in text.
const (
	// Add: the pod is new.
	Add OpType = iota + 1
	// Update: what the pod should be has changed, or its source.
	Update
	// Delete: the pod should end gracefully. It has a deletionTimestamp, and that, or
	// what the pod should be, has changed. Its source defines it until it has ended.
	Delete
	// Remove: no source defines the pod any more.
	Remove
	// Reconcile: only the pod's status has changed at its source.
	Reconcile
)

// String returns the name in capitals.
func (t OpType) String() string {
	switch t {
	case Add:
		return "ADD"
	case Update:
		return "UPDATE"
	case Delete:
		return "DELETE"
	case Remove:
		return "REMOVE"
	case Reconcile:
		return "RECONCILE"
	default:
		return "NONE"
	}
}

// Op is one thing that happened to one pod.
type Op struct {
	Type OpType
	// Pod is the pod as it is now, and for Remove as it was. It must not be modified.
	Pod *corev1.Pod
}

// Diff returns the operations that lead from one set of pods to another, at most one for
// each UID: first the removals, in the order of before, so that a name is free when its
// next pod is added, then the others in the order of now. Pods are compared by pointer
// first, and then by what they ask for: labels, annotations, spec and deletion, whether
// or not they have a hash. Neither set is modified.
//
// A caller that passes the set of its last call as before may skip any number of sets:
// the operations still lead to now.
func Diff(before, now []*corev1.Pod) (ops []Op) {
	old := make(map[types.UID]*corev1.Pod, len(before))
	for _, pod := range before {
		old[pod.UID] = pod
	}
	wanted := make(map[types.UID]bool, len(now))
	for _, pod := range now {
		wanted[pod.UID] = true
	}
	for _, pod := range before {
		if !wanted[pod.UID] {
			ops = append(ops, Op{Type: Remove, Pod: pod})
		}
	}
	for _, pod := range now {
		if t := compare(old[pod.UID], pod); t != 0 {
			ops = append(ops, Op{Type: t, Pod: pod})
		}
	}
	return ops
}

func compare(old, pod *corev1.Pod) OpType {
	switch {
	case old == nil:
		return Add
	case old == pod:
		return 0
	case !sameDesire(old, pod):
		if pod.DeletionTimestamp != nil {
			return Delete
		}
		return Update
	case !equality.Semantic.DeepEqual(old.Status, pod.Status):
		return Reconcile
	default:
		return 0
	}
}

// sameDesire reports whether two versions of a pod ask for the same.
func sameDesire(a, b *corev1.Pod) bool {
	return nameOf(a) == nameOf(b) &&
		equality.Semantic.DeepEqual(a.DeletionTimestamp, b.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(notes(a), notes(b)) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// notes returns the annotations without those that only record how the pod came to this
// node. The source is not one of them: it decides whether the pod is static.
func notes(pod *corev1.Pod) map[string]string {
	notes := maps.Clone(pod.Annotations)
	delete(notes, podspec.SeenAnnotation)
	delete(notes, podspec.MirrorAnnotation)
	return notes
}
