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
		if revived(pod, specOf(pod.Spec.Containers, was.Name), was, next.ContainerStatuses) {
			errs = append(errs, fmt.Errorf("terminated container %v attempted illegal transition to non-terminated state", was.Name))
		}
	}
	for i := range old.InitContainerStatuses {
		was := &old.InitContainerStatuses[i]
		c := specOf(pod.Spec.InitContainers, was.Name)
		switch {
		case was.State.Terminated == nil, stillEnded(was, next.InitContainerStatuses):
		case c == nil:
			errs = append(errs, fmt.Errorf("found mismatch between pod spec and status, container: %v", was.Name))
		case podspec.IsSidecar(c):
		case revived(pod, c, was, next.InitContainerStatuses):
			errs = append(errs, fmt.Errorf("terminated init container %v attempted illegal transition to non-terminated state", was.Name))
		}
	}
	return errors.Join(errs...)
}

// revived says whether the container of spec c, nil if the spec lacks it, was
// terminated for good and is not terminated now.
func revived(pod *corev1.Pod, c *corev1.Container, was *corev1.ContainerStatus, next []corev1.ContainerStatus) bool {
	end := was.State.Terminated
	switch {
	case end == nil:
		return false
	case end.ExitCode != 0 && pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure:
		return false
	case c != nil && podspec.ShouldRestart(pod, c, end.ExitCode):
		return false
	}
	return !stillEnded(was, next)
}

// stillEnded says whether next lacks the container or shows it as terminated.
func stillEnded(was *corev1.ContainerStatus, next []corev1.ContainerStatus) bool {
	now := find(next, was.Name)
	return now == nil || now.State.Terminated != nil
}

func specOf(list []corev1.Container, name string) *corev1.Container {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
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
