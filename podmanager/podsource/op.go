package podsource

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// OpType is what happened to a pod. The zero value is none.
type OpType int

// The operations are the kubelet's, and so are their names in text.
const (
	// Add says that the pod is new.
	Add OpType = iota + 1
	// Update says that what the pod should be has changed.
	Update
	// Delete says that the pod should end gracefully: it has a deletionTimestamp,
	// and that, or what the pod should be, has changed. It is still wanted until
	// then.
	Delete
	// Remove says that the source does not give the pod any more.
	Remove
	// Reconcile says that the pod is the same, and its status in the source is
	// another.
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

// Diff returns the operations that lead from one set of pods to another, one at most
// for each UID: first what is removed, in the order of before, so that a name is free
// when its next pod comes, and then the rest in the order of now. Pods that are the
// same object or read the same lead to none.
//
// A stream of such differences, each from the set that was told last, loses nothing
// however many changes it skips.
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

// sameDesire says whether two versions of a pod ask for the same.
func sameDesire(a, b *corev1.Pod) bool {
	return a.Name == b.Name && a.Namespace == b.Namespace &&
		equality.Semantic.DeepEqual(a.DeletionTimestamp, b.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(notes(a), notes(b)) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// notes are the annotations apart from those about how the pod came to this node.
func notes(pod *corev1.Pod) map[string]string {
	notes := maps.Clone(pod.Annotations)
	for _, ours := range []string{SourceAnnotation, SeenAnnotation, corev1.MirrorPodAnnotationKey} {
		delete(notes, ours)
	}
	return notes
}
