package status

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

const (
	// ReasonRestartAllContainersStarted means that a rule of a container restarts the
	// whole pod and that the old containers are being removed (KEP-5532).
	ReasonRestartAllContainersStarted = "RestartAllContainersStarted"

	restartAllTriggered = "container exited with restart policy rule"
	removedToRestart    = "The container is removed because RestartAllContainers in place"
)

// AllContainersRestarting returns the condition of that name, for a pod with a rule
// that restarts all containers. It is True from the termination of a container that matches
// such a rule until all containers are removed.
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

// restartingAll reports whether the pod's containers are being removed to restart all of
// them. A container has terminated and matches such a rule, or that container is removed
// already and old containers remain. If there are only new containers, the restart is
// complete: the agent was restarted after it had started them.
func restartingAll(in *Input) bool {
	if in.Runtime == nil || !mayRestartAll(&in.Pod.Spec) {
		return false
	}
	old := in.previous()
	anyOld, anyNew := false, false
	for c := range podspec.Containers(&in.Pod.Spec) {
		seen := in.Runtime.Container(c.Name)
		if seen == nil {
			continue
		}
		st := find(old.ContainerStatuses, c.Name)
		if st == nil {
			st = find(old.InitContainerStatuses, c.Name)
		}
		ended := seen.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && !podcache.BrokenOff(seen)
		if ended && (podspec.RestartsAll(c, seen.GetExitCode()) ||
			st != nil && st.State.Terminated != nil && podspec.RestartsAll(c, st.State.Terminated.ExitCode)) {
			return true
		}
		isOld := st != nil && st.ContainerID == containerID(in.RuntimeName, seen.GetId())
		anyOld, anyNew = anyOld || isOld, anyNew || !isOld
	}
	was := Condition(old.Conditions, corev1.AllContainersRestarting)
	return was != nil && was.Status == corev1.ConditionTrue && (anyOld || !anyNew)
}

func anyLeft(in *Input) bool {
	for c := range podspec.Containers(&in.Pod.Spec) {
		if in.Runtime.Container(c.Name) != nil {
			return true
		}
	}
	return false
}

// removedForRestart returns the status of a container that was removed to restart all. If it
// was terminated before, the other fields of its status are kept.
func removedForRestart(c *corev1.Container, old *corev1.ContainerStatus) corev1.ContainerStatus {
	st := corev1.ContainerStatus{Name: c.Name, Image: c.Image}
	if old.State.Terminated != nil {
		st = *old.DeepCopy()
	}
	st.RestartCount = old.RestartCount + 1
	st.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: ReasonRestartingAllContainers, Message: removedToRestart,
	}}
	st.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: lostExitCode, Reason: ReasonRestartingAllContainers, Message: removedToRestart,
	}}
	return st
}
