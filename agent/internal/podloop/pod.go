package podloop

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/podcache"
)

// State is the state of a pod on the node, from its definition until its complete removal.
type State uint8

const (
	// Offered pods wait for admission.
	Offered State = iota
	// Refused pods were not admitted. A refused API pod has failed. A refused static pod goes
	// through admission again when the node has changed.
	Refused
	// Admitted pods are running or being started.
	Admitted
	// Ending pods are being stopped.
	Ending
	// Ended pods have no running container, and none of their containers will be started. Their
	// allocations are released.
	Ended
	// Removed pods have no data left on the node. A source still defines them.
	Removed
	// Gone pods have no data left on the node, and no source defines them. Their records are
	// deleted, so only [Observers].Pod receives this state.
	Gone
)

// MayRun reports whether the state is Admitted or Ending. Pods in these states may use resources of
// the node. Pods in other states use resources only while containers of an earlier agent run.
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

// Pod is a snapshot of the loop's data about one pod. It is shared and must not be modified.
type Pod struct {
	// Spec is the pod with its newest status and its allocated resources. If the pod exists only
	// in the runtime, Spec has only the name, the namespace and the UID.
	Spec *corev1.Pod
	// Source is the name of the pod's source. It is empty if no source defines the pod.
	Source string
	State  State
	// Runtime is the pod's state in the runtime. It is never nil.
	Runtime *podcache.Status
}

// Explanation describes why a pod is in its state, and what the agent will do next.
type Explanation struct {
	Pod Pod
	// Why lists facts, the most important one first.
	Why []string
	// Next lists what the agent will do, soonest first.
	Next []Step
	// Plan describes what the next sync would do in the runtime, and which containers would wait. It
	// is empty if the sync would do nothing and no container would wait, or if the pod is not
	// admitted.
	Plan string
}

// Step is a future action of the agent. If At is zero, the agent acts as soon as possible, or after
// an event that What names.
type Step struct {
	At   time.Time
	What string
}

// Check is the state of one part of the loop.
type Check struct {
	Name string
	// Err is why the part does not work. Nil means that the part works.
	Err error
	// Fatal reports whether only a restart of the agent can repair the part.
	Fatal bool
	// Notes are further details. A part that works may also have notes.
	Notes []string
}
