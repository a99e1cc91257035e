package prober

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is what a probe is for.
type Kind uint8

// The kinds of probes, in the order in which they are added.
const (
	// Startup says when a container has started; until then the others wait.
	Startup Kind = iota
	// Readiness says whether a container is to get traffic.
	Readiness
	// Liveness says whether a container is to live on.
	Liveness
)

// String returns the kubelet's word for k: "Startup", "Readiness" or "Liveness".
func (k Kind) String() string {
	switch k {
	case Startup:
		return "Startup"
	case Readiness:
		return "Readiness"
	case Liveness:
		return "Liveness"
	default:
		return "Unknown"
	}
}

// of returns the probe of this kind that c asks for, or nil.
func (k Kind) of(c *corev1.Container) *corev1.Probe {
	switch k {
	case Startup:
		return c.StartupProbe
	case Readiness:
		return c.ReadinessProbe
	case Liveness:
		return c.LivenessProbe
	default:
		return nil
	}
}

// Key names a probe on the node.
type Key struct {
	// PodUID and Container name the container.
	PodUID    types.UID
	Container string
	// Kind says which of its probes.
	Kind Kind
}

// Result is what all runs of a probe so far amount to, by its thresholds. The
// values are those of the status package's ProbeResult, so that one converts to
// the other.
type Result uint8

// The results.
const (
	// NoProbe means that the container has no such probe.
	NoProbe Result = iota
	// Unknown means that nothing is known of this very container: what was last
	// said of it stands.
	Unknown
	// Success means that it is well: the probe has succeeded often enough, or,
	// for liveness, not yet failed often enough.
	Success
	// Failure means that it is not: the probe has failed often enough, or, for
	// readiness, not yet succeeded often enough.
	Failure
)

// String returns the name of r.
func (r Result) String() string {
	switch r {
	case NoProbe:
		return "NoProbe"
	case Unknown:
		return "Unknown"
	case Success:
		return "Success"
	case Failure:
		return "Failure"
	default:
		return "Invalid"
	}
}

// Outcome is what one run of a probe found.
type Outcome uint8

// The outcomes.
const (
	// Succeeded means that the container answered as it should.
	Succeeded Outcome = iota
	// Warned means a success that somebody should look at, such as a redirect to
	// another host.
	Warned
	// Failed means that it did not answer as it should, or not in time.
	Failed
	// Errored means that the probe could not be run, which says nothing of the
	// container. See [ErrorPolicy].
	Errored
)

// String returns the kubelet's word for o: "success", "warning", "failure" or
// "unknown".
func (o Outcome) String() string {
	switch o {
	case Succeeded:
		return "success"
	case Warned:
		return "warning"
	case Failed:
		return "failure"
	case Errored:
		return "unknown"
	default:
		return "invalid"
	}
}

// State is what a container does.
type State uint8

// The states of a container.
const (
	// Waiting is any state before Running.
	Waiting State = iota
	// Running containers are the ones that are probed.
	Running
	// Exited containers are not ready any more.
	Exited
)

// Target is what is known of a container at the moment.
type Target struct {
	// ID is the container's CRI id. Empty means that there is none yet.
	ID string
	// State says whether it runs.
	State State
	// StartedAt is when it began to run.
	StartedAt time.Time
	// ExitCode is that of an Exited one.
	ExitCode int32
	// PodIP is the address that probes without a host of their own go to.
	PodIP string
	// Started is what was last said of this very container by the node, before an
	// agent's restart too. It matters only for a container older than the [Manager].
	Started bool
	// Ended says that the pod has Succeeded or Failed.
	Ended bool
}

// Record is one run of a probe.
type Record struct {
	// At is when it began; Duration how long it took.
	At       time.Time
	Duration time.Duration
	// Outcome is what it found.
	Outcome Outcome
	// Output is what it said, at most [Config].HistoryBytes of it.
	Output string
}

// Change is a result that is not what it was.
type Change struct {
	Key
	// ContainerID is the container's CRI id.
	ContainerID string
	// Result is the new result. One that a reader was too slow for is left out.
	Result Result
}
