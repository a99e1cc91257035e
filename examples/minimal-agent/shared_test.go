package main

import (
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestServer_EndpointsShareAnswersOfTheRuntime counts the calls to the runtime while clients
// send requests to the endpoints without a pause.
func TestServer_EndpointsShareAnswersOfTheRuntime(t *testing.T) {
	t.Parallel()
	_, endpoint := serveRuntime(t)
	dir := t.TempDir()
	manifest(t, dir, "web.yaml", podYAML("web", "demo/web:1"))
	a := start(t, "--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", t.TempDir())
	await(t, "the status of web has its usage", func() bool { return podOf(a.status(t), "web").Usage != nil })
	calls := func() int {
		_, metrics := a.get(t, "/metrics")
		m := regexp.MustCompile(`kubelet_runtime_operations_total\{operation_type="list_podsandbox_stats"\} (\d+)`).FindStringSubmatch(metrics)
		require.NotNil(t, m)
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		return n
	}
	const each = 20
	before, began := calls(), time.Now()
	for range each {
		for _, path := range []string{"/agent/status", "/stats/summary", "/agent/explain/default/web"} {
			code, body := a.get(t, path)
			require.Equal(t, http.StatusOK, code, body)
		}
	}
	require.LessOrEqual(t, calls()-before, 1+int(time.Since(began)/time.Second), "calls for %d requests", 3*each)
}
