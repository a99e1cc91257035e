package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

const (
	// ReasonRestartAllContainersStarted says that a container's rule restarts the
	// whole pod and that the old containers are being removed (KEP-5532).
	ReasonRestartAllContainersStarted = "RestartAllContainersStarted"

	restartAllTriggered = "container exited with restart policy rule"
	removedToRestart    = "The container is removed because RestartAllContainers in place"
)

// AllContainersRestarting returns the condition of that name, for a pod with a rule
// that restarts all containers: True from when one has ended so that such a rule
// matches until all are removed.
func AllContainersRestarting(in Input, phase corev1.PodPhase) corev1.PodCondition {
	cond := newCondition(in.Pod, corev1.AllContainersRestarting, corev1.ConditionFalse)
	switch {
	case podspec.IsTerminal(phase):
		cond.Reason = endedReason(phase)
	case restartingAll(&in) && anyLeft(&in):
		cond.Status, cond.Reason, cond.Message = corev1.ConditionTrue, ReasonRestartAllContainersStarted, restartAllTriggered
	}
	return cond
}

// restartingAll says whether the pod's containers are being removed to restart them
// all. The one that caused it may be the first to go; then it lasts until a
// container shows up that was not there before.
func restartingAll(in *Input) bool {
	if in.Runtime == nil || !mayRestartAll(&in.Pod.Spec) {
		return false
	}
	old := in.previous()
	was := Condition(old.Conditions, corev1.AllContainersRestarting)
	lasts := was != nil && was.Status == corev1.ConditionTrue
	for c := range podspec.Containers(&in.Pod.Spec) {
		seen := in.Runtime.Container(c.Name)
		if seen == nil {
			continue
		}
		if seen.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && ruleRestartsAll(c, seen.GetExitCode()) {
			return true
		}
		st := find(old.ContainerStatuses, c.Name)
		if st == nil {
			st = find(old.InitContainerStatuses, c.Name)
		}
		lasts = lasts && st != nil && st.ContainerID == containerID(in.RuntimeName, seen.GetId())
	}
	return lasts
}

func anyLeft(in *Input) bool {
	for c := range podspec.Containers(&in.Pod.Spec) {
		if in.Runtime.Container(c.Name) != nil {
			return true
		}
	}
	return false
}

// ruleRestartsAll says whether the first rule of c that matches restarts all.
func ruleRestartsAll(c *corev1.Container, exitCode int32) bool {
	for i := range c.RestartPolicyRules {
		r := &c.RestartPolicyRules[i]
		if r.ExitCodes == nil || c.RestartPolicy == nil {
			continue
		}
		in := slices.Contains(r.ExitCodes.Values, exitCode)
		if in && r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn ||
			!in && r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpNotIn {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		}
	}
	return false
}

// takenDown returns the status of a container that was removed to restart all.
func takenDown(c *corev1.Container, old *corev1.ContainerStatus) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, RestartCount: old.RestartCount + 1,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: ReasonRestartingAllContainers, Message: removedToRestart,
		}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: lostExitCode, Reason: ReasonRestartingAllContainers, Message: removedToRestart,
		}},
	}
}
