package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// Reasons of pod conditions.
const (
	// ReasonUnknownContainerStatuses means that no container has a status.
	ReasonUnknownContainerStatuses = "UnknownContainerStatuses"
	// ReasonPodCompleted means that the pod has succeeded.
	ReasonPodCompleted = "PodCompleted"
	// ReasonPodFailed means that the pod has failed.
	ReasonPodFailed = "PodFailed"
	// ReasonContainersNotReady means that a container is not ready.
	ReasonContainersNotReady = "ContainersNotReady"
	// ReasonContainersNotInitialized means that an init container has not completed.
	ReasonContainersNotInitialized = "ContainersNotInitialized"
	// ReasonReadinessGatesNotReady means that the condition of a readiness gate is not True.
	ReasonReadinessGatesNotReady = "ReadinessGatesNotReady"
)

// conditions returns all conditions of the pod: the conditions of other writers from the API
// server, the conditions that the node set at an event such as an eviction, and the computed
// conditions.
func conditions(s, old *corev1.PodStatus, in *Input) []corev1.PodCondition {
	pod := in.Pod
	out := make([]corev1.PodCondition, 0, len(pod.Status.Conditions)+5)
	for _, c := range pod.Status.Conditions {
		// DisruptionTarget belongs to other writers until the node sets it.
		if ownerOf(c.Type) == foreign || c.Type == corev1.DisruptionTarget && Condition(old.Conditions, c.Type) == nil {
			out = append(out, c)
		}
	}
	for _, c := range old.Conditions {
		if ownerOf(c.Type) == event {
			out = append(out, c)
		}
	}
	// Ready evaluates the readiness gates, so it needs the conditions that were copied above.
	view := *s
	view.Conditions = out
	sandbox := ReadyToStartContainers(pod, in.Runtime)
	if was := Condition(old.Conditions, corev1.PodReadyToStartContainers); was != nil && in.keepPrevious() {
		sandbox.Status = was.Status
	}
	initialized, restarting := Initialized(pod, s), Condition(old.Conditions, corev1.AllContainersRestarting)
	// Initialized does not become False again.
	if was := Condition(old.Conditions, corev1.PodInitialized); was != nil && was.Status == corev1.ConditionTrue && initialized.Status != was.Status {
		initialized.Status, initialized.Reason, initialized.Message = was.Status, "", ""
	}
	if mayRestartAll(&pod.Spec) {
		if !in.keepPrevious() || restarting == nil {
			restarting = new(AllContainersRestarting(*in, s.Phase))
		}
	} else {
		restarting = nil
	}
	out = append(out, sandbox, initialized, Ready(pod, &view), ContainersReady(pod, s),
		newCondition(pod, corev1.PodScheduled, corev1.ConditionTrue))
	if restarting != nil {
		out = append(out, *restarting)
	}
	return out
}

// ownership is the owner of a condition.
type ownership int

const (
	foreign  ownership = iota // another writer
	event                     // the node, at an event such as an eviction
	computed                  // the node, from the container statuses
)

func ownerOf(t corev1.PodConditionType) ownership {
	switch t {
	case corev1.ContainersReady, corev1.PodReady, corev1.PodInitialized, corev1.PodReadyToStartContainers,
		corev1.PodScheduled, corev1.AllContainersRestarting:
		return computed
	case corev1.DisruptionTarget, corev1.PodResizePending, corev1.PodResizeInProgress:
		return event
	default:
		return foreign
	}
}

// ContainersReady returns the condition ContainersReady. The condition is True if every
// regular container and sidecar in the spec is ready in s and the phase in s is not
// terminal.
func ContainersReady(pod *corev1.Pod, s *corev1.PodStatus) corev1.PodCondition {
	cond := newCondition(pod, corev1.ContainersReady, corev1.ConditionFalse)
	if s.ContainerStatuses == nil && s.InitContainerStatuses == nil {
		cond.Reason = ReasonUnknownContainerStatuses
		return cond
	}
	var unknown, unready []string
	for c, isInit := range podspec.Containers(&pod.Spec) {
		list := s.ContainerStatuses
		if isInit {
			list = s.InitContainerStatuses
		}
		switch st := find(list, c.Name); {
		case isInit && !podspec.IsSidecar(c):
		case st == nil:
			unknown = append(unknown, c.Name)
		case !st.Ready:
			unready = append(unready, c.Name)
		}
	}
	switch {
	case s.Phase == corev1.PodFailed, s.Phase == corev1.PodSucceeded && len(unknown) == 0:
		cond.Reason = endedReason(s.Phase)
	case len(unknown)+len(unready) > 0:
		cond.Reason = ReasonContainersNotReady
		cond.Message = list("containers with unknown status: ", unknown, "containers with unready status: ", unready)
	default:
		cond.Status = corev1.ConditionTrue
	}
	return cond
}

// Ready returns the condition Ready. The condition is True if [ContainersReady] is True and
// the condition of every readiness gate in the spec is True in s.
func Ready(pod *corev1.Pod, s *corev1.PodStatus) corev1.PodCondition {
	cond := ContainersReady(pod, s)
	cond.Type = corev1.PodReady
	if cond.Status != corev1.ConditionTrue {
		return cond
	}
	var notReady []string
	for _, gate := range pod.Spec.ReadinessGates {
		if c := Condition(s.Conditions, gate.ConditionType); c == nil {
			notReady = append(notReady, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", string(gate.ConditionType)))
		} else if c.Status != corev1.ConditionTrue {
			notReady = append(notReady, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", string(gate.ConditionType), c.Status))
		}
	}
	if len(notReady) > 0 {
		cond.Status, cond.Reason, cond.Message = corev1.ConditionFalse, ReasonReadinessGatesNotReady, strings.Join(notReady, ", ")
	}
	return cond
}

// NeedToReconcilePodReadiness reports whether the Ready condition in pod.Status, which is
// the status in the API server, does not match the conditions of the readiness gates in
// pod.Status. If they do not match, a gate has changed, and the pod needs a sync. It
// returns false for a pod without readiness gates or without the condition Ready.
func NeedToReconcilePodReadiness(pod *corev1.Pod) bool {
	if len(pod.Spec.ReadinessGates) == 0 {
		return false
	}
	want, shown := Ready(pod, &pod.Status), Condition(pod.Status.Conditions, corev1.PodReady)
	return shown != nil && (shown.Status != want.Status || shown.Message != want.Message)
}

// Initialized returns the condition Initialized. The condition is True if every plain init
// container has succeeded and every sidecar has started. It is also True if a regular
// container is running or terminated, even while sidecars start again.
func Initialized(pod *corev1.Pod, s *corev1.PodStatus) corev1.PodCondition {
	cond := newCondition(pod, corev1.PodInitialized, corev1.ConditionFalse)
	if s.ContainerStatuses == nil && s.InitContainerStatuses == nil && len(pod.Spec.InitContainers) > 0 {
		cond.Reason = ReasonUnknownContainerStatuses
		return cond
	}
	var unknown, incomplete []string
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if st := find(s.InitContainerStatuses, c.Name); st == nil {
			unknown = append(unknown, c.Name)
		} else if !initDone(c, st) {
			incomplete = append(incomplete, c.Name)
		}
	}
	switch {
	case s.Phase == corev1.PodSucceeded && len(unknown) == 0:
		cond.Status, cond.Reason = corev1.ConditionTrue, ReasonPodCompleted
	case len(unknown)+len(incomplete) > 0 && !anyRegularStarted(pod, s):
		cond.Reason = ReasonContainersNotInitialized
		cond.Message = list("containers with unknown status: ", unknown, "containers with incomplete status: ", incomplete)
	default:
		cond.Status = corev1.ConditionTrue
	}
	return cond
}

func initDone(c *corev1.Container, st *corev1.ContainerStatus) bool {
	if podspec.IsSidecar(c) {
		return st.Started != nil && *st.Started
	}
	return st.Ready
}

func anyRegularStarted(pod *corev1.Pod, s *corev1.PodStatus) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		st := find(s.ContainerStatuses, c.Name)
		return st != nil && (st.State.Running != nil || st.State.Terminated != nil)
	})
}

// ReadyToStartContainers returns the condition PodReadyToStartContainers. The condition is
// True if the pod's newest sandbox is its only ready sandbox and has the network that the
// spec requires. It is False if runtime is nil.
func ReadyToStartContainers(pod *corev1.Pod, runtime *podcache.Status) corev1.PodCondition {
	cond := newCondition(pod, corev1.PodReadyToStartContainers, corev1.ConditionFalse)
	if runtime == nil || runtime.ReadySandbox() == nil {
		return cond
	}
	for _, other := range runtime.Sandboxes[1:] {
		if other != nil && other.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			return cond
		}
	}
	sandbox := runtime.ReadySandbox()
	mode := runtimeapi.NamespaceMode_POD
	if pod.Spec.HostNetwork {
		mode = runtimeapi.NamespaceMode_NODE
	}
	noIP := sandbox.GetNetwork() != nil && sandbox.GetNetwork().GetIp() == ""
	if sandbox.GetLinux().GetNamespaces().GetOptions().GetNetwork() == mode && (pod.Spec.HostNetwork || !noIP) {
		cond.Status = corev1.ConditionTrue
	}
	return cond
}

// Condition returns a pointer to the condition of the given type in the list, or nil.
func Condition(conditions []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	return first(conditions, func(c *corev1.PodCondition) bool { return c.Type == t })
}

func newCondition(pod *corev1.Pod, t corev1.PodConditionType, status corev1.ConditionStatus) corev1.PodCondition {
	return corev1.PodCondition{Type: t, Status: status, ObservedGeneration: pod.Generation}
}

// list joins the non-empty lists of names, each after its label.
func list(labelA string, a []string, labelB string, b []string) string {
	var parts []string
	if len(a) > 0 {
		parts = append(parts, fmt.Sprint(labelA, a))
	}
	if len(b) > 0 {
		parts = append(parts, fmt.Sprint(labelB, b))
	}
	return strings.Join(parts, ", ")
}

func endedReason(phase corev1.PodPhase) string {
	if phase == corev1.PodSucceeded {
		return ReasonPodCompleted
	}
	return ReasonPodFailed
}

// setTransitionTimes sets the transition times of the node's conditions, except resize
// conditions, which have their own times.
func setTransitionTimes(conditions, old []corev1.PodCondition, now time.Time) {
	for i := range conditions {
		c := &conditions[i]
		if ownerOf(c.Type) != foreign && !isResize(c.Type) {
			c.LastTransitionTime = transitionTime(c, old, now)
		}
	}
}

// transitionTime returns the transition time of c: the previous time if the status of c has
// not changed, otherwise the current time.
func transitionTime(c *corev1.PodCondition, old []corev1.PodCondition, now time.Time) metav1.Time {
	if was := Condition(old, c.Type); was != nil && was.Status == c.Status {
		return was.LastTransitionTime
	}
	return metav1.Time{Time: now.Truncate(time.Second)}
}

// markEndedUnready sets Ready and ContainersReady to False if the phase is terminal and one
// of them is True (kubernetes#108594). A condition that was already False keeps its
// transition time. A condition that becomes False has no transition time until the caller
// sets it.
func markEndedUnready(pod *corev1.Pod, s *corev1.PodStatus) {
	isTrue := func(c corev1.PodCondition) bool {
		return (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status == corev1.ConditionTrue
	}
	if !podspec.IsTerminal(s.Phase) || !slices.ContainsFunc(s.Conditions, isTrue) {
		return
	}
	for _, t := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		c := newCondition(pod, t, corev1.ConditionFalse)
		c.Reason = endedReason(s.Phase)
		if was := Condition(s.Conditions, t); was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		setCondition(s, c)
	}
}
