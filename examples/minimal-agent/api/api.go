// Package api is what the agent says over HTTP in words of its own: its state at a
// glance, events, explanations and plans. Where the kubelet has a form for
// something (pods, statistics, metrics), the agent answers in that instead.
//
// The types are for the server, the commands and the status page alike. Fields are
// added, not renamed: scripts read them.
package api

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Status is the answer to GET /status: one look at the whole agent.
type Status struct {
	Now     time.Time `json:"now"`
	Agent   Agent     `json:"agent"`
	Runtime Runtime   `json:"runtime"`
	// Node is as a kubelet would report it: capacity, allocatable, conditions.
	Node corev1.Node `json:"node"`
	// Managers are the parts of the agent, in the order of /readyz?verbose.
	Managers []Manager `json:"managers"`
	// Signals are what pods may be evicted for, in the order of their names.
	Signals []Signal `json:"signals"`
	// Pods are all that are wanted or still here, by namespace and name.
	Pods []Pod `json:"pods"`
	// Problems are those of manifests. They make nobody unhealthy.
	Problems []string `json:"problems,omitempty"`
}

// Agent is the process that answers.
type Agent struct {
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Adopted is how many running pods it found when it began.
	Adopted int `json:"adopted"`
}

// Runtime is the other end of the CRI socket.
type Runtime struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Endpoint string `json:"endpoint"`
}

// Manager is a part of the agent and how it is.
type Manager struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Message says why it is not, or what is worth knowing though it is.
	Message string `json:"message,omitempty"`
}

// Signal is a figure that may run short, and where eviction begins. A figure that is
// not known has no time.
type Signal struct {
	Name       string      `json:"name"` // such as memory.available
	Available  int64       `json:"available"`
	Capacity   int64       `json:"capacity"`
	Time       *time.Time  `json:"time,omitempty"`
	Thresholds []Threshold `json:"thresholds"`
}

// Threshold is what may not be gone below.
type Threshold struct {
	Text  string `json:"text"`  // as it was configured, such as memory.available<5%
	Value int64  `json:"value"` // in the signal's unit
	// GraceSeconds is for how long it may, 0 for a hard threshold.
	GraceSeconds float64 `json:"graceSeconds"`
	// Since is when it was first crossed, if it is.
	Since *time.Time `json:"since,omitempty"`
}

// Pod is a line of a table, with its containers below it.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Phase and State are two looks at one thing: State is what kubectl shows, such
	// as CrashLoopBackOff, Init:0/1 or Terminating.
	Phase      corev1.PodPhase `json:"phase"`
	State      string          `json:"state"`
	Message    string          `json:"message,omitempty"`
	Ready      int             `json:"ready"`
	Containers []Container     `json:"containers"`
	Restarts   int32           `json:"restarts"`
	IP         string          `json:"ip,omitempty"`
	Started    *time.Time      `json:"started,omitempty"`
	// Usage is nil as long as nothing was measured.
	Usage  *Usage  `json:"usage,omitempty"`
	Events []Event `json:"events,omitempty"` // the last few, newest first
}

// Container is one of a pod's: Kind is init, sidecar, main or ephemeral.
type Container struct {
	Name     string     `json:"name"`
	Kind     string     `json:"kind"`
	Image    string     `json:"image"`
	State    string     `json:"state"` // running, or why it waits or has ended
	Since    *time.Time `json:"since,omitempty"`
	ExitCode *int32     `json:"exitCode,omitempty"`
	Ready    bool       `json:"ready"`
	Restarts int32      `json:"restarts"`
	Usage    *Usage     `json:"usage,omitempty"`
	Probes   []Probe    `json:"probes,omitempty"`
}

// Usage is what runs uses.
type Usage struct {
	Time            time.Time `json:"time"`
	CPUCores        *float64  `json:"cpuCores,omitempty"` // nil: not known yet, as it takes two looks
	MemoryBytes     uint64    `json:"memoryBytes"`        // the working set
	EphemeralBytes  uint64    `json:"ephemeralBytes"`
	EphemeralInodes uint64    `json:"ephemeralInodes"`
}

// Probe is a container's probe and how it last ended.
type Probe struct {
	Kind string `json:"kind"` // liveness, readiness or startup
	// Result is what its runs amount to: success, failure or unknown.
	Result     string     `json:"result"`
	Time       *time.Time `json:"time,omitempty"` // of the last run
	DurationMS float64    `json:"durationMs,omitempty"`
	Output     string     `json:"output,omitempty"`
}

// Event is a line of GET /events. Number rises by one with each event of an agent's
// life; events that repeat within a short time are one with a Count.
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

// Explanation is the answer to GET /explain/NAMESPACE/POD: why the pod is in the
// state it is in, and what comes next.
type Explanation struct {
	Pod   Pod      `json:"pod"`
	Why   []string `json:"why"`   // facts, most important first
	Next  []Step   `json:"next"`  // what the agent will do, soonest first
	Plan  string   `json:"plan"`  // podrunner's, as it stands now
	Stays string   `json:"stays"` // where the pod stands in the order of eviction
}

// Step is something that is to happen: At is nil for "as soon as possible".
type Step struct {
	At   *time.Time `json:"at,omitempty"`
	What string     `json:"what"`
}

// EventsLost is the reason of the last line of a stream of events that ends because
// its reader was too slow. Its Number is that of the last event that the reader got.
const EventsLost = "EventsLost"
