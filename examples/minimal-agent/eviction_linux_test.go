package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/machine"
	"github.com/kubeparts/kubeparts/fakecri"
)

// TestEviction_EvictedPodStaysEvictedAfterRestarts starts more agents after an eviction: with
// the same pressure, without pressure, and with another pod instead of the evicted pod. None
// of these agents may start the pod again or change its status.
func TestEviction_EvictedPodStaysEvictedAfterRestarts(t *testing.T) {
	t.Parallel()
	cfg := machine.DemoNode()
	cfg.Record = true
	node, err := fakecri.New(cfg)
	require.NoError(t, err)
	endpoint := serveNode(t, node)
	dir, root := t.TempDir(), t.TempDir()
	const critical = "  priority: 2000000000\n"
	wholeNode := fmt.Sprintf("    resources: {requests: {cpu: %d}}\n", runtime.NumCPU())
	args := []string{"--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", root}
	enough := append([]string{"--eviction-hard="}, args...)
	short := append([]string{"--eviction-hard", "memory.available<99.9%", "--eviction-pressure-transition-period", "1s"}, args...)
	status := func(r *running) corev1.PodStatus { return r.pods(t)["evicted-node1"].Status }

	manifest(t, dir, "evicted.yaml", podYAML("evicted", "demo/web:1", wholeNode))
	first := start(t, enough...)
	await(t, "the pod runs", func() bool { return status(first).Phase == corev1.PodRunning })
	require.NoError(t, first.stop())
	second := start(t, short...)
	await(t, "the pod is evicted and removed", func() bool { return status(second).Reason == "Evicted" && second.removed("evicted") > 0 })
	said, err := json.Marshal(status(second))
	require.NoError(t, err)
	require.NoError(t, second.stop())
	before := madeFor(node, "evicted")
	require.Positive(t, before)

	for i, flags := range [][]string{short, enough, enough, short} {
		next := start(t, flags...)
		name := fmt.Sprint("round", i)
		manifest(t, dir, name+".yaml", podYAML(name, "demo/web:1", critical))
		await(t, name+" runs", func() bool { return next.phase(t, name) == corev1.PodRunning })
		if i == 1 {
			manifest(t, dir, "another.yaml", podYAML("another", "demo/web:1", wholeNode+critical))
			await(t, "the pod another runs", func() bool { return next.phase(t, "another") == corev1.PodRunning })
		}
		now, err := json.Marshal(status(next))
		require.NoError(t, err)
		require.JSONEq(t, string(said), string(now))
		require.NoError(t, next.stop())
	}
	require.Equal(t, before, madeFor(node, "evicted"), "the evicted pod was started again")
}

// madeFor returns the number of sandboxes and containers that were created for a pod.
func madeFor(node *fakecri.Node, name string) (n int) {
	for _, c := range node.Calls() {
		if (c.Method == "RunPodSandbox" || c.Method == "CreateContainer") && strings.HasPrefix(c.Object, "default/"+name+"-node1") {
			n++
		}
	}
	return n
}
