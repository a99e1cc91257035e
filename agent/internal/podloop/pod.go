package podloop

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/podcache"
)

// State is how far a pod has come.
type State uint8

const (
	// Offered pods wait for admission.
	Offered State = iota
	// Refused pods were not admitted. An API pod has failed; a static pod is asked about again
	// when the node has changed.
	Refused
	// Admitted pods are kept running.
	Admitted
	// Ending pods are being stopped.
	Ending
	// Ended pods have nothing running, and nothing will. Their allocations are released.
	Ended
	// Removed pods have nothing left on the node; a source still defines them.
	Removed
	// Gone pods are not known any more. Only [Observers].Pod sees this state.
	Gone
)

// MayRun reports whether a pod in this state holds something of the node.
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
	// Adopted reports that the pod ran before this agent began.
	Adopted bool
	// Reason is why, in a few words.
	Reason string
}

// Pod is what is known of one pod at one moment. It is shared and must not be modified.
type Pod struct {
	// Spec is the pod with its newest status and the resources that it was allocated. Of a pod
	// that only the runtime knows it has names and UID.
	Spec *corev1.Pod
	// Source is the name of its source, empty if no source defines the pod.
	Source string
	State  State
	// Runtime is what the runtime shows of it, never nil.
	Runtime *podcache.Status
}

// Explanation is why a pod is in its state.
type Explanation struct {
	Pod Pod
	// Why has facts, the most important first.
	Why []string
	// Next is what will happen, the soonest first.
	Next []Step
	// Plan is what the next sync would do in the runtime. Empty: nothing, or the pod is not
	// kept running.
	Plan string
}

// Step is something that will happen. Zero At: as soon as possible.
type Step struct {
	At   time.Time
	What string
}

// Check is the state of one part.
type Check struct {
	Name string
	// Err is why the part cannot do its work; nil if it can.
	Err error
	// Fatal reports that only a restart of the agent can help.
	Fatal bool
	// Notes are worth knowing although Err is nil.
	Notes []string
}
