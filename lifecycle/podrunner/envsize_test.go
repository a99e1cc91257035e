package podrunner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

const tooLong = "environment, command and arguments: more than 6291456 bytes with all $(NAME) references replaced"

// doubling returns variables, each with ten references to the previous variable.
func doubling(count int) (env []corev1.EnvVar) {
	env = append(env, corev1.EnvVar{Name: "V0", Value: "0123456789"})
	for i := 1; i < count; i++ {
		env = append(env, corev1.EnvVar{Name: fmt.Sprintf("V%d", i), Value: strings.Repeat(fmt.Sprintf("$(V%d)", i-1), 10)})
	}
	return env
}

// A manifest of 2 KB must not exhaust the memory.
func TestContainerConfig_ExpansionIsBounded(t *testing.T) {
	t.Parallel()
	const mega = "$(V5)" // value of a million bytes
	for name, c := range map[string]corev1.Container{
		"variables":        {Env: doubling(30)},
		"one of many":      {Env: append(doubling(6), corev1.EnvVar{Name: "X", Value: strings.Repeat(mega, 1<<20)})},
		"the same again":   {Env: append(doubling(6), repeated(corev1.EnvVar{Name: "X", Value: mega}, 10_000)...)},
		"command":          {Env: doubling(6), Command: []string{"sh", strings.Repeat(mega, 1000)}},
		"words of command": {Env: doubling(6), Command: repeated(mega, 1000)},
		"arguments":        {Env: doubling(6), Args: repeated(mega, 1000)},
		"all together":     {Env: doubling(6), Command: repeated(mega, 3), Args: repeated(mega, 3)},
		"paths": {Env: doubling(6), VolumeMounts: repeated(corev1.VolumeMount{
			Name: "data", MountPath: "/data", SubPathExpr: strings.Repeat(mega, 1000),
		}, 1000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := podrunner.Instance{Volumes: map[string]string{"data": "/data"}}
			_, err := podrunner.ContainerConfig(t.Context(), testPod(), &c, in, testNode())
			require.EqualError(t, err, tooLong)
		})
	}
}

func TestContainerConfig_LargeEnvironmentIsAccepted(t *testing.T) {
	t.Parallel()
	c := &corev1.Container{Env: doubling(6), Command: repeated("$(V5)", 2), Args: repeated("$(V5)", 2)}
	got, err := podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{}, testNode())
	require.NoError(t, err)
	require.Len(t, got.GetCommand()[1], 1_000_000)
	require.Len(t, got.GetArgs()[1], 1_000_000)
}

func TestSyncPod_HugeEnvironmentHoldsUpNoOtherContainer(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app", "stubborn")
	pod.Spec.Containers[0].Env = doubling(30)
	require.ErrorContains(t, b.sync(pod), tooLong)
	require.Equal(t, corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: tooLong}, b.runner.Waiting(pod.UID)["app"])
	require.True(t, running(b.look(pod.UID).Container("stubborn")))
}

func repeated[T any](one T, count int) (all []T) {
	for range count {
		all = append(all, one)
	}
	return all
}
