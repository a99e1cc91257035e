package main

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/machine"
	"github.com/kubeparts/kubeparts/fakecri"
)

// serveProbed returns a runtime whose programs can be probed over the network, and its
// endpoint. Only one such runtime may run at a time.
func serveProbed(t *testing.T, network string) (*fakecri.Node, string) {
	t.Helper()
	cfg := machine.DemoNode()
	cfg.Listen, cfg.PodNetwork = net.Listen, netip.MustParsePrefix(network)
	cfg.Programs["test/cmd:1"] = fakecri.Program{Exec: map[string]fakecri.Exec{
		"check": {Health: true, Stdout: "out ", Stderr: "err"}, "hang": {Runtime: time.Hour},
	}}
	n, err := fakecri.New(cfg)
	require.NoError(t, err)
	t.Cleanup(n.Shutdown)
	return n, serveNode(t, n)
}

// probedPod has each kind of probe and each handler.
const probedPod = `apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  initContainers:
  - {name: side, image: "demo/db:1", restartPolicy: Always, startupProbe: {tcpSocket: {port: 5432}, periodSeconds: 1}}
  containers:
  - name: web
    image: demo/web:1
    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1, failureThreshold: 1}
    livenessProbe: {httpGet: {port: 8080}, periodSeconds: 1, failureThreshold: 3}
  - name: rpc
    image: demo/rpc:1
    startupProbe: {grpc: {port: 9090}, periodSeconds: 1, failureThreshold: 30}
    readinessProbe: {grpc: {port: 9090}, periodSeconds: 1, failureThreshold: 1}
  - name: cmd
    image: test/cmd:1
    readinessProbe: {exec: {command: [check]}, periodSeconds: 1, failureThreshold: 1}
  - {name: plain, image: "demo/slow:1"}
`

// container returns the status of a container of pod a.
func (r *running) container(t *testing.T, name string) corev1.ContainerStatus {
	t.Helper()
	s := r.pods(t)["a-node1"].Status
	for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
		if c.Name == name {
			return c
		}
	}
	return corev1.ContainerStatus{}
}

func (r *running) ready(t *testing.T) bool {
	t.Helper()
	p := r.pods(t)["a-node1"]
	return condition(&p, corev1.PodReady) == corev1.ConditionTrue
}

func TestProbes_UpdateStatusesAndRestartContainers(t *testing.T) {
	t.Parallel()
	node, endpoint := serveProbed(t, "127.88.1.0/24")
	dir := t.TempDir()
	manifest(t, dir, "a.yaml", probedPod)
	a := start(t, "--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", t.TempDir())
	await(t, "a is ready", func() bool { return a.ready(t) })
	require.True(t, *a.container(t, "side").Started)

	for _, name := range []string{"rpc", "cmd"} {
		require.NoError(t, node.SetHealthy("default/a-node1/"+name, false))
		await(t, name+" is not ready", func() bool { return !a.container(t, name).Ready && !a.ready(t) })
		require.NoError(t, node.SetHealthy("default/a-node1/"+name, true))
		await(t, "a is ready again", func() bool { return a.ready(t) })
		require.Zero(t, a.container(t, name).RestartCount)
	}
	require.NoError(t, node.SetHealthy("default/a-node1/web", false))
	await(t, "web is not ready", func() bool { return !a.container(t, "web").Ready })
	await(t, "web is restarted and ready", func() bool { return a.container(t, "web").RestartCount == 1 && a.ready(t) })
	require.Zero(t, a.container(t, "rpc").RestartCount)
	stdout, _ := a.printed()
	require.Contains(t, strings.Join(stdout, "\n"),
		"default/a-node1 Unhealthy spec.containers{cmd}: Readiness probe failed: out err")

	// Readiness probes continue until the containers have exited. The container plain needs
	// some time to become ready.
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	await(t, "a is gone", func() bool { return a.removed("a") == 1 })
	require.NoError(t, a.stop())
}

func TestRestart_ChangesNoStatus(t *testing.T) {
	t.Parallel()
	node, endpoint := serveProbed(t, "127.88.2.0/24")
	dir, root := t.TempDir(), t.TempDir()
	manifest(t, dir, "a.yaml", probedPod)
	args := []string{"--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", root}
	first := start(t, args...)
	await(t, "a is ready", func() bool { return first.ready(t) })
	require.NoError(t, node.SetHealthy("default/a-node1/cmd", false))
	await(t, "a is not ready", func() bool { return !first.ready(t) })
	before := first.pods(t)["a-node1"]
	require.NoError(t, first.stop())
	saved := filepath.Join(root, "statuses", string(before.UID)+".json")
	require.FileExists(t, saved)
	require.NoError(t, os.WriteFile(filepath.Join(root, "statuses", "broken.json"), []byte("{"), 0o600))
	data, err := os.ReadFile(saved)
	require.NoError(t, err)
	gone := strings.ReplaceAll(string(data), string(before.UID), "gone")
	require.NoError(t, os.WriteFile(filepath.Join(root, "statuses", "gone.json"), []byte(gone), 0o600))

	second := start(t, args...)
	await(t, "a message names the broken file", func() bool {
		_, stderr := second.printed()
		return strings.Contains(stderr, "broken.json")
	})
	want, err := json.Marshal(before.Status)
	require.NoError(t, err)
	ready := func() bool { // until the pod is ready, its status must equal the stored status
		now, shown := second.pods(t)["a-node1"]
		if !shown || condition(&now, corev1.PodReady) == corev1.ConditionTrue {
			return shown // false until the agent has read the manifest
		}
		got, err := json.Marshal(now.Status)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(got))
		return false
	}
	await(t, "the stored status of a pod that no longer exists is removed", func() bool {
		require.False(t, ready())
		_, err := os.Stat(filepath.Join(root, "statuses", "gone.json"))
		return os.IsNotExist(err)
	})
	require.NoError(t, node.SetHealthy("default/a-node1/cmd", true))
	await(t, "the stored status of a is ready", ready)
	manifest(t, dir, "a.yaml", podYAML("b", "demo/web:1"))
	await(t, "a and its stored status are removed", func() bool {
		_, err := os.Stat(saved)
		return second.removed("a") == 1 && os.IsNotExist(err)
	})
	require.NoError(t, second.stop())
}

// A newer agent may support a pod that an earlier agent has rejected.
func TestRestart_PodRefusedByAnEarlierAgentMayRun(t *testing.T) {
	t.Parallel()
	_, endpoint := serveRuntime(t)
	dir, root := t.TempDir(), t.TempDir()
	args := []string{"--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", root}
	const uid = "6f1de7a3-0d0f-4c0c-9a2b-5b1f0a7c2d12"
	good := strings.Replace(podYAML("a", "demo/web:1"), "{name: a}", "{name: a, uid: "+uid+"}", 1)
	manifest(t, dir, "a.yaml", good+"    resources: {limits: {example.com/gpu: 1}}\n")
	first := start(t, args...)
	await(t, "a is refused", func() bool { return first.pods(t)["a-node1"].Status.Reason == "UnsupportedFields" })
	require.NoError(t, first.stop())
	require.FileExists(t, filepath.Join(root, "statuses", uid+".json"))

	manifest(t, dir, "a.yaml", good)
	second := start(t, args...)
	await(t, "a runs", func() bool { return second.phase(t, "a") == corev1.PodRunning })
	require.NoError(t, second.stop())
}
