package podloop

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/podcache"
)

// State is the stage of a pod's life on the node.
type State uint8

const (
	// Offered pods wait for admission.
	Offered State = iota
	// Refused pods were not admitted. An API pod has failed; a static pod goes through
	// admission again when the node has changed.
	Refused
	// Admitted pods are running or being started.
	Admitted
	// Ending pods are being stopped.
	Ending
	// Ended pods have no running container and will not start one. Their allocations are
	// released.
	Ended
	// Removed pods have no data left on the node. A source still defines them.
	Removed
	// Gone pods are forgotten. Only [Observers].Pod sees this state.
	Gone
)

// MayRun reports whether a pod in this state may still use resources of the node.
func (s State) MayRun() bool { return s == Admitted || s == Ending }

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Offered:
		return "offered"
	case Refused:
		return "refused"
	case Admitted:
		return "admitted"
	case Ending:
		return "ending"
	case Ended:
		return "ended"
	case Removed:
		return "removed"
	default:
		return "gone"
	}
}

// Move is a change of a pod's state.
type Move struct {
	Pod      *corev1.Pod
	From, To State
	// Adopted reports whether the pod ran before this agent started.
	Adopted bool
	// Reason describes in a few words why the state changed.
	Reason string
}

// Pod is a snapshot of what the loop knows of one pod. It is shared and must not be modified.
type Pod struct {
	// Spec is the pod with its newest status and its allocated resources. If only the runtime
	// knows the pod, Spec has just names and UID.
	Spec *corev1.Pod
	// Source is the name of the pod's source, empty if no source defines it.
	Source string
	State  State
	// Runtime is the pod's state in the runtime. It is never nil.
	Runtime *podcache.Status
}

// Explanation describes why a pod is in its state, and what comes next.
type Explanation struct {
	Pod Pod
	// Why lists facts, the most important one first.
	Why []string
	// Next lists what will happen, soonest first.
	Next []Step
	// Plan describes what the next sync would do in the runtime. It is empty if the sync would
	// do nothing, or if the pod is not admitted.
	Plan string
}

// Step is a future action. A zero At means as soon as possible, or after another event.
type Step struct {
	At   time.Time
	What string
}

// Check is the state of one part.
type Check struct {
	Name string
	// Err is why the part does not work, nil if it works.
	Err error
	// Fatal reports whether only a restart of the agent can help.
	Fatal bool
	// Notes are details worth knowing although Err is nil.
	Notes []string
}
