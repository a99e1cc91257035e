package podspec

import corev1 "k8s.io/api/core/v1"

// RestartsAll reports whether all containers of the pod must be restarted in
// its sandbox after c has ended with exitCode (KEP-5532). The first restart
// rule of c that matches exitCode decides. As in [ShouldRestart], the rules are
// ignored if c has no restart policy.
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

// Ephemeral returns c as a regular container. The result points to the memory
// of c.
func Ephemeral(c *corev1.EphemeralContainer) *corev1.Container {
	return (*corev1.Container)(&c.EphemeralContainerCommon)
}
