package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// send sends a request with the token secret.
func (r *running) send(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer secret")
	answer, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(data)
}

// podsWithToken returns the pods by name.
func (r *running) podsWithToken(t *testing.T) map[string]corev1.Pod {
	t.Helper()
	_, body := r.send(t, http.MethodGet, "/pods", "")
	var list corev1.PodList
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	pods := map[string]corev1.Pod{}
	for _, p := range list.Items {
		pods[p.Name] = p
	}
	return pods
}

func TestDebugging_WithAToken(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	a := start(t, "--token-file", token, "--manifest-url", "http://me:hidden@localhost:1/pods?key=hidden",
		"--kube-reserved", "memory=1Mi,cpu=1m", "--eviction-hard", "memory.available<1Mi")
	code, body := a.send(t, http.MethodPut, "/debug/flags/v", "4")
	require.Equal(t, http.StatusOK, code, body)
	_, body = a.send(t, http.MethodGet, "/flagz", "")
	for _, want := range []string{
		"\nkube-reserved=cpu=1m,memory=1Mi\n", "\neviction-hard=memory.available<1Mi\n", "\ntoken-file=" + token + "\n", "\nmanifest-url=http://me:xxxxx@localhost:1/pods\n",
	} {
		require.Contains(t, body, want)
	}
	require.NotContains(t, body, "hidden")
	_, body = a.send(t, http.MethodGet, "/statusz", "")
	require.Contains(t, body, "minimal-agent statusz")
	code, _ = a.send(t, http.MethodGet, "/logs/", "")
	if _, err := os.Stat("/var/log"); err == nil {
		require.Equal(t, http.StatusOK, code)
	}
	_, body = a.send(t, http.MethodGet, "/metrics/slis", "")
	require.NotContains(t, body, `type="readyz"`)
	_, _ = a.send(t, http.MethodGet, "/readyz", "")
	_, body = a.send(t, http.MethodGet, "/metrics/slis", "")
	require.Contains(t, body, `kubernetes_healthcheck{name="ping",type="readyz"} 1`)
	_, body = a.send(t, http.MethodGet, "/metrics", "")
	require.Contains(t, body, `kubelet_http_requests_total{long_running="false",method="GET",path="metrics/slis",server_type="readwrite"} 2`)
	await(t, "the agent knows the machine", func() bool {
		_, body := a.send(t, http.MethodGet, "/metrics", "")
		return strings.Contains(body, "kubelet_cgroup_version 2")
	})
	var web string
	await(t, "a container runs", func() bool {
		for name, pod := range a.podsWithToken(t) {
			if len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].State.Running != nil {
				web = name + "/" + pod.Spec.Containers[0].Name
				return true
			}
		}
		return false
	})
	code, body = a.send(t, http.MethodPost, "/checkpoint/default/"+web, "")
	require.Equal(t, http.StatusInternalServerError, code)
	require.Contains(t, body, "method CheckpointContainer not implemented", "the embedded runtime must receive the request")
}

func TestDebugging_IsOffWithoutAToken(t *testing.T) {
	t.Parallel()
	a := start(t)
	for path, want := range map[string]string{
		"/logs/": "logs endpoint is disabled.\n", "/debug/flags/v": "flags endpoint is disabled.\n", "/debug/pprof/": "profiling endpoint is disabled.\n",
	} {
		code, body := a.get(t, path)
		require.Equal(t, http.StatusMethodNotAllowed, code, path)
		require.Equal(t, want, body, path)
	}
}
