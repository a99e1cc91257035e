package status

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

const (
	// ReasonRestartAllContainersStarted means that a restart rule of a container restarts
	// all containers of the pod, and that the old containers are being removed (KEP-5532).
	ReasonRestartAllContainersStarted = "RestartAllContainersStarted"

	// ReasonPodRestarting is the waiting reason of a terminated container that will start again
	// because a restart of the pod was requested.
	ReasonPodRestarting = "PodRestarting"

	podRestarting       = "a restart of the pod was requested"
	restartAllTriggered = "container exited with restart policy rule"
	removedToRestart    = "The container is removed because RestartAllContainers in place"
)

// AllContainersRestarting returns the condition AllContainersRestarting for a pod with a
// restart rule that restarts all containers. The condition becomes True when a container
// terminates and matches such a rule. It is True until all old containers are removed.
func AllContainersRestarting(in Input, phase corev1.PodPhase) corev1.PodCondition {
	cond := newCondition(in.Pod, corev1.AllContainersRestarting, corev1.ConditionFalse)
	switch {
	case podspec.IsTerminal(phase):
		cond.Reason = endedReason(phase)
	case restartingAll(&in) && hasContainers(&in):
		cond.Status, cond.Reason, cond.Message = corev1.ConditionTrue, ReasonRestartAllContainersStarted, restartAllTriggered
	}
	return cond
}

// restartingAll reports whether the pod's containers are being removed so that all of them
// restart. The removal begins when a container terminates and matches a rule with the
// action RestartAllContainers. After that container is removed, the condition in the
// previous status shows that a restart is in progress. If the runtime has only containers
// that are not in the previous status, the restart is complete: an earlier agent started
// them and stopped before it updated the status.
func restartingAll(in *Input) bool {
	if in.Runtime == nil || !mayRestartAll(&in.Pod.Spec) {
		return false
	}
	old := in.previous()
	anyOld, anyNew := false, false
	for c := range podspec.Containers(&in.Pod.Spec) {
		current := in.Runtime.Container(c.Name)
		if current == nil {
			continue
		}
		previous := find(old.ContainerStatuses, c.Name)
		if previous == nil {
			previous = find(old.InitContainerStatuses, c.Name)
		}
		ended := current.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && !podcache.StartInterrupted(current)
		if ended && (podspec.RestartsAll(c, current.GetExitCode()) ||
			previous != nil && previous.State.Terminated != nil && podspec.RestartsAll(c, previous.State.Terminated.ExitCode)) {
			return true
		}
		isOld := previous != nil && previous.ContainerID == containerID(in.RuntimeName, current.GetId())
		anyOld, anyNew = anyOld || isOld, anyNew || !isOld
	}
	was := Condition(old.Conditions, corev1.AllContainersRestarting)
	return was != nil && was.Status == corev1.ConditionTrue && (anyOld || !anyNew)
}

func hasContainers(in *Input) bool {
	for c := range podspec.Containers(&in.Pod.Spec) {
		if in.Runtime.Container(c.Name) != nil {
			return true
		}
	}
	return false
}

// removedForRestart returns the status of a container that was removed because all
// containers of the pod restart. If the container had terminated before, all fields except
// RestartCount, State and LastTerminationState are copied from the previous status.
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
