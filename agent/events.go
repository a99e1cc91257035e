package agent

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// recorder passes events to an [EventRecorder]. It replaces pods and nodes with object references.
// The recorder of client-go needs the kind of an object, and typed objects don't have a kind.
type recorder struct{ to EventRecorder }

// Eventf records an event without annotations.
func (r recorder) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	r.AnnotatedEventf(object, nil, eventtype, reason, messageFmt, args...)
}

// AnnotatedEventf records an event. Without an EventRecorder it does nothing.
func (r recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any) {
	if r.to == nil {
		return
	}
	r.to.AnnotatedEventf(reference(object), annotations, eventtype, reason, messageFmt, args...)
}

// reference returns an object reference for a pod or a node. It returns any other object
// unchanged.
func reference(object runtime.Object) runtime.Object {
	switch o := object.(type) {
	case *corev1.Pod:
		return &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		}
	case *corev1.Node:
		// kubectl describe shows events with the node's UID, and events with the node's name as UID.
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: o.Name, UID: cmp.Or(o.UID, types.UID(o.Name))}
	default:
		return object
	}
}
