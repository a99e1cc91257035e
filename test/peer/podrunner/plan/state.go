package plan

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A State is what a plan is made from: the pod and what the runtime has of it.
// Both sides read the same State, each by its own means.
type State struct {
	Now time.Time
	Pod *corev1.Pod
	// Boxes and Containers are in the order in which the runtime made them.
	Boxes      []*Box
	Containers []*Container
	// Logs are the restart counts that the log folder shows, by container.
	Logs map[string]int
	// Starts are the starts since the agent began that count for the back-off.
	Starts []Start
	// BoxStarts are the sandboxes made since then in place of another.
	BoxStarts []Start
	// MaxDelay is the longest delay of the back-off, if it is configured.
	MaxDelay time.Duration
	// Restarting is the pod's condition AllContainersRestarting.
	Restarting bool
	// Used is the memory in use by each container.
	Used int64
	// Cgroup is what the pod's cgroup has, and PodHas what the kubelet made it from.
	Cgroup *runtimeapi.LinuxContainerResources
	PodHas *corev1.ResourceRequirements
	// Made counts the objects made, for their names.
	Made int

	// The rest is for rules: whether exit codes ask for no restart of all containers, what the kubelet is
	// not shown, the pod as it was, and what the kubelet does.
	notRestarting, waitsOut, restartAllWaits bool
	hidden                                   []*Container
	policies                                 *corev1.Pod
	plan                                     func(*State) judge.Facts
	current                                  judge.Facts
}

// A Box is a sandbox.
type Box struct {
	ID      string
	Attempt uint32
	Ready   bool
	Host    bool // it is in the host's network
	NoLinux bool // the runtime does not tell namespaces
	Network bool // the runtime tells addresses
	IP      string
	Created time.Time
}

// A Container is one instance of a container.
type Container struct {
	ID, Name, Box   string
	Attempt         int
	From            corev1.Container // the definition that it was made from
	Hash            Hash
	State           runtimeapi.ContainerState
	Code            int32
	Reason, Message string

	Created, Started, Finished time.Time

	// Linux is what its cgroup has, and Has what both sides recall that it was given.
	Linux *runtimeapi.LinuxContainerResources
	Has   corev1.ResourceRequirements

	Startup, Liveness Found
	// brokenOff is set by a rule: its start was interrupted.
	brokenOff bool
	// was is how it was before the rules.
	was *Container
}

// Hash is which agent's hash of the definition a container carries.
type Hash uint8

// Hashes.
const (
	OwnHash Hash = iota
	OtherHash
	NoHash
)

// Found is what probes found of a container.
type Found uint8

// Findings. The simplest is that the probe succeeded.
const (
	Succeeded Found = iota
	Failed
	Unknown
	NotProbed
)

// A Start is a start that counts for the back-off.
type Start struct {
	From      corev1.Container
	Since, At time.Time
	Failed    bool // the container could not be made
}

// clone returns a copy that shares nothing that is ever modified.
func (s *State) clone() *State {
	c := *s
	c.Pod = s.Pod.DeepCopy()
	c.Boxes = make([]*Box, len(s.Boxes))
	for i, b := range s.Boxes {
		c.Boxes[i] = new(*b)
	}
	c.Containers = make([]*Container, len(s.Containers))
	for i, b := range s.Containers {
		c.Containers[i] = new(*b)
	}
	c.Logs = maps.Clone(s.Logs)
	c.Starts, c.BoxStarts = slices.Clone(s.Starts), slices.Clone(s.BoxStarts)
	return &c
}

// box returns the newest sandbox, nil if there is none.
func (s *State) box() *Box {
	boxes := s.boxes()
	if len(boxes) == 0 {
		return nil
	}
	return boxes[0]
}

// boxes returns the sandboxes, newest first.
func (s *State) boxes() []*Box {
	boxes := slices.Clone(s.Boxes)
	slices.SortFunc(boxes, func(a, b *Box) int { return int(b.Attempt) - int(a.Attempt) })
	return boxes
}

// newest returns the container of that name that was made last.
func (s *State) newest(name string) *Container {
	var last *Container
	for _, c := range s.Containers {
		if c.Name == name && (last == nil || c.Created.After(last.Created)) {
			last = c
		}
	}
	return last
}

func (s *State) container(id string) *Container {
	i := slices.IndexFunc(s.Containers, func(c *Container) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return s.Containers[i]
}

// ended returns the container of that name that was made last of those that have ended,
// also one whose start was broken off.
func (s *State) ended(name string) *Container {
	var last *Container
	for _, c := range s.Containers {
		if c.Name == name && (c.State == exited || c.brokenOff) && (last == nil || c.Created.After(last.Created)) {
			last = c
		}
	}
	return last
}

const (
	created      = runtimeapi.ContainerState_CONTAINER_CREATED
	running      = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited       = runtimeapi.ContainerState_CONTAINER_EXITED
	unknownState = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

// A kind is what a container is to its pod.
type kind = podrunner.ContainerKind

// spec returns the container of that name in the pod's spec, nil if it has none.
func (s *State) spec(name string) (*corev1.Container, kind) {
	for i := range s.Pod.Spec.InitContainers {
		if c := &s.Pod.Spec.InitContainers[i]; c.Name == name {
			if isSidecar(c) {
				return c, podrunner.Sidecar
			}
			return c, podrunner.Init
		}
	}
	for i := range s.Pod.Spec.Containers {
		if c := &s.Pod.Spec.Containers[i]; c.Name == name {
			return c, podrunner.Regular
		}
	}
	for i := range s.Pod.Spec.EphemeralContainers {
		if c := &s.Pod.Spec.EphemeralContainers[i]; c.Name == name {
			return (*corev1.Container)(&c.EphemeralContainerCommon), podrunner.Ephemeral
		}
	}
	return nil, podrunner.Ephemeral
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

const podUID types.UID = "11111111-2222-3333-4444-555555555555"
