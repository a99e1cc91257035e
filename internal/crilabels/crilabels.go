// Package crilabels holds the labels and annotations by which the kubelet marks
// its sandboxes and containers, so that crictl, log shippers and a kubelet know
// ours and we know theirs.
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
	// ContainerName is the container's name in its pod's spec.
	ContainerName = "io.kubernetes.container.name"
	// Agent is ours: the name of the agent that made the object. A runtime may
	// serve others too, and what does not carry it is not ours to touch.
	Agent = "io.kubeparts.agent"
)

// Annotations of containers.
const (
	// Hash is the kubelet's hash of the container's name and image, in hexadecimal. A
	// kubelet that takes over the node restarts each container whose hash differs.
	Hash = "io.kubernetes.container.hash"
	// Definition is ours: the hash of the container's whole definition but for its
	// resources, as it was when the container was made.
	Definition = "io.kubeparts.container.definition"
	// RestartCount is how often the container had been restarted when it was
	// made, in decimal.
	RestartCount = "io.kubernetes.container.restartCount"
	// TerminationMessagePath is where the container leaves its last words.
	TerminationMessagePath = "io.kubernetes.container.terminationMessagePath"
	// TerminationMessagePolicy is how they are read.
	TerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	// PodTerminationGracePeriod is the pod's grace period in seconds, in decimal;
	// absent where the pod has none.
	PodTerminationGracePeriod = "io.kubernetes.pod.terminationGracePeriod"
	// PodDeletionGracePeriod is the deletion's grace period in seconds, in
	// decimal; absent while the pod is not being deleted.
	PodDeletionGracePeriod = "io.kubernetes.pod.deletionGracePeriod"
	// PreStopHandler is the container's preStop hook as JSON; absent where it has none.
	PreStopHandler = "io.kubernetes.container.preStopHandler"
)

// UID returns the pod's UID in labels, empty if there is none.
func UID(labels map[string]string) types.UID { return types.UID(labels[PodUID]) }

// Restarts returns the restart count in annotations, 0 where it is missing or not a
// number, as in the kubelet.
func Restarts(annotations map[string]string) int {
	n, err := strconv.Atoi(annotations[RestartCount])
	if err != nil {
		return 0
	}
	return n
}
