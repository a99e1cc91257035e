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

// Input contains all facts on which the status of a pod depends. It is neither modified nor
// retained.
type Input struct {
	// Pod is the desired pod. Required. Its Status, if set, is the status in the API
	// server.
	Pod *corev1.Pod
	// Runtime is the state of the pod in the runtime, or nil if the state is unknown. If
	// Runtime is nil or Stale, and Terminal is false, a container that is missing in Runtime
	// keeps its status in Previous. In all other cases, a missing container does not exist.
	Runtime *podcache.Status
	// RuntimeName is the scheme of container IDs, such as "containerd": the runtime's name in
	// the response of the CRI call Version. If it is empty, IDs have no scheme.
	RuntimeName string
	// Previous is the last reported status of the pod. If its phase is empty, Pod.Status
	// is used instead.
	Previous corev1.PodStatus
	// Terminal means that the pod has ended: no container of the pod runs, and none will run
	// again.
	Terminal bool
	// Waiting contains, by container name, why a container that should be started is not
	// running: CrashLoopBackOff, ImagePullBackOff, CreateContainerError and so on. An entry has
	// no effect if the container is running or must not be started.
	Waiting map[string]corev1.ContainerStateWaiting
	// Restarting contains the names of containers that a requested restart of the pod starts
	// again, whatever their restart policies are. The names of ephemeral containers are
	// ignored. Optional. An implementation is the method Restarting of podrunner.Runner.
	Restarting map[string]bool
	// TerminationMessage returns the termination message of a container that has exited. The
	// message is appended to the message in the runtime's status. Optional. An implementation
	// is podrunner.TerminationMessage.
	TerminationMessage func(*runtimeapi.ContainerStatus) string
	// Allocated contains, by container name, the resources allocated to a container if they
	// differ from the spec because a resize is pending.
	Allocated map[string]corev1.ResourceRequirements
	// Enforced contains, by container name, the resources that the node enforced when it last
	// started or resized the container. Enforced is used if the runtime reports no resources of
	// a running container, and for memory requests, which runtimes do not report. Optional.
	Enforced map[string]corev1.ResourceRequirements
	// Devices contains, by container name, the health of the devices and claims of a container
	// (KEP-4680), as a device manager reports it. If Devices is nil, the last reported health
	// of a container is used.
	Devices map[string][]corev1.ResourceStatus
	// NodeIPs are the node's addresses, the primary address first. If NodeIPs is empty, the
	// last reported host addresses are kept.
	NodeIPs []string
	// Probes returns the probe results of running containers. If Probes is nil, no container
	// has probes: each regular container and sidecar is started and ready while it runs.
	Probes Probes
	// Now is the time of all changes in the new status. If Now is zero, the times of changes
	// are not set; a [Manager] sets them later.
	Now time.Time
}

// ProbeResult is the result of a probe.
type ProbeResult int

// The results of a probe.
const (
	// NoProbe means that the container has no such probe.
	NoProbe ProbeResult = iota
	// ProbeUnknown means that the probe has no result yet. The container keeps its last
	// reported state, so that an agent's restart changes nothing.
	ProbeUnknown
	// ProbePassed means that the probe has reached its success threshold.
	ProbePassed
	// ProbeFailed means that the probe has reached its failure threshold.
	ProbeFailed
)

// Probes returns the probe results of the running container with the given name and CRI ID.
// [Generate] calls it for regular containers and sidecars only.
type Probes func(container, id string) (startup, readiness ProbeResult)

// Generate returns the status of a pod. It is a pure function. The result is
// normalized (see [Normalize]) and shares no memory with the input. Phases and
// conditions follow the kubelet; the package documentation lists the differences.
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
	setTransitionTimes(s.Conditions, old.Conditions, in.Now)
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

// setPhase sets the phase, reason and message. A terminal phase stays terminal. A terminal
// phase in the API server has precedence, because the API server rejects any other phase.
// Reason and message belong to the phase, and are kept while the phase does not change.
func setPhase(s, old *corev1.PodStatus, in *Input) {
	s.Phase = Phase(in.Pod, s, PhaseFacts{Terminal: in.Terminal, Initialized: initialized(in, s), Restarting: in.Restarting})
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

// initialized reports whether a regular container was created in the current sandbox. If the
// runtime state is unknown or stale, it is enough that s shows a regular container as running.
func initialized(in *Input, s *corev1.PodStatus) bool {
	if in.keepPrevious() && slices.ContainsFunc(s.ContainerStatuses, func(st corev1.ContainerStatus) bool { return st.State.Running != nil }) {
		return true
	}
	if in.Runtime == nil || in.Runtime.ReadySandbox() == nil {
		return false
	}
	return slices.ContainsFunc(in.Pod.Spec.Containers, func(c corev1.Container) bool {
		return in.Runtime.Active(c.Name) != nil
	})
}

// keepPrevious reports whether the previous status is used where Runtime has no data. It
// returns true if the runtime state is unknown or stale. For a terminal pod it returns
// false, because no container runs.
func (in *Input) keepPrevious() bool { return !in.Terminal && (in.Runtime == nil || in.Runtime.Stale) }

// previous returns in.Previous, or the status in the API server if in.Previous is empty.
func (in *Input) previous() *corev1.PodStatus {
	if in.Previous.Phase == "" {
		return &in.Pod.Status
	}
	return &in.Previous
}
