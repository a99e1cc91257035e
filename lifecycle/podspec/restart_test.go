package podspec_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

func TestRestartsAll(t *testing.T) {
	t.Parallel()
	const (
		one = corev1.ContainerRestartRuleActionRestart
		all = corev1.ContainerRestartRuleActionRestartAllContainers
		in  = corev1.ContainerRestartRuleOnExitCodesOpIn
		not = corev1.ContainerRestartRuleOnExitCodesOpNotIn
	)
	rule := func(action corev1.ContainerRestartRuleAction, op corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) corev1.ContainerRestartRule {
		return corev1.ContainerRestartRule{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
	}
	never := new(corev1.ContainerRestartPolicyNever)
	for _, tt := range []struct {
		name   string
		policy *corev1.ContainerRestartPolicy
		rules  []corev1.ContainerRestartRule
		want   bool // for exit code 42
	}{
		{"no rules", never, nil, false},
		{"a rule that matches", never, []corev1.ContainerRestartRule{rule(all, in, 1, 42)}, true},
		{"a rule for other exit codes", never, []corev1.ContainerRestartRule{rule(all, in, 1)}, false},
		{"a rule for all other exit codes", never, []corev1.ContainerRestartRule{rule(all, not, 1)}, true},
		{"rules without a container restart policy", nil, []corev1.ContainerRestartRule{rule(all, in, 42)}, false},
		{"a sidecar", new(corev1.ContainerRestartPolicyAlways), []corev1.ContainerRestartRule{rule(all, in, 42)}, true},
		{"a rule that restarts only the container", never, []corev1.ContainerRestartRule{rule(one, in, 42)}, false},
		{"a rule for the container, then a rule for all containers", never, []corev1.ContainerRestartRule{rule(one, in, 42), rule(all, in, 42)}, false},
		{"a rule for all containers, then a rule for the container", never, []corev1.ContainerRestartRule{rule(one, in, 1), rule(all, in, 42), rule(one, in, 42)}, true},
		{"without exit codes", never, []corev1.ContainerRestartRule{{Action: all}}, false},
		{"an unknown action is no rule", never, []corev1.ContainerRestartRule{rule("Explode", in, 42), rule(all, in, 42)}, true},
	} {
		c := &corev1.Container{RestartPolicy: tt.policy, RestartPolicyRules: tt.rules}
		require.Equal(t, tt.want, podspec.RestartsAll(c, 42), tt.name)
		if tt.want {
			require.True(t, podspec.ShouldRestart(&corev1.Pod{}, c, 42), "%s: the container itself must be restarted", tt.name)
		}
	}
}

func TestEphemeral_SharesMemory(t *testing.T) {
	t.Parallel()
	e := &corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox"}}
	c := podspec.Ephemeral(e)
	require.Equal(t, "debug", c.Name)
	c.Image = "other"
	require.Equal(t, "other", e.Image, "the ephemeral container must be returned as a container")
}

func TestRestartsOnResize(t *testing.T) {
	t.Parallel()
	c := &corev1.Container{ResizePolicy: []corev1.ContainerResizePolicy{
		{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer},
		{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired},
	}}
	require.True(t, podspec.RestartsOnResize(c, corev1.ResourceMemory))
	require.False(t, podspec.RestartsOnResize(c, corev1.ResourceCPU))
	require.False(t, podspec.RestartsOnResize(&corev1.Container{}, corev1.ResourceMemory), "the default must be NotRequired")
}

func TestQOSClassOfSpec_IgnoresTheStatus(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: resources("cpu=1", "")}}}}
	pod.Status.QOSClass = corev1.PodQOSBestEffort
	require.Equal(t, corev1.PodQOSBurstable, podspec.QOSClassOfSpec(pod))
	require.Equal(t, corev1.PodQOSBestEffort, podspec.QOSClass(pod))
}
