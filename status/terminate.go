package status

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// terminate converts s to the final status of a pod that has ended.
func terminate(pod *corev1.Pod, s *corev1.PodStatus) {
	if hasInitialized(pod, s) {
		for i := range s.ContainerStatuses {
			terminateLost(&s.ContainerStatuses[i])
		}
	}
	for i := range s.InitContainerStatuses[:startedInits(s.InitContainerStatuses)] {
		terminateLost(&s.InitContainerStatuses[i])
	}
	if !podspec.IsTerminal(s.Phase) && !podspec.IsStatic(pod) {
		s.Phase = corev1.PodFailed
	}
}

func terminateLost(st *corev1.ContainerStatus) {
	if st.State.Terminated == nil {
		st.State = corev1.ContainerState{Terminated: lost(lostAtTermination)}
	}
}

// hasInitialized reports whether the pod has completed initialization: it has no init
// containers, a regular container has run, or the last init container has completed. A
// sidecar counts as completed when it has started.
func hasInitialized(pod *corev1.Pod, s *corev1.PodStatus) bool {
	if len(pod.Spec.InitContainers) == 0 {
		return true
	}
	for i := range s.ContainerStatuses {
		st := &s.ContainerStatuses[i]
		if st.LastTerminationState.Terminated != nil || st.State.Waiting == nil {
			return true
		}
	}
	if len(s.InitContainerStatuses) == 0 {
		return false
	}
	last := &s.InitContainerStatuses[len(s.InitContainerStatuses)-1]
	c := specOf(pod.Spec.InitContainers, last.Name)
	switch {
	case c == nil:
		return false
	case podspec.IsSidecar(c):
		return last.State.Running != nil && last.Started != nil && *last.Started
	default:
		return succeeded(last.LastTerminationState) || succeeded(last.State)
	}
}

func succeeded(state corev1.ContainerState) bool {
	return state.Terminated != nil && state.Terminated.ExitCode == 0
}

// startedInits returns the number of init containers that were started. Containers at the
// end of the list that wait and never ran do not count. The first container always
// counts.
func startedInits(list []corev1.ContainerStatus) int {
	n := len(list)
	for n > 1 && list[n-1].State.Waiting != nil && list[n-1].LastTerminationState.Terminated == nil {
		n--
	}
	return n
}
