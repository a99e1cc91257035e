package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

func TestBackoff_SurvivesARestartOfTheAgent(t *testing.T) {
	t.Parallel()
	_, endpoint := serveRuntime(t)
	dir, root := t.TempDir(), t.TempDir()
	manifest(t, dir, "a.yaml", podYAML("a", "demo/flaky:1"))
	args := []string{"--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", root}
	next := func(a *running) (at time.Time) {
		await(t, "a is in CrashLoopBackOff", func() bool {
			var e api.Explanation
			code, _ := a.get(t, "/agent/explain/default/a")
			if code != 200 {
				return false
			}
			a.json(t, "/agent/explain/default/a", &e)
			for _, s := range e.Next {
				if s.At != nil && s.What == "container app is restarted" {
					at = *s.At
				}
			}
			return !at.IsZero()
		})
		return at
	}
	first := start(t, args...)
	await(t, "a crashed", func() bool { return podOf(first.status(t), "a").State == "CrashLoopBackOff" })
	before := next(first)
	require.NoError(t, first.stop())
	require.FileExists(t, filepath.Join(root, "backoff.json"))
	second := start(t, args...)
	require.WithinDuration(t, before, next(second), time.Second)
	require.NoError(t, second.stop())
}

func TestShutdown_StopsPodsAndTheNextAgentStartsThem(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	dir, root := t.TempDir(), t.TempDir()
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
	manifest(t, dir, "b.yaml", podYAML("b", "demo/web:1")+"  priority: 2000000000\n")
	args := []string{"--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", root}
	first := start(t, append(args, "--shutdown-grace-period", "20s", "--shutdown-grace-period-critical-pods", "10s")...)
	await(t, "both pods run", func() bool {
		return first.phase(t, "a") == corev1.PodRunning && first.phase(t, "b") == corev1.PodRunning
	})
	require.NoError(t, first.stop())
	running, err := node.ListContainers(t.Context(), &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	require.NoError(t, err)
	require.Empty(t, running)
	stdout, _ := first.printed()
	require.Contains(t, stdout, "stopping all pods within 20s; a second signal exits at once and leaves the remaining pods running")

	second := start(t, args...)
	await(t, "both pods run again", func() bool {
		return second.phase(t, "a") == corev1.PodRunning && second.phase(t, "b") == corev1.PodRunning
	})
	require.NoError(t, second.stop())
}

func TestStart_PrintsAdoptedPods(t *testing.T) {
	t.Parallel()
	_, endpoint := serveRuntime(t)
	dir, root := t.TempDir(), t.TempDir()
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
	manifest(t, dir, "b.yaml", podYAML("b", "demo/web:1"))
	args := []string{"--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", root}
	first := start(t, args...)
	await(t, "both pods run", func() bool {
		return first.phase(t, "a") == corev1.PodRunning && first.phase(t, "b") == corev1.PodRunning
	})
	require.NoError(t, first.stop())
	require.NoError(t, os.Remove(filepath.Join(dir, "b.yaml")))
	second := start(t, args...)
	await(t, "one pod is adopted", func() bool { return second.status(t).Agent.Adopted == 1 })
	await(t, "the other pod is removed", func() bool { return second.removed("b") == 1 })
	require.NoError(t, second.stop())
	stdout, _ := second.printed()
	require.Contains(t, stdout[0], "using runtime fakecri")
	require.Equal(t, "listening on "+second.url, stdout[1])
	require.Contains(t, stdout, "pods defined in "+dir+": 1")
	require.Len(t, slices.DeleteFunc(stdout, func(line string) bool {
		return !strings.HasSuffix(line, "default/a-node1 adopted: the pod ran before this agent started")
	}), 1)
}
