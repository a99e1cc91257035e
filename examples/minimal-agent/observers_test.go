package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// metric returns the value of a series on a page, empty if the page has no such
// series.
func (r *running) metric(t *testing.T, path, series string) string {
	t.Helper()
	code, body := r.get(t, path)
	require.Equal(t, http.StatusOK, code)
	if m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(body); m != nil {
		return m[1]
	}
	return ""
}

// shows waits until a series of /metrics has a value that is not 0.
func (r *running) shows(t *testing.T, series string) {
	t.Helper()
	await(t, series, func() bool { v := r.metric(t, "/metrics", series); return v != "" && v != "0" })
}

func TestMetrics_CountEveryManager(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	require.NoError(t, node.Fail("StartContainer", fakecri.Fault{Err: context.Canceled, Times: 1}))
	// A sandbox of an earlier agent.
	id, err := node.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "left", Namespace: "default", Uid: "left"},
		Labels: map[string]string{
			"io.kubernetes.pod.name": "left", "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "left",
			"io.kubeparts.agent": "minimal-agent",
		},
	}, "")
	require.NoError(t, err)
	require.NotEmpty(t, id)
	dir := t.TempDir()
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
	manifest(t, dir, "job.yaml", podYAML("job", "demo/job:1"))
	manifest(t, dir, "refused.yaml", podYAML("refused", "demo/web:1", "    resources: {limits: {example.com/gpu: 1}}\n"))
	manifest(t, dir, "slow.yaml", podYAML("slow", "demo/slow:1"))
	a := start(t, "--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", t.TempDir(), "--stop-pods")
	await(t, "a runs", func() bool { return a.phase(t, "a") == corev1.PodRunning })

	for _, series := range []string{
		"kubelet_pleg_relist_duration_seconds_count",
		"kubelet_pleg_pod_relist_duration_seconds_count",
		"kubelet_pleg_last_seen_seconds",
		"kubelet_evented_pleg_connection_success_count",
		"kubelet_evented_pleg_connection_latency_seconds_count",
		`kubelet_pod_worker_duration_seconds_count{operation_type="create"}`,
		"kubelet_pod_worker_start_duration_seconds_count",
		"kubelet_pod_start_duration_seconds_count",
		"kubelet_pod_status_sync_duration_seconds_count",
		"kubelet_orphaned_runtime_pods_total",
		`kubelet_admission_rejections_total{reason="Other"}`,
		"kubelet_started_pods_total",
		`kubelet_started_containers_total{container_type="container"}`,
		`kubelet_started_containers_errors_total{code="RunContainerError",container_type="container"}`,
		`kubelet_runtime_operations_total{operation_type="version"}`,
		`kubelet_runtime_operations_total{operation_type="list_podsandbox"}`,
		`kubelet_runtime_operations_errors_total{operation_type="start_container"}`,
		`kubelet_run_podsandbox_duration_seconds_count{runtime_handler=""}`,
		`kubelet_desired_pods{static="true"}`,
		`kubelet_active_pods{static="true"}`,
		`kubelet_working_pods{config="desired",lifecycle="sync",static="true"}`,
		"kubelet_running_pods",
		`kubelet_running_containers{container_state="running"}`,
		"process_resident_memory_bytes",
		"process_start_time_seconds",
		"go_goroutines",
		"go_memstats_heap_inuse_bytes",
		`kubelet_node_name{node="node1"}`,
	} {
		a.shows(t, series)
	}
	require.Equal(t, "4", a.metric(t, "/metrics", `kubelet_desired_pods{static="true"}`))

	// The pod is removed, and defined again before its containers have ended.
	slow := a.metric(t, "/metrics", `kubelet_restarted_pods_total{static="true"}`)
	require.Empty(t, slow)
	await(t, "slow runs", func() bool { return a.phase(t, "slow") == corev1.PodRunning })
	require.NoError(t, os.Remove(filepath.Join(dir, "slow.yaml")))
	await(t, "slow is not desired", func() bool { _, there := a.pods(t)["slow-node1"]; return !there })
	manifest(t, dir, "slow.yaml", podYAML("slow", "demo/slow:1"))
	a.shows(t, `kubelet_restarted_pods_total{static="true"}`)
	a.shows(t, `kubelet_terminated_containers_total{container_type="container",exit_code="0",reason="Completed"}`)

	require.Equal(t, "0", a.metric(t, "/metrics/resource", "resource_scrape_error"))
	require.Equal(t, "0", a.metric(t, "/metrics/cadvisor", "container_scrape_error"))
	// The containers of the simulated runtime have no cgroups on this machine.
	_, page := a.get(t, "/metrics/cadvisor")
	require.Regexp(t, `(?m)^container_memory_working_set_bytes\{container="",id="/",.*\} [1-9]`, page)
	err = a.stop()
	_, stderr := a.printed()
	require.NoError(t, err, stderr)
}

func TestMetrics_SeriesOfProbesAreDeletedWithTheirPod(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1",
		"    readinessProbe: {exec: {command: [check]}, periodSeconds: 1}\n"))
	a := start(t, "--manifests", dir)
	probes := func() int {
		code, body := a.get(t, "/metrics/probes")
		require.Equal(t, http.StatusOK, code)
		return strings.Count(body, `pod="a-node1"`)
	}
	await(t, "a is probed", func() bool { return probes() > 0 })
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	await(t, "a is gone", func() bool { return a.removed("a") == 1 })
	await(t, "/metrics/probes has no series of a", func() bool { return probes() == 0 })
	// The series of OOM kills is deleted shortly after the pod's containers.
	await(t, "/metrics has no series of the pod", func() bool {
		_, body := a.get(t, "/metrics")
		return !strings.Contains(body, `pod="a-node1"`)
	})
	require.NoError(t, a.stop())
}
