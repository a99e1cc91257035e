package podmanager

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// OpType is the kind of an operation. The zero value means no operation.
type OpType int

// The operations and their names are those of the kubelet.
const (
	// Add means that the pod is new.
	Add OpType = iota + 1
	// Update means that the desired state of the pod has changed, or that another source
	// defines the pod now.
	Update
	// Delete means that the pod should terminate gracefully: its deletionTimestamp is set,
	// and the deletionTimestamp or another part of its desired state has changed. The source
	// still defines the pod until the pod has terminated.
	Delete
	// Remove means that no source defines the pod any more.
	Remove
	// Reconcile means that only the pod's status has changed at its source.
	Reconcile
)

// String returns the kubelet's name of the operation, such as ADD, or NONE for any other
// value.
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

// Op is one operation on one pod.
type Op struct {
	Type OpType
	// Pod is the current version of the pod, or its last version if Type is Remove. The pod
	// must not be modified.
	Pod *corev1.Pod
}

// Diff returns the operations that lead from one set of pods to another, at most one for
// each UID. The removals come first, in the order of the old set, so that a pod is removed
// before another pod with its name is added. The other operations follow in the order of
// the new set. Neither set is modified.
//
// Two equal pointers mean that the pod has not changed. Otherwise Diff compares the desired
// state, and then the status. The desired state is the name, the namespace, the labels, the
// spec, the deletionTimestamp, the deletionGracePeriodSeconds, and the annotations except
// kubernetes.io/config.seen and kubernetes.io/config.mirror. Diff does not rely on the hash
// annotation.
//
// A caller may skip sets. As the first argument, it then passes the last set that it has
// processed.
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
	case !equalDesired(old, pod):
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

// equalDesired reports whether two versions of a pod have the same desired state.
func equalDesired(a, b *corev1.Pod) bool {
	return nameOf(a) == nameOf(b) &&
		equality.Semantic.DeepEqual(a.DeletionTimestamp, b.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(comparedAnnotations(a), comparedAnnotations(b)) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// comparedAnnotations returns the annotations of the pod, without the annotations that
// only record how the pod came to this node. The source annotation is included, because it
// decides whether the pod is static.
func comparedAnnotations(pod *corev1.Pod) map[string]string {
	compared := maps.Clone(pod.Annotations)
	delete(compared, podspec.SeenAnnotation)
	delete(compared, podspec.MirrorAnnotation)
	return compared
}
