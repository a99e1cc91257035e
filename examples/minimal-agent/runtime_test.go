package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/machine"
	"github.com/kubeparts/kubeparts/fakecri"
)

// serveRuntime returns a runtime and its endpoint. The runtime keeps running when an agent
// exits, and can simulate faults.
func serveRuntime(t *testing.T) (*fakecri.Node, string) {
	t.Helper()
	n, err := fakecri.New(machine.DemoNode())
	require.NoError(t, err)
	return n, serveNode(t, n)
}

// serveNode serves n until the test ends, and returns its address.
func serveNode(t *testing.T, n *fakecri.Node) string {
	t.Helper()
	listener, remove, err := machine.ListenTemporary()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- n.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
		require.NoError(t, remove())
	})
	return "unix://" + listener.Addr().String()
}

// podYAML returns a manifest with one container, with more lines for the container.
func podYAML(name, image string, more ...string) string {
	text := strings.NewReplacer("NAME", name, "demo/web:1", image).Replace(podManifest)
	return text + strings.Join(more, "")
}

func (r *running) phase(t *testing.T, name string) corev1.PodPhase {
	t.Helper()
	return phases(r.pods(t))[name+"-node1"]
}

func (r *running) removed(name string) int {
	stdout, _ := r.printed()
	return strings.Count(strings.Join(stdout, "\n"), "default/"+name+"-node1 removed, UID ")
}

func TestRemoval_HangDelaysNoOtherPod(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	dir, root := t.TempDir(), t.TempDir()
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
	manifest(t, dir, "b.yaml", podYAML("b", "demo/web:1"))
	a := start(t, "--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", root)
	await(t, "a and b run", func() bool { return a.phase(t, "a") == "Running" && a.phase(t, "b") == "Running" })
	uid := a.pods(t)["a-node1"].UID

	require.NoError(t, node.Fail("RemovePodSandbox", fakecri.Fault{Object: "default/a-node1", Hang: true}))
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	require.NoError(t, os.Remove(filepath.Join(dir, "b.yaml")))
	manifest(t, dir, "c.yaml", podYAML("c", "demo/web:1"))
	await(t, "b is gone and c runs", func() bool { return a.removed("b") == 1 && a.phase(t, "c") == "Running" })
	code, body := a.get(t, "/healthz")
	require.Equal(t, http.StatusOK, code, body)

	// The pod is defined again while its earlier instance is being removed. The new log
	// directory must not be removed.
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
	await(t, "a is desired again and waits", func() bool {
		pod, desired := a.pods(t)["a-node1"]
		return desired && pod.Status.ContainerStatuses[0].State.Terminated != nil // the status of the earlier instance
	})
	node.ClearFaults("")
	await(t, "a runs again", func() bool {
		s := a.pods(t)["a-node1"].Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Running != nil
	})
	require.Equal(t, 1, a.removed("a"))
	require.FileExists(t, filepath.Join(root, "logs", "pods", "default_a-node1_"+string(uid), "app", "0.log"))
	require.NoError(t, a.stop())
}

func TestHealth_FailsWhileTheRuntimeHangs(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	a := start(t, "--cri-endpoint", endpoint, "--manifests", t.TempDir(), "--root-dir", t.TempDir())
	health := func(want int) func() bool {
		return func() bool {
			asked := time.Now()
			code, body := a.get(t, "/readyz")
			require.Less(t, time.Since(asked), 3*time.Second, "health must not wait for the runtime")
			return code == want && (want == http.StatusOK || strings.Contains(body, "runtime failed: no answer within 3s"))
		}
	}
	await(t, "/healthz responds 200", health(http.StatusOK))
	require.NoError(t, node.Fail("", fakecri.Fault{Hang: true}))
	await(t, "/healthz responds 500", health(http.StatusInternalServerError))
	node.ClearFaults("")
	await(t, "/healthz responds 200 again", health(http.StatusOK))
	require.NoError(t, a.stop())
}

func TestLivez_AnswersWhileTheRuntimeHangsAtTheStart(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	require.NoError(t, node.Fail("ListPodSandbox", fakecri.Fault{Hang: true}))
	dir := t.TempDir()
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
	a := start(t, "--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", t.TempDir())
	begin := time.Now()
	code, body := a.get(t, "/livez")
	require.Equal(t, http.StatusOK, code, body)
	require.Less(t, time.Since(begin), time.Minute, "the start must not wait for the runtime")
	node.ClearFaults("")
	await(t, "a runs", func() bool { return a.phase(t, "a") == "Running" })
}

func TestStop_BeforeTheRuntimeAnswers(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	require.NoError(t, node.Fail("Version", fakecri.Fault{Hang: true}))
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(200*time.Millisecond, cancel).Stop()
	began := time.Now()
	require.NoError(t, run(ctx, []string{"--cri-endpoint", endpoint, "--root-dir", t.TempDir()}, io.Discard, io.Discard))
	require.Less(t, time.Since(began), 3*time.Second)
}

func TestStop_WhileAnImageIsPulled(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--stop-pods"}} {
		node, endpoint := serveRuntime(t)
		require.NoError(t, node.Fail("PullImage", fakecri.Fault{Hang: true}))
		dir := t.TempDir()
		manifest(t, dir, "a.yaml", podYAML("a", "example.com/not/here:1"))
		a := start(t, append(flags, "--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", t.TempDir())...)
		await(t, "a has its sandbox", func() bool {
			boxes, err := node.ListPodSandbox(t.Context(), nil)
			return err == nil && len(boxes) == 1
		})
		asked := time.Now()
		require.NoError(t, a.stop())
		require.Less(t, time.Since(asked), 15*time.Second, flags) // a pull may take minutes
		boxes, err := node.ListPodSandbox(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, len(flags) == 0, len(boxes) == 1, flags)
	}
}

func TestStopPods_IncludesPodsOfAnEarlierAgent(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	dir, root := filepath.Join(t.TempDir(), "manifests"), t.TempDir()
	require.NoError(t, os.Mkdir(dir, 0o755))
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
	args := []string{"--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", root}
	first := start(t, args...)
	await(t, "a runs", func() bool { return first.phase(t, "a") == "Running" })
	require.NoError(t, first.stop())

	require.NoError(t, os.RemoveAll(dir))
	second := start(t, append(args, "--stop-pods")...)
	await(t, "/healthz reports that the manifest folder cannot be read", func() bool {
		_, body := second.get(t, "/healthz")
		return strings.Contains(body, "folder cannot be read")
	})
	require.NoError(t, second.stop())
	left, err := node.ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestPod_EditedWithoutAnAgentWaitsForItsPredecessor(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	dir := t.TempDir()
	args := []string{"--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", t.TempDir()}
	manifest(t, dir, "a.yaml", podYAML("a", "demo/slow:1")) // the container takes seconds to exit
	first := start(t, args...)
	await(t, "a runs", func() bool { return first.phase(t, "a") == "Running" })
	before := first.pods(t)["a-node1"].UID
	require.NoError(t, first.stop())

	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
	second := start(t, args...)
	most := 0
	await(t, "the new pod a runs and the old pod a is removed", func() bool {
		running, err := node.ListContainers(t.Context(), &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		})
		require.NoError(t, err)
		most = max(most, len(running))
		now := second.pods(t)["a-node1"]
		return now.UID != before && now.Status.Phase == "Running" && second.removed("a") == 1
	})
	require.Equal(t, 1, most, "two pods of the same name ran at the same time")
}

func TestPods_KeepRunningWithoutTheManifestFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "later")
	a := start(t, "--manifests", dir)
	await(t, "/healthz fails because of the missing manifest folder", func() bool {
		code, body := a.get(t, "/healthz")
		return code == http.StatusInternalServerError && strings.Contains(body, dir)
	})
	require.NoError(t, os.Mkdir(dir, 0o755))
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
	await(t, "a runs", func() bool { return a.phase(t, "a") == "Running" })

	require.NoError(t, os.RemoveAll(dir))
	await(t, "/healthz?verbose reports that the manifest folder cannot be read", func() bool {
		_, body := a.get(t, "/healthz?verbose")
		return strings.Contains(body, "folder cannot be read")
	})
	require.Equal(t, corev1.PodRunning, a.phase(t, "a"))
	require.NoError(t, os.Mkdir(dir, 0o755))
	await(t, "a is gone", func() bool { return a.removed("a") == 1 })
}

// If an edit that keeps the UID can't be admitted, the previous version keeps running.
func TestPod_RefusedEditChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := strings.Replace(podYAML("a", "demo/web:1"), "{name: a}", "{name: a, uid: 6f1de7a3-0d0f-4c0c-9a2b-5b1f0a7c2d11}", 1)
	manifest(t, dir, "a.yaml", good)
	a := start(t, "--manifests", dir)
	await(t, "a runs", func() bool { return a.phase(t, "a") == corev1.PodRunning })
	before := a.pods(t)["a-node1"].Status.ContainerStatuses[0].ContainerID
	manifest(t, dir, "a.yaml", good+"    resources: {limits: {example.com/gpu: 1}}\n")
	await(t, "the refusal is explained", func() bool {
		_, text := a.get(t, "/agent/explain/default/a?output=text")
		return strings.Contains(text, "the change of its spec was not admitted") && strings.Contains(text, "UnsupportedFields")
	})
	manifest(t, dir, "a.yaml", good)
	await(t, "the explanation no longer mentions the refused change", func() bool {
		code, text := a.get(t, "/agent/explain/default/a?output=text")
		return code == http.StatusOK && !strings.Contains(text, "the change of its spec") && !strings.Contains(text, "its spec was changed")
	})
	now := a.pods(t)["a-node1"].Status
	require.Equal(t, corev1.PodRunning, now.Phase)
	require.Equal(t, before, now.ContainerStatuses[0].ContainerID)
	require.NoError(t, a.stop())
}

func TestPod_DefinedAgainWhileTerminatingStartsAgain(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Always", "Never"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			text := podYAML("a", "demo/slow:1") + "  restartPolicy: " + policy + "\n"
			manifest(t, dir, "a.yaml", text)
			a := start(t, "--manifests", dir)
			await(t, "a runs", func() bool { return a.phase(t, "a") == "Running" })
			first := a.pods(t)["a-node1"]
			require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
			await(t, "a is not desired", func() bool { return len(a.pods(t)) == 0 })
			manifest(t, dir, "a.yaml", text)
			await(t, "a runs again", func() bool {
				s := a.pods(t)["a-node1"].Status
				return len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].State.Running != nil &&
					s.ContainerStatuses[0].ContainerID != first.Status.ContainerStatuses[0].ContainerID
			})
			require.Zero(t, a.pods(t)["a-node1"].Status.ContainerStatuses[0].RestartCount, "the new pod must start with restart count 0")
			require.Equal(t, 1, a.removed("a"))
			require.NoError(t, a.stop())
		})
	}
}

func TestTakeOver_RemovesPodsOfAKubeletOnly(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	foreign := func(name string, labels map[string]string) string {
		id, err := node.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name}, Labels: labels,
		}, "")
		require.NoError(t, err)
		return id
	}
	kubelets := foreign("of-a-kubelet", map[string]string{
		"io.kubernetes.pod.name": "of-a-kubelet", "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "of-a-kubelet",
	})
	strangers := foreign("of-a-stranger", nil)
	a := start(t, "--cri-endpoint", endpoint, "--manifests", t.TempDir(), "--root-dir", t.TempDir(), "--take-over")
	await(t, "the kubelet's pod is gone", func() bool {
		stdout, _ := a.printed()
		return strings.Contains(strings.Join(stdout, "\n"), "default/of-a-kubelet removed")
	})
	require.NoError(t, a.stop())
	_, err := node.PodSandboxStatus(t.Context(), kubelets, false)
	require.Error(t, err)
	left, err := node.PodSandboxStatus(t.Context(), strangers, false)
	require.NoError(t, err)
	require.Equal(t, runtimeapi.PodSandboxState_SANDBOX_READY, left.GetStatus().GetState())
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// A resize back to the previous size must be executed, although the status from before the
// first resize already has that size.
func TestResize_BackToThePreviousSize(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	dir := t.TempDir()
	write := func(limit string) {
		manifest(t, dir, "a.yaml", `apiVersion: v1
kind: Pod
metadata: {name: a, uid: a}
spec: {containers: [{name: web, image: "demo/web:1", resources: {requests: {memory: 32Mi}, limits: {memory: `+limit+`}}}]}
`)
	}
	write("64Mi")
	a := start(t, "--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", t.TempDir())
	for _, limit := range []string{"64Mi", "128Mi", "64Mi", "128Mi"} {
		write(limit)
		want := resource.MustParse(limit)
		await(t, "the container and the status have "+limit, func() bool {
			listed, err := node.ListContainers(t.Context(), nil)
			require.NoError(t, err)
			if len(listed) != 1 {
				return false
			}
			has, err := node.ContainerStatus(t.Context(), listed[0].GetId(), false)
			require.NoError(t, err)
			said := a.pods(t)["a-node1"].Status.ContainerStatuses
			return has.GetStatus().GetResources().GetLinux().GetMemoryLimitInBytes() == want.Value() &&
				len(said) == 1 && said[0].Resources != nil && said[0].Resources.Limits.Memory().Cmp(want) == 0
		})
	}
	require.NoError(t, a.stop())
}

// Pods of the embedded runtime have addresses in a network in memory, where their programs
// respond to probes and hooks. The host's network is not used.
func TestEmbeddedRuntime_AnswersProbesAndHooks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest(t, dir, "a.yaml", `apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
  - name: web
    image: demo/web:1
    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
    lifecycle: {postStart: {httpGet: {port: 8080}}, preStop: {httpGet: {port: 8080}}}
  - {name: rpc, image: "demo/rpc:1", readinessProbe: {grpc: {port: 9090}, periodSeconds: 1}}
  - {name: db, image: "demo/db:1", readinessProbe: {tcpSocket: {port: 5432}, periodSeconds: 1}}
`)
	manifest(t, dir, "b.yaml", `apiVersion: v1
kind: Pod
metadata: {name: b}
spec:
  hostNetwork: true
  containers:
  - {name: web, image: "demo/web:1", readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}}
`)
	a := start(t, "--cri-endpoint", "embedded", "--manifests", dir, "--root-dir", t.TempDir())
	for _, name := range []string{"a-node1", "b-node1"} {
		await(t, name+" is ready", func() bool {
			p := a.pods(t)[name]
			return condition(&p, corev1.PodReady) == corev1.ConditionTrue
		})
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	await(t, "a is gone", func() bool { return a.removed("a") == 1 })
	require.NoError(t, a.stop())
	stdout, stderr := a.printed()
	require.NotContains(t, strings.Join(append(stdout, stderr), "\n"), "Failed", "no hook may fail")
}

// TestContainer_CannotStart checks that the agent retries the start of a container in later
// syncs, not at once, and replaces the container if the runtime has lost it.
func TestContainer_CannotStart(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	require.NoError(t, node.Fail("GetContainerEvents", fakecri.Fault{Err: grpcstatus.Error(codes.Unimplemented, "no events")}))
	require.NoError(t, node.Fail("StartContainer", fakecri.Fault{Object: "default/a-node1/app", Err: errors.New("not now")}))
	dir, config := t.TempDir(), configFile(t, "syncFrequency: 3s\n")
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
	a := start(t, "--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", t.TempDir(), "--config", config)
	failed := func() int {
		stdout, _ := a.printed()
		return strings.Count(strings.Join(stdout, "\n"), "Error: not now")
	}
	await(t, "the start of the container has failed", func() bool { return failed() > 0 })
	manifest(t, dir, "b.yaml", podYAML("b", "demo/hungry:1", "  restartPolicy: Never\n"))
	await(t, "b has failed after its two seconds", func() bool { return a.phase(t, "b") == corev1.PodFailed })
	require.Less(t, failed(), 20, "a start must be retried only after a change, and then every 3 s")
	created, err := node.ListContainers(t.Context(), &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_CREATED},
	})
	require.NoError(t, err)
	require.Len(t, created, 1)
	node.ClearFaults("StartContainer")
	_ = node.StartContainer(t.Context(), created[0].GetId()) // the agent may have started the container already
	require.NoError(t, node.SetUnknown(created[0].GetId()))
	await(t, "a runs", func() bool { return a.phase(t, "a") == corev1.PodRunning })
	require.NoError(t, a.stop())
}
