package api

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Status is the response to GET /agent/status: the state of the whole agent.
type Status struct {
	Now     time.Time `json:"now"`
	Agent   Agent     `json:"agent"`
	Runtime Runtime   `json:"runtime"`
	// Node is the node as a kubelet reports it: capacity, allocatable, conditions.
	Node corev1.Node `json:"node"`
	// Managers are the parts of the agent, in the order of /readyz?verbose.
	Managers []Manager `json:"managers"`
	// Signals are the eviction signals that have a threshold, ordered by name.
	Signals []Signal `json:"signals"`
	// Pods are the pods that a source defines, and the pods whose data is still on the node,
	// ordered by namespace and name.
	Pods []Pod `json:"pods"`
	// Problems are the problems of manifests. A problem does not fail a health check.
	Problems []string `json:"problems,omitempty"`
}

// Agent is the agent process that has sent the response.
type Agent struct {
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Adopted is the number of running pods that the agent found when it started.
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
	// Message is the error if OK is false, otherwise notes about the part.
	Message string `json:"message,omitempty"`
}

// Signal is an eviction signal and its thresholds. If the signal could not be measured, Time is
// nil.
type Signal struct {
	Name       string      `json:"name"` // such as memory.available
	Available  int64       `json:"available"`
	Capacity   int64       `json:"capacity"`
	Time       *time.Time  `json:"time,omitempty"`
	Thresholds []Threshold `json:"thresholds"`
}

// Threshold is the amount of a signal below which eviction starts.
type Threshold struct {
	Text  string `json:"text"`  // as configured, such as memory.available<5%
	Value int64  `json:"value"` // in the unit of the signal
	// GraceSeconds is how long the signal may be below the threshold. 0 means a hard threshold.
	GraceSeconds float64 `json:"graceSeconds"`
	// Since is when the signal fell below the threshold. Nil means that the signal is not below
	// the threshold.
	Since *time.Time `json:"since,omitempty"`
}

// Pod is a pod with its containers.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Phase is the pod's phase. State is the status that kubectl shows, such as
	// CrashLoopBackOff, Init:0/1 or Terminating.
	Phase      corev1.PodPhase `json:"phase"`
	State      string          `json:"state"`
	Message    string          `json:"message,omitempty"`
	Ready      int             `json:"ready"`
	Containers []Container     `json:"containers"`
	Restarts   int32           `json:"restarts"`
	IP         string          `json:"ip,omitempty"`
	Started    *time.Time      `json:"started,omitempty"`
	// Usage is nil until CPU or memory was measured.
	Usage  *Usage  `json:"usage,omitempty"`
	Events []Event `json:"events,omitempty"` // the last events, newest first
}

// Container is a container of a pod. Kind is init, sidecar, main or ephemeral.
type Container struct {
	Name     string     `json:"name"`
	Kind     string     `json:"kind"`
	Image    string     `json:"image"`
	State    string     `json:"state"` // running, or the reason why the container waits or has terminated
	Since    *time.Time `json:"since,omitempty"`
	ExitCode *int32     `json:"exitCode,omitempty"`
	Ready    bool       `json:"ready"`
	Restarts int32      `json:"restarts"`
	Usage    *Usage     `json:"usage,omitempty"`
	Probes   []Probe    `json:"probes,omitempty"`
}

// Usage is the resource usage of a pod or a container.
type Usage struct {
	Time            time.Time `json:"time"`
	CPUCores        *float64  `json:"cpuCores,omitempty"` // nil until CPU time was measured twice
	MemoryBytes     uint64    `json:"memoryBytes"`        // the working set
	EphemeralBytes  uint64    `json:"ephemeralBytes"`
	EphemeralInodes uint64    `json:"ephemeralInodes"`
}

// Probe is a probe of a container and its last run.
type Probe struct {
	Kind string `json:"kind"` // liveness, readiness or startup
	// Result is success, failure or unknown, according to the thresholds of the probe.
	Result     string     `json:"result"`
	Time       *time.Time `json:"time,omitempty"` // start of the last run
	DurationMS float64    `json:"durationMs,omitempty"`
	Output     string     `json:"output,omitempty"`
}

// Event is a line of the response to GET /agent/events. Number increases by one with each event of
// the agent process. If equal events follow each other within a short time, they are one event with
// a higher Count.
type Event struct {
	Number    uint64    `json:"number"`
	Time      time.Time `json:"time"`
	Type      string    `json:"type"` // Normal or Warning
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Kind      string    `json:"kind"` // Pod or Node; Agent for EventsLost
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	FieldPath string    `json:"fieldPath,omitempty"` // such as spec.containers{web}
	Count     int       `json:"count"`
}

// Explanation is the response to GET /agent/explain/NAMESPACE/POD: why the pod is in its state, and
// what comes next.
type Explanation struct {
	Pod           Pod      `json:"pod"`
	Why           []string `json:"why"`           // facts, the most important fact first
	Next          []Step   `json:"next"`          // what the agent will do next, the soonest step first
	Plan          string   `json:"plan"`          // what the next sync would do in the runtime
	EvictionOrder string   `json:"evictionOrder"` // the position of the pod in the eviction order
}

// Step is a future action of the agent. If At is nil, the agent acts as soon as possible, or
// after an event that What names.
type Step struct {
	At   *time.Time `json:"at,omitempty"`
	What string     `json:"what"`
}

// ImageList is the response to GET /agent/images.
type ImageList struct {
	Now time.Time `json:"now"`
	// Items are the images, in the order in which garbage collection would delete them.
	Items []Image `json:"items"`
}

// Image is an image in the runtime. The response to POST /agent/pull only has the fields ID, Tags,
// Digests, SizeBytes and Pinned.
type Image struct {
	ID        string   `json:"id"`
	Tags      []string `json:"tags,omitempty"`
	Digests   []string `json:"digests,omitempty"`
	SizeBytes uint64   `json:"sizeBytes"` // includes layers that other images share
	// Pinned reports whether the runtime has pinned the image. Garbage collection never deletes
	// a pinned image.
	Pinned bool `json:"pinned,omitempty"`
	// Containers is the number of containers that use the image.
	Containers int `json:"containers,omitempty"`
	// FirstSeen is when the agent first saw the image. LastUsed is when the agent last saw a
	// container that uses the image, and is nil if the agent has seen no such container.
	FirstSeen *time.Time `json:"firstSeen,omitempty"`
	LastUsed  *time.Time `json:"lastUsed,omitempty"`
	// Delete reports whether garbage collection would delete the image now. Reason is why it
	// would delete or keep the image.
	Delete bool   `json:"delete"`
	Reason string `json:"reason,omitempty"`
}

// Restart is the response to POST /agent/restart: the pod whose restart was requested.
type Restart struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// EventsLost is the Reason of the last event of a stream that ends because the client reads too
// slowly. The Number of this event is the number of the last event that the agent has sent to the
// client before.
const EventsLost = "EventsLost"
