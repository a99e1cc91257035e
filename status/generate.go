package status

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// Input is everything that a pod's status depends on. Nothing in it is modified
// or retained.
type Input struct {
	// Pod is the desired pod. Required. Its Status, if it has one, is what the
	// API server shows.
	Pod *corev1.Pod
	// Runtime is what the runtime says of the pod. Nil means that nobody has
	// looked yet, and what Previous says of the containers stands. A Status
	// without some containers means that they do not exist, unless it is Stale:
	// then what Previous says of those stands too.
	Runtime *podcache.Status
	// RuntimeName is the scheme of container IDs, as the runtime's Version call
	// gives it, such as "containerd". If it is empty, IDs have no scheme.
	RuntimeName string
	// Previous is what was last said of the pod. One without a phase was never
	// said, and Pod.Status stands in.
	Previous corev1.PodStatus
	// Terminal says that the pod has ended: nothing of it runs and nothing will.
	Terminal bool
	// Waiting says, by container name, why a container that ought to be started
	// is not: CrashLoopBackOff, ImagePullBackOff, CreateContainerError and so on.
	// It has no effect on a container that runs or is not to run again.
	Waiting map[string]corev1.ContainerStateWaiting
	// LastWords returns what a container that has ended left as its termination
	// message, on top of what the runtime says in its status. Optional;
	// podrunner.LastWords fits.
	LastWords func(*runtimeapi.ContainerStatus) string
	// Allocated says, by container name, what resources the node has given to a
	// container, where that is not what the spec asks for because a resize waits.
	Allocated map[string]corev1.ResourceRequirements
	// Enforced has, by container name, the resources that the node has enforced last, when it
	// started or resized the container. They count where the runtime reports none of a running
	// container, and for memory requests, which no runtime reports. Optional.
	Enforced map[string]corev1.ResourceRequirements
	// Devices says, by container name, how the devices and claims that a container
	// was given are (KEP-4680): what a device manager knows. If it is nil, what was
	// last said of the very container stands.
	Devices map[string][]corev1.ResourceStatus
	// NodeIPs are the node's addresses, the primary one first. Without any, what was
	// last said of the host's stands.
	NodeIPs []string
	// Probes says what the probes of running containers found. Nil means that
	// there are none: a container is started and ready while it runs.
	Probes Probes
	// Now becomes the time of what changes with this status. If it is zero, such
	// times stay unset, and a [Manager] sets them.
	Now time.Time
}

// ProbeResult is what a probe found.
type ProbeResult int

// The results of a probe.
const (
	// NoProbe means that the container has no such probe.
	NoProbe ProbeResult = iota
	// ProbeUnknown means that the probe has no result yet: what was last said of
	// this very container stands, so that an agent's restart changes nothing.
	ProbeUnknown
	// ProbePassed means that the probe has succeeded often enough.
	ProbePassed
	// ProbeFailed means that the probe has failed often enough.
	ProbeFailed
)

// Probes returns what the probes of the running container of the given name and
// CRI id found. It is asked for regular containers and sidecars only.
type Probes func(container, id string) (startup, readiness ProbeResult)

// Generate returns the status of a pod. It is a pure function; the result is
// normalized (see [Normalize]), is the caller's own and shares no memory with
// the input. Phases and conditions follow the kubelet; doc.go lists where they
// do not.
func Generate(in Input) corev1.PodStatus {
	old := in.previous()
	s := corev1.PodStatus{
		QOSClass:           podspec.QOSClass(in.Pod),
		ObservedGeneration: max(in.Pod.Generation, old.ObservedGeneration),
		StartTime:          startTime(old, &in),
	}
	s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses = ContainerStatuses(in)
	if r := in.Pod.Spec.Resources; r != nil {
		s.Resources, s.AllocatedResources = r.DeepCopy(), r.Requests.DeepCopy()
	}
	setPhase(&s, old, &in)
	setIPs(&s, old, &in)
	s.Conditions = conditions(&s, old, &in)
	stamp(s.Conditions, old.Conditions, in.Now)
	Normalize(in.Pod, &s)
	return s
}

func startTime(old *corev1.PodStatus, in *Input) *metav1.Time {
	switch {
	case old.StartTime != nil:
		return old.StartTime.DeepCopy()
	case in.Pod.Status.StartTime != nil:
		return in.Pod.Status.StartTime.DeepCopy()
	case in.Now.IsZero():
		return nil
	default:
		return &metav1.Time{Time: in.Now}
	}
}

// setPhase computes the phase. What was said to have ended stays ended, and what
// the API server shows as ended weighs most: it refuses anything else. Reason and
// message belong to the phase and last as long as it does.
func setPhase(s, old *corev1.PodStatus, in *Input) {
	s.Phase = Phase(in.Pod, s, PhaseFacts{Terminal: in.Terminal, Initialized: initialized(in, s)})
	if podspec.IsTerminal(old.Phase) && !podspec.IsTerminal(s.Phase) {
		s.Phase = old.Phase
	}
	if podspec.IsTerminal(in.Pod.Status.Phase) {
		s.Phase = in.Pod.Status.Phase
	}
	if s.Phase != old.Phase {
		return
	}
	s.Reason = cmp.Or(old.Reason, in.Pod.Status.Reason)
	s.Message = cmp.Or(old.Message, in.Pod.Status.Message)
}

// initialized says whether a regular container was made in the sandbox that is
// in use.
func initialized(in *Input, s *corev1.PodStatus) bool {
	if in.carried() && slices.ContainsFunc(s.ContainerStatuses, func(st corev1.ContainerStatus) bool { return st.State.Running != nil }) {
		return true
	}
	if in.Runtime == nil || in.Runtime.ReadySandbox() == nil {
		return false
	}
	return slices.ContainsFunc(in.Pod.Spec.Containers, func(c corev1.Container) bool {
		return in.Runtime.Active(c.Name) != nil
	})
}

// carried says whether what was last said stands, for want of anything newer,
// where the runtime says nothing. Of a pod that has ended nothing runs, so there
// it does not.
func (in *Input) carried() bool { return !in.Terminal && (in.Runtime == nil || in.Runtime.Stale) }

// previous returns the status that in builds on.
func (in *Input) previous() *corev1.PodStatus {
	if in.Previous.Phase == "" {
		return &in.Pod.Status
	}
	return &in.Previous
}
