package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/internal/podloop"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/oomwatch"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/status"
)

// Pod is what the agent knows of one pod at one moment.
type Pod struct {
	// Spec is the pod with the status that the agent reports and the resources that it was
	// allocated. Of a pod that only the runtime knows, it has name and UID.
	Spec *corev1.Pod
	// Source is the name of the pod's source. Empty: no source defines the pod any more.
	Source string
	State  State
	// Runtime is what the runtime shows of the pod. It is never nil.
	Runtime *podcache.Status
}

// State is how far a pod has come.
type State uint8

const (
	// Offered pods wait for admission.
	Offered State = iota
	// Refused pods were not admitted. A pod of the API server has failed; a static pod is
	// asked about again when the node has changed.
	Refused
	// Admitted pods are kept running.
	Admitted
	// Ending pods are being stopped.
	Ending
	// Ended pods have no running container and will have none. Their allocations are
	// released.
	Ended
	// Removed pods have left nothing on the node. Their source still defines them.
	Removed
	// Gone pods are not known any more. Only [Observers].Pod sees this state.
	Gone
)

// MayRun reports whether a pod in this state may hold something of the node.
func (s State) MayRun() bool { return podloop.State(s).MayRun() }

// String returns the state in lower case.
func (s State) String() string { return podloop.State(s).String() }

// Move is a change of a pod's State.
type Move struct {
	Pod      *corev1.Pod
	From, To State
	// Adopted reports that the pod ran before this agent started.
	Adopted bool
	// Reason is why, in a few words.
	Reason string
}

// Probe is a probe of a container and what it has found.
type Probe struct {
	Container string
	Kind      prober.Kind
	Spec      *corev1.Probe
	// Result is what all runs amount to, by the thresholds of the probe.
	Result prober.Result
	// Runs are the last ones, oldest first.
	Runs []prober.Record
}

// Explanation is why a pod is in its state, and what comes next.
type Explanation struct {
	Pod Pod
	// Why has facts, the most important one first.
	Why []string
	// Next is what the agent will do, soonest first.
	Next []Step
	// Plan is what the next sync would do in the runtime.
	Plan string
	// Eviction is the pod's place in the order of eviction, from 1, for each signal that has
	// a threshold.
	Eviction map[eviction.Signal]int
	// Rank is the pod's place in the order of eviction, in words, for the signal that is
	// nearest to its threshold. Empty: the pod holds nothing of the node.
	Rank string
}

// Step is something that the agent will do.
type Step struct {
	// At is when. Zero: as soon as possible, or when something else has happened.
	At   time.Time
	What string
}

// Plan is what would be done to free resources of the node.
type Plan struct {
	Eviction   eviction.Decision
	Images     imagegc.Plan
	Containers containergc.Plan
}

// Check is the state of one part of the agent.
type Check struct {
	// Name is the part's.
	Name string
	// Err is why the part cannot do its work. Nil: it can.
	Err error
	// Fatal reports that only a restart of the agent can help.
	Fatal bool
	// Notes are worth knowing although Err is nil.
	Notes []string
}

// Observers are optional callbacks of all parts. They are called by the goroutines of the
// parts and must not block. One value may serve many agents.
type Observers struct {
	// Pod is called for each change of a pod's State, for one pod in order.
	Pod func(Move)
	// Admission sees the answer of each handler, and Preemption the pods that a critical pod
	// displaces.
	Admission   lifecycle.AdmitObserver
	Preemption  lifecycle.NodeObserver
	Workers     podworker.Observer
	Runner      podrunner.Observer
	Hooks       lifecycle.HookObserver
	Images      images.Observer
	PLEG        pleg.Observer
	Probes      prober.Observer
	Statuses    status.Observer
	Publisher   status.PublisherObserver
	Eviction    eviction.Observer
	ImageGC     imagegc.Observer
	ContainerGC containergc.Observer
	Logs        logrotate.Observer
	OOM         oomwatch.Observer
	// Killed is called once for each OOM kill of a container of this agent.
	Killed func(OOMKill)
}

// OOMKill is an OOM kill in a container of this agent.
type OOMKill struct {
	oomwatch.Kill
	// Pod is the container's pod. Nil: it could not be found.
	Pod *corev1.Pod
	// Container is the container's name. Empty: it could not be found.
	Container string
}
