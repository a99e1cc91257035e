package status

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// CheckTransition returns an error if a container is terminated in the old status but not in
// the next status, and must not run again. The error names every such container. The
// container's restart rules and restart policy and the pod's restart policy determine
// whether the container may run again. A container with the waiting reason
// [ReasonPodRestarting] may run again, because a user has requested the restart.
// CheckTransition does not check sidecars, ephemeral containers and containers that are
// missing in the next status. It does not check pods with restart policy Always or with a
// rule that restarts all containers. Nothing is modified.
func CheckTransition(pod *corev1.Pod, old, next *corev1.PodStatus) error {
	if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways || mayRestartAll(&pod.Spec) {
		return nil
	}
	var errs []error
	for i := range old.ContainerStatuses {
		was := &old.ContainerStatuses[i]
		c := specOf(pod.Spec.Containers, was.Name)
		if revived(was, next.ContainerStatuses) && isFinal(pod, c, was.State.Terminated) {
			errs = append(errs, fmt.Errorf("terminated container %v attempted illegal transition to non-terminated state", was.Name))
		}
	}
	for i := range old.InitContainerStatuses {
		was := &old.InitContainerStatuses[i]
		c := specOf(pod.Spec.InitContainers, was.Name)
		switch {
		case !revived(was, next.InitContainerStatuses):
		case c == nil:
			errs = append(errs, fmt.Errorf("found mismatch between pod spec and status, container: %v", was.Name))
		case !podspec.IsSidecar(c) && isFinal(pod, c, was.State.Terminated):
			errs = append(errs, fmt.Errorf("terminated init container %v attempted illegal transition to non-terminated state", was.Name))
		}
	}
	return errors.Join(errs...)
}

// revived reports whether a terminated container is no longer terminated in the next status.
// It returns false if the next status does not contain the container, or if the container
// has the waiting reason ReasonPodRestarting.
func revived(was *corev1.ContainerStatus, next []corev1.ContainerStatus) bool {
	now := find(next, was.Name)
	if was.State.Terminated == nil || now == nil || now.State.Terminated != nil {
		return false
	}
	return now.State.Waiting == nil || now.State.Waiting.Reason != ReasonPodRestarting
}

// isFinal reports whether container c must not run again after the given termination. c
// is nil if the container is missing in the spec.
func isFinal(pod *corev1.Pod, c *corev1.Container, end *corev1.ContainerStateTerminated) bool {
	if end.ExitCode != 0 && pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
		return false
	}
	return c == nil || !podspec.ShouldRestart(pod, c, end.ExitCode)
}

func specOf(list []corev1.Container, name string) *corev1.Container {
	return first(list, func(c *corev1.Container) bool { return c.Name == name })
}

func mayRestartAll(spec *corev1.PodSpec) bool {
	for c := range podspec.Containers(spec) {
		if slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		}) {
			return true
		}
	}
	return false
}
