package podspec

import corev1 "k8s.io/api/core/v1"

// RestartsAll says whether the end of c with exitCode is to restart every
// container of its pod in place (KEP-5532): the first of its rules that matches
// says so. As in [ShouldRestart] a container without a policy of its own has no
// rules that count.
func RestartsAll(c *corev1.Container, exitCode int32) bool {
	if c.RestartPolicy == nil {
		return false
	}
	for _, r := range c.RestartPolicyRules {
		if r.ExitCodes != nil && matches(r.ExitCodes, exitCode) && restarts(r.Action) {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		}
	}
	return false
}

// Ephemeral returns c as the container that it is besides. It shares c's memory.
func Ephemeral(c *corev1.EphemeralContainer) *corev1.Container {
	return (*corev1.Container)(&c.EphemeralContainerCommon)
}
