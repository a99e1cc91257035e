package podrunner_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/podcache"
)

// TestRunner_WithoutLogRoot checks that containers run without logs, and that the agent's
// working directory is not searched.
func TestRunner_WithoutLogRoot(t *testing.T) {
	t.Parallel()
	made := &configs{}
	b := newBed(t, recording(made), func(c *podrunner.Config) { c.LogRoot = "" })
	pod := podOf(nil, "crash")
	pod.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	require.NoError(t, b.sync(pod))
	require.Empty(t, made.box.GetLogDirectory())
	require.Empty(t, made.container.GetLogPath())
	require.Empty(t, b.look(pod.UID).Container("crash").GetLogPath())

	b.clock.Step(time.Second)
	ended := b.look(pod.UID).Container("crash")
	require.Equal(t, int32(3), ended.GetExitCode())
	require.Empty(t, podrunner.TerminationMessage(ended), "without a log, there must be no termination message")

	b.clock.Step(time.Minute)
	require.NoError(t, b.sync(pod))
	require.Equal(t, 1, podcache.RestartCount(b.look(pod.UID).Container("crash")))
	require.NoError(t, b.runner.RemovePod(t.Context(), &podcache.Status{UID: "u", Name: "n", Namespace: "ns"}))
}
