package prober

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is the kind of a probe.
type Kind uint8

// The kinds of probes, in the order in which they are added.
const (
	// Startup probes find out whether a container has started. The other probes of the
	// container do not run before the startup probe has succeeded.
	Startup Kind = iota
	// Readiness probes find out whether a container can receive traffic.
	Readiness
	// Liveness probes find out whether a container must be killed.
	Liveness
)

// String returns the kubelet's name of k: "Startup", "Readiness" or "Liveness".
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

// The method of returns the probe of this kind in the spec of c, or nil.
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

// Key identifies a probe on the node.
type Key struct {
	// PodUID and Container identify the container.
	PodUID    types.UID
	Container string
	// Kind is the kind of the probe.
	Kind Kind
}

// Result is the result of a probe: its outcomes so far, evaluated with its thresholds. The
// values equal the values of status.ProbeResult, so a Result can be converted to a
// status.ProbeResult.
type Result uint8

// The results.
const (
	// NoProbe means that the container has no such probe.
	NoProbe Result = iota
	// Unknown means that the probe has no result for this container yet. The agent should
	// keep the container's last reported state.
	Unknown
	// Success means that the probe has reached its success threshold, or, for liveness,
	// has not reached its failure threshold.
	Success
	// Failure means that the probe has reached its failure threshold, or, for
	// readiness, has not reached its success threshold.
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

// Outcome is the outcome of one run of a probe.
type Outcome uint8

// The outcomes.
const (
	// Succeeded means that the probe succeeded.
	Succeeded Outcome = iota
	// Warned means that the probe succeeded with a warning, such as a redirect to
	// another host.
	Warned
	// Failed means that the probe failed or timed out.
	Failed
	// Errored means that the probe could not be run, so that the state of the container
	// is unknown. See [ErrorPolicy].
	Errored
)

// String returns the kubelet's name of o: "success", "warning", "failure" or
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

// State is the state of a container.
type State uint8

// The states of a container.
const (
	// Waiting is any state before Running.
	Waiting State = iota
	// Running containers are probed; containers in other states are not.
	Running
	// Exited containers are not ready any more.
	Exited
)

// Target is the current state of a container.
type Target struct {
	// ID is the container's CRI ID. It is empty if the container does not exist yet.
	ID string
	// State is the container's state.
	State State
	// StartedAt is when the container was started.
	StartedAt time.Time
	// PodIP is the address for probes whose spec has no host.
	PodIP string
	// Started is the last reported Started of this container, including reports before a
	// restart of the agent. The Manager uses it only for containers that were started
	// before [New] was called.
	Started bool
	// Ended means that the pod's phase is Succeeded or Failed.
	Ended bool
}

// Record is the record of one run of a probe.
type Record struct {
	// At is the start of the run, and Duration is the duration of the run.
	At       time.Time
	Duration time.Duration
	// Outcome is the outcome of the run.
	Outcome Outcome
	// Output is the output of the run. In History, it is at most [Config].HistoryBytes
	// long, and for an errored run it is the error.
	Output string
}

// Change is a change of a probe's result.
type Change struct {
	Key
	// ContainerID is the container's CRI ID.
	ContainerID string
	// Result is the new result. A slow reader does not receive intermediate results.
	Result Result
}
