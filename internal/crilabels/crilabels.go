// Package crilabels has the labels and annotations that the kubelet sets on its sandboxes
// and containers. This module sets the same labels and annotations, so that crictl, log
// shippers and a kubelet recognise the objects of this module, and this module recognises
// the objects of a kubelet.
package crilabels

import (
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// Labels of sandboxes and containers.
const (
	// PodName is the pod's name, on sandboxes and containers.
	PodName = "io.kubernetes.pod.name"
	// PodNamespace is the pod's namespace, on sandboxes and containers.
	PodNamespace = "io.kubernetes.pod.namespace"
	// PodUID is the pod's UID, on sandboxes and containers.
	PodUID = "io.kubernetes.pod.uid"
	// ContainerName is the container's name in the pod's spec.
	ContainerName = "io.kubernetes.container.name"
	// Agent is the name of the agent that created the object. The kubelet does not set this
	// label. A runtime may have other clients, so by default an agent changes only objects
	// with its own name in this label.
	Agent = "io.kubeparts.agent"
)

// Annotations of containers.
const (
	// Hash is the kubelet's hash of the container's name and image, in hexadecimal. If a
	// kubelet replaces the agent on the node, the kubelet restarts each container whose
	// hash differs.
	Hash = "io.kubernetes.container.hash"
	// Definition is the hash of the container's whole definition except its resources, at
	// the time of the container's creation. The kubelet does not set this annotation.
	Definition = "io.kubeparts.container.definition"
	// RestartCount is the restart count of the container at the time of the container's
	// creation, in decimal.
	RestartCount = "io.kubernetes.container.restartCount"
	// TerminationMessagePath is the path of the container's termination message.
	TerminationMessagePath = "io.kubernetes.container.terminationMessagePath"
	// TerminationMessagePolicy is the container's terminationMessagePolicy.
	TerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	// PodTerminationGracePeriod is the pod's grace period in seconds, in decimal. It is not
	// set if the pod has no grace period.
	PodTerminationGracePeriod = "io.kubernetes.pod.terminationGracePeriod"
	// PodDeletionGracePeriod is the grace period of the pod's deletion in seconds, in
	// decimal. It is set only on a container that is created while the pod is being deleted.
	PodDeletionGracePeriod = "io.kubernetes.pod.deletionGracePeriod"
	// PreStopHandler is the container's preStop hook as JSON. It is not set if the
	// container has no preStop hook.
	PreStopHandler = "io.kubernetes.container.preStopHandler"
)

// UID returns the pod's UID in labels, or an empty UID if labels has no UID.
func UID(labels map[string]string) types.UID { return types.UID(labels[PodUID]) }

// Restarts returns the restart count in annotations. It returns 0 if the count is not set
// or not a number, as in the kubelet.
func Restarts(annotations map[string]string) int {
	n, err := strconv.Atoi(annotations[RestartCount])
	if err != nil {
		return 0
	}
	return n
}
