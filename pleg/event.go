package pleg

import "k8s.io/apimachinery/pkg/types"

// EventType says what happened to a pod. The values are the kubelet's.
type EventType string

// Sandboxes count as containers here, as in the kubelet: a ready one runs, one
// that is not ready has died.
const (
	// ContainerStarted says that a container runs that did not.
	ContainerStarted EventType = "ContainerStarted"
	// ContainerDied says that a container has exited, or has vanished without
	// having been seen to exit.
	ContainerDied EventType = "ContainerDied"
	// ContainerRemoved says that a container is gone; it follows a ContainerDied.
	ContainerRemoved EventType = "ContainerRemoved"
	// ContainerChanged says that a container was created, or that the runtime
	// does not know its state. Nobody has to act on that, so as in the kubelet it
	// refreshes the cache and is shown to [Observer].Event, but is not delivered.
	ContainerChanged EventType = "ContainerChanged"
	// PodSync says that the pod was inspected anew, on request or after a failure,
	// and that no container's state had changed.
	PodSync EventType = "PodSync"
)

// Event says that the handler should look at a pod.
type Event struct {
	PodUID types.UID
	Type   EventType
	// ContainerID is the CRI id of the container or sandbox, empty for PodSync.
	ContainerID string
}
