package status

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// CheckTransition returns an error that names every container which has
// terminated in old, is not terminated in next, and must not run again: by its
// rules, its policy or the pod's. Sidecars and ephemeral containers may do
// anything, and so may any container of a pod whose policy is Always or that has
// a rule to restart all of them. A container that next lacks is not looked at.
// Nothing is modified.
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

// revived reports whether the container had terminated and is shown as not terminated in next.
func revived(was *corev1.ContainerStatus, next []corev1.ContainerStatus) bool {
	now := find(next, was.Name)
	return was.State.Terminated != nil && now != nil && now.State.Terminated == nil
}

// isFinal reports whether the container of spec c, nil if the spec lacks it, must not run
// again after it has ended so.
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
