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

// A State is the input of a plan: the pod and its objects in the runtime. Both sides read the
// same State in their own formats.
type State struct {
	Now time.Time
	Pod *corev1.Pod
	// Boxes and Containers are in the order of creation.
	Boxes      []*Box
	Containers []*Container
	// Logs is the restart counts according to the log directory, by container.
	Logs map[string]int
	// Starts is the starts since the start of the agent that count for the back-off.
	Starts []Start
	// BoxStarts is the replacements of sandboxes since then.
	BoxStarts []Start
	// MaxDelay is the maximum back-off, if configured.
	MaxDelay time.Duration
	// Restarting is the pod's condition AllContainersRestarting.
	Restarting bool
	// Used is the memory usage of each container.
	Used int64
	// Cgroup is the resources of the pod's cgroup. PodHas is the spec from which the kubelet
	// computed them.
	Cgroup *runtimeapi.LinuxContainerResources
	PodHas *corev1.ResourceRequirements
	// Made is the number of created objects. Names are derived from it.
	Made int

	// The remaining fields are for rules. notRestarting is set if exit codes request no
	// restart of all containers. waitsOut and restartAllWaits are switches of single rules.
	// hidden is the containers hidden from the kubelet, and policies is the original pod. plan
	// returns the kubelet's actions for a state, and current is its actions for this one.
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
	NoLinux bool // the runtime does not report namespaces
	Network bool // the runtime reports addresses
	IP      string
	Created time.Time
}

// A Container is one instance of a container.
type Container struct {
	ID, Name, Box   string
	Attempt         int
	From            corev1.Container // the definition from which it was created
	Hash            Hash
	State           runtimeapi.ContainerState
	Code            int32
	Reason, Message string

	Created, Started, Finished time.Time

	// Linux is its resources in the cgroup. Has is the recorded resources on both sides.
	Linux *runtimeapi.LinuxContainerResources
	Has   corev1.ResourceRequirements

	Startup, Liveness Found
	// brokenOff is set by a rule if its start was interrupted.
	brokenOff bool
	// was is its state before the rules.
	was *Container
}

// Hash is the agent that computed the definition's hash on a container.
type Hash uint8

// Hashes.
const (
	OwnHash Hash = iota
	OtherHash
	NoHash
)

// Found is the probe result of a container.
type Found uint8

// Probe results. The simplest is success.
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
	Failed    bool // creating the container failed
}

// clone returns a copy. The copy shares only data that is never modified.
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

// box returns the newest sandbox, or nil if no sandbox exists.
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

// newest returns the container of that name that was created last.
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

// ended returns the terminated container of that name that was created last, including one
// whose start was interrupted.
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

// A kind is the role of a container in its pod.
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
