package api

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Status is the answer to GET /status: the state of the whole agent.
type Status struct {
	Now     time.Time `json:"now"`
	Agent   Agent     `json:"agent"`
	Runtime Runtime   `json:"runtime"`
	// Node is the node as a kubelet reports it: capacity, allocatable, conditions.
	Node corev1.Node `json:"node"`
	// Managers are the parts of the agent, in the order of /readyz?verbose.
	Managers []Manager `json:"managers"`
	// Signals are the eviction signals that have a threshold, by name.
	Signals []Signal `json:"signals"`
	// Pods are the pods that a source defines or that are left, by namespace and name.
	Pods []Pod `json:"pods"`
	// Problems are those of manifests. They fail no health check.
	Problems []string `json:"problems,omitempty"`
}

// Agent is the process that has answered.
type Agent struct {
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Adopted is the number of running pods that it found when it started.
	Adopted int `json:"adopted"`
}

// Runtime is the container runtime.
type Runtime struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Endpoint string `json:"endpoint"`
}

// Manager is the state of a part of the agent.
type Manager struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Message is the error if OK is false, else a note.
	Message string `json:"message,omitempty"`
}

// Signal is an eviction signal and its thresholds. A signal that is unknown has no time.
type Signal struct {
	Name       string      `json:"name"` // such as memory.available
	Available  int64       `json:"available"`
	Capacity   int64       `json:"capacity"`
	Time       *time.Time  `json:"time,omitempty"`
	Thresholds []Threshold `json:"thresholds"`
}

// Threshold is an amount below which eviction begins.
type Threshold struct {
	Text  string `json:"text"`  // as configured, such as memory.available<5%
	Value int64  `json:"value"` // in the unit of the signal
	// GraceSeconds is how long the signal may be below it. 0: a hard threshold.
	GraceSeconds float64 `json:"graceSeconds"`
	// Since is when the signal fell below it. Nil: it has not.
	Since *time.Time `json:"since,omitempty"`
}

// Pod is a pod with its containers.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// State is what kubectl shows as the status, such as CrashLoopBackOff, Init:0/1 or
	// Terminating.
	Phase      corev1.PodPhase `json:"phase"`
	State      string          `json:"state"`
	Message    string          `json:"message,omitempty"`
	Ready      int             `json:"ready"`
	Containers []Container     `json:"containers"`
	Restarts   int32           `json:"restarts"`
	IP         string          `json:"ip,omitempty"`
	Started    *time.Time      `json:"started,omitempty"`
	// Usage is nil if nothing was measured yet.
	Usage  *Usage  `json:"usage,omitempty"`
	Events []Event `json:"events,omitempty"` // the last few, newest first
}

// Container is a container of a pod. Kind is init, sidecar, main or ephemeral.
type Container struct {
	Name     string     `json:"name"`
	Kind     string     `json:"kind"`
	Image    string     `json:"image"`
	State    string     `json:"state"` // running, or the reason why it waits or has ended
	Since    *time.Time `json:"since,omitempty"`
	ExitCode *int32     `json:"exitCode,omitempty"`
	Ready    bool       `json:"ready"`
	Restarts int32      `json:"restarts"`
	Usage    *Usage     `json:"usage,omitempty"`
	Probes   []Probe    `json:"probes,omitempty"`
}

// Usage is what a pod or a container uses.
type Usage struct {
	Time            time.Time `json:"time"`
	CPUCores        *float64  `json:"cpuCores,omitempty"` // nil: unknown until it was measured twice
	MemoryBytes     uint64    `json:"memoryBytes"`        // the working set
	EphemeralBytes  uint64    `json:"ephemeralBytes"`
	EphemeralInodes uint64    `json:"ephemeralInodes"`
}

// Probe is a probe of a container and its last run.
type Probe struct {
	Kind string `json:"kind"` // liveness, readiness or startup
	// Result is success, failure or unknown, by the thresholds of the probe.
	Result     string     `json:"result"`
	Time       *time.Time `json:"time,omitempty"` // of the last run
	DurationMS float64    `json:"durationMs,omitempty"`
	Output     string     `json:"output,omitempty"`
}

// Event is a line of GET /events. Number rises by one with each event of a process. Events that
// repeat within a short time are one event with a Count.
type Event struct {
	Number    uint64    `json:"number"`
	Time      time.Time `json:"time"`
	Type      string    `json:"type"` // Normal or Warning
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Kind      string    `json:"kind"` // Pod or Node
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	FieldPath string    `json:"fieldPath,omitempty"` // such as spec.containers{web}
	Count     int       `json:"count"`
}

// Explanation is the answer to GET /explain/NAMESPACE/POD: why the pod is in its state, and what
// comes next.
type Explanation struct {
	Pod   Pod      `json:"pod"`
	Why   []string `json:"why"`   // facts, the most important one first
	Next  []Step   `json:"next"`  // what the agent will do, soonest first
	Plan  string   `json:"plan"`  // what the next sync would do in the runtime
	Stays string   `json:"stays"` // the place of the pod in the order of eviction
}

// Step is something that the agent will do. At is nil for "as soon as possible".
type Step struct {
	At   *time.Time `json:"at,omitempty"`
	What string     `json:"what"`
}

// EventsLost is the reason of the last event of a stream that ends because the client was too
// slow. Its Number is that of the last event that the client has received.
const EventsLost = "EventsLost"
