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
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
	"github.com/kubeparts/kubeparts/oomwatch"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/status"
)

// Pod is a snapshot of the agent's data about one pod.
type Pod struct {
	// Spec is the pod with its allocated resources and the status that the agent reports. If the
	// pod exists only in the runtime, Spec has only the name, the namespace and the UID.
	Spec *corev1.Pod
	// Source is the name of the pod's source. It is empty if no source defines the pod.
	Source string
	State  State
	// Runtime is the pod's state in the runtime. It is never nil.
	Runtime *podcache.Status
}

// State is the state of a pod on the node, from its definition until its complete removal.
type State uint8

const (
	// Offered pods wait for admission.
	Offered State = iota
	// Refused pods were not admitted. A refused pod of the API server has failed. A refused
	// static pod goes through admission again when the node has changed.
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
	// Gone pods have no data left on the node, and no source defines them. The agent has deleted
	// their records, so only [Observers].Pod receives this state.
	Gone
)

// MayRun reports whether a pod in this state may still use resources of the node.
func (s State) MayRun() bool { return podloop.State(s).MayRun() }

// String returns the state in lower case.
func (s State) String() string { return podloop.State(s).String() }

// Move is a change of a pod's State.
type Move struct {
	Pod      *corev1.Pod
	From, To State
	// Adopted reports whether the pod ran before this agent started.
	Adopted bool
	// Reason describes in a few words why the state changed.
	Reason string
}

// Probe is a probe of a container with its results.
type Probe struct {
	Container string
	Kind      prober.Kind
	Spec      *corev1.Probe
	// Result is the current result of the probe. It changes when the number of successes or
	// failures in a row reaches the probe's threshold.
	Result prober.Result
	// Runs are the most recent runs, oldest first.
	Runs []prober.Record
}

// Explanation describes why a pod is in its state, and what the agent will do next.
type Explanation struct {
	Pod Pod
	// Why lists facts, the most important one first.
	Why []string
	// Next lists what the agent will do, soonest first.
	Next []Step
	// Plan describes what the next sync would do in the runtime.
	Plan string
	// Eviction has the pod's position in the eviction order of each signal with a threshold. The
	// agent evicts the pod at position 1 first. Signals whose order does not contain the pod are
	// omitted.
	Eviction map[eviction.Signal]int
	// Rank describes the pod's position in the eviction order for the signal that is nearest to
	// its threshold. It is empty if [State.MayRun] returns false for the pod.
	Rank string
}

// Step is a future action of the agent.
type Step struct {
	// At is the time of the action. Zero means as soon as possible, or after another event.
	At   time.Time
	What string
}

// Plan is what the agent would do now to free resources of the node.
type Plan struct {
	Eviction   eviction.Decision
	Images     imagegc.Plan
	Containers containergc.Plan
}

// Check is the state of one part of the agent.
type Check struct {
	// Name is the name of the part.
	Name string
	// Err is why the part does not work. Nil means that the part works.
	Err error
	// Fatal reports whether only a restart of the agent can repair the part.
	Fatal bool
	// Notes are further details. A part that works may also have notes.
	Notes []string
}

// LogUsage is the disk usage of the logs of a container, including rotated logs.
type LogUsage struct {
	Pod       *corev1.Pod
	Container string
	Bytes     int64
}

// Observers has optional callbacks for the events of all parts. The goroutines of the parts call
// the callbacks, so the callbacks must not block. Several agents may use the same Observers.
type Observers struct {
	// Pod is called for each change of a pod's State, one at a time and in order.
	Pod func(Move)
	// Edited is called when an admitted pod has a new definition with another spec. The new
	// definition has not gone through admission yet.
	Edited func(before, after *corev1.Pod)
	// Searched is called after each search of [Config].Root for files of pods that no source
	// defines. The first argument is the number of pods with such files. The second argument is the
	// number of these pods that an earlier search has already found.
	Searched func(found, remaining int)
	// Cgroups is called after each operation on the cgroups of pods: create, update or destroy.
	Cgroups func(operation string, took time.Duration)
	// ShutdownStarted is called when [Agent.StopPods] begins to stop the pods, and ShutdownEnded
	// when StopPods returns.
	ShutdownStarted, ShutdownEnded func()
	// Admission receives the decision of each handler. Preemption receives the pods that are
	// preempted for a critical pod.
	Admission   lifecycle.AdmitObserver
	Preemption  lifecycle.NodeObserver
	Workers     podworker.Observer
	Runner      podrunner.Observer
	Hooks       lifecycle.HookObserver
	Images      images.Observer
	Volumes     volumes.Observer
	PLEG        pleg.Observer
	Probes      prober.Observer
	Statuses    status.Observer
	Publisher   status.PublisherObserver
	Eviction    eviction.Observer
	ImageGC     imagegc.Observer
	ContainerGC containergc.Observer
	Logs        logrotate.Observer
	OOM         oomwatch.Observer
	// Killed is called once for each OOM kill on the node, except OOM kills in pods of other
	// agents.
	Killed func(OOMKill)
}

// OOMKill is an OOM kill.
type OOMKill struct {
	oomwatch.Kill
	// Pod is the pod of the killed process. Nil means that the process was not in a pod, or that
	// the pod could not be found.
	Pod *corev1.Pod
	// Container is the name of the container of the killed process. Empty means that the process
	// was not in a container, or that the container could not be found.
	Container string
}
