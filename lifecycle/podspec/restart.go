package podspec

import corev1 "k8s.io/api/core/v1"

// RestartsAll reports whether every container of the pod must be restarted in
// place after c has ended with exitCode (KEP-5532): the first matching rule of
// c decides. As in [ShouldRestart], the rules of a container without its own
// policy are ignored.
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

// Ephemeral returns c as a regular container. It shares c's memory.
func Ephemeral(c *corev1.EphemeralContainer) *corev1.Container {
	return (*corev1.Container)(&c.EphemeralContainerCommon)
}
