package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/eventlog"
	"github.com/kubeparts/kubeparts/fakecri"
)

const supplied = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}
---
apiVersion: v1
kind: Pod
metadata: {name: supplied}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: map, configMap: {name: settings}}, {name: scratch, emptyDir: {}}]
  containers:
  - name: app
    image: demo/web:1
    envFrom: [{configMapRef: {name: settings}}]
    volumeMounts: [{name: map, mountPath: /map}, {name: scratch, mountPath: /scratch}]
    lifecycle: {preStop: {sleep: {seconds: 1}}}
`

func TestVolumes_AreMountedAndRemovedWithThePod(t *testing.T) {
	t.Parallel()
	dir, root := t.TempDir(), t.TempDir()
	manifest(t, dir, "supplied.yaml", supplied)
	a := start(t, "--manifests", dir, "--root-dir", root)
	await(t, "the pod runs", func() bool { return phases(a.pods(t))["supplied-node1"] == "Running" })
	uid := string(a.pods(t)["supplied-node1"].UID)
	file := filepath.Join(root, "pods", uid, "volumes/kubernetes.io~configmap/map/color")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "blue", string(text))

	manifest(t, dir, "supplied.yaml", strings.ReplaceAll(supplied, "blue", "green"))
	await(t, "the volume shows the change", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && string(text) == "green"
	})
	require.NoError(t, os.Remove(filepath.Join(dir, "supplied.yaml")))
	await(t, "the pod's volumes are removed", func() bool {
		entries, err := os.ReadDir(filepath.Join(root, "pods"))
		return err == nil && len(entries) == 0
	})
	require.NoError(t, a.stop())
}

// TestStart_RemovesFilesOfPodsOfAKilledAgent checks the removal of the files of pods that no
// source defines and that do not exist in the runtime.
func TestStart_RemovesFilesOfPodsOfAKilledAgent(t *testing.T) {
	t.Parallel()
	dir, root := t.TempDir(), t.TempDir()
	old := filepath.Join(root, "pods/gone/volumes/kubernetes.io~empty-dir/scratch")
	require.NoError(t, os.MkdirAll(old, 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "pods/foreign/something"), 0o755))
	manifest(t, dir, "good.yaml", strings.ReplaceAll(podManifest, "NAME", "good"))
	a := start(t, "--manifests", dir, "--root-dir", root)
	await(t, "the directory of the pod that no manifest defines is removed", func() bool {
		_, err := os.Stat(filepath.Join(root, "pods/gone"))
		return os.IsNotExist(err)
	})
	require.NoError(t, a.stop())
	require.DirExists(t, filepath.Join(root, "pods/foreign/something"), "unknown files must be kept")
}

// TestStart_RemovesNoFilesBeforeTheFirstList checks that the files of an undefined pod are
// kept while it may still be running.
func TestStart_RemovesNoFilesBeforeTheFirstList(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	dir, root := t.TempDir(), t.TempDir()
	args := []string{"--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", root}
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
	first := start(t, args...)
	await(t, "a runs", func() bool { return first.phase(t, "a") == corev1.PodRunning })
	hosts := filepath.Join(root, "pods", string(first.pods(t)["a-node1"].UID), "etc-hosts")
	require.NoError(t, first.stop())

	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	require.NoError(t, node.Fail("ListContainers", fakecri.Fault{Hang: true}))
	second := start(t, args...)
	begun := time.Now()
	await(t, "the agent had time for two passes, one every 10 s", func() bool {
		require.FileExists(t, hosts)
		return time.Since(begun) > 12*time.Second
	})
	_, stderr := second.printed()
	require.NotContains(t, stderr, "could not remove the data")
	node.ClearFaults("ListContainers")
	await(t, "a and its data are removed", func() bool {
		_, err := os.Stat(filepath.Dir(hosts))
		return second.removed("a") == 1 && os.IsNotExist(err)
	})
	require.NoError(t, second.stop())
}

func TestAdmission_PodsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest(t, dir, "a.yaml", strings.ReplaceAll(podManifest, "NAME", "a"))
	manifest(t, dir, "b.yaml", strings.ReplaceAll(podManifest, "NAME", "b"))
	a := start(t, "--manifests", dir, "--max-pods", "1")
	await(t, "one pod is refused", func() bool {
		got := phases(a.pods(t))
		return got["a-node1"] == "Running" && got["b-node1"] == "Failed"
	})
	require.Equal(t, "OutOfpods", a.pods(t)["b-node1"].Status.Reason)
	require.NoError(t, a.stop())
}

func TestRecorder_PrintsWarnings(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	r := recorder{events: eventlog.New(eventlog.Config{}), console: &console{out: &out}}
	pod := &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p"}
	container := &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p", FieldPath: "spec.containers{c}"}
	record := func(object runtime.Object, kind, reason, message string) {
		r.AnnotatedEventf(object, nil, kind, reason, "%s", message)
	}
	record(pod, corev1.EventTypeNormal, "Started", "Container started")
	record(pod, corev1.EventTypeWarning, "FailedMount", "no luck")
	record(&corev1.ObjectReference{Kind: "Node", Name: "n"}, corev1.EventTypeWarning, "SystemOOM", "full")
	record(container, corev1.EventTypeWarning, "Unhealthy", "ill")
	record(pod, corev1.EventTypeWarning, "MissingClusterDNS", "none")
	record(&corev1.Secret{}, corev1.EventTypeWarning, "X", "y")
	all, _, _ := r.events.After(0)
	require.Len(t, all, 5)
	require.Equal(t, "MissingClusterDNS", all[4].Reason)
	require.Equal(t, corev1.EventTypeNormal, all[4].Type, "the event must not be a warning, because the status shows warnings")
	var lines []string
	for line := range strings.Lines(out.String()) {
		_, line, _ = strings.Cut(line, " ") // skips the time
		lines = append(lines, line)
	}
	require.Equal(t, []string{
		"ns/p FailedMount: no luck\n", "node n SystemOOM: full\n", "ns/p Unhealthy spec.containers{c}: ill\n",
	}, lines)
}
