package kubeletapi_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// runOn serves one of the additional listeners until the test ends, and returns its URL.
func runOn(t *testing.T, cfg kubeletapi.Config, address string, serve func(*kubeletapi.Server, context.Context, net.Listener) error) (url string) {
	t.Helper()
	s, err := kubeletapi.New(withAgent(cfg))
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(s, ctx, listener) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		require.NoError(t, <-done)
	})
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return "http://127.0.0.1:" + port
}

// secured returns a configuration with all endpoints, whose main listener requires a token.
func secured(t *testing.T) kubeletapi.Config {
	t.Helper()
	cfg := everything()
	cfg.Access.TokenFile = filepath.Join(t.TempDir(), "token")
	writeFile(t, cfg.Access.TokenFile, []byte("s3cret"))
	cfg.Streams = &streamRuntime{}
	return cfg
}

func TestRunHealth_ServesOnlyHealth(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		url := runOn(t, secured(t), address, (*kubeletapi.Server).RunHealth)
		for path, want := range map[string]int{
			"/healthz": 200, "/healthz/ping": 200, "/healthz/log": 200, "/healthz/syncloop": 200, "/livez": 200, "/readyz": 200, "/healthz?verbose": 200,
			"/healthz/unknown": 404, "/": 404, "/pods": 404, "/metrics": 404, "/stats/summary": 404, "/agent/": 404, "/agent/status": 404, "/configz": 404,
			"/exec/ns/p/c": 404, "/debug/pprof/": 404, "/healthz/../pods": 404,
		} {
			code, _, _ := get(t, http.DefaultClient, url+path)
			require.Equal(t, want, code, path)
			code, _, _ = get(t, http.DefaultClient, url+path, "Host", "evil.example")
			if address == "127.0.0.1:0" && path != "/livez" {
				want = http.StatusForbidden
			}
			require.Equal(t, want, code, path)
		}
	}
}

func TestRunReadOnly_ServesTheKubeletsReadOnlyPaths(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		url := runOn(t, secured(t), address, (*kubeletapi.Server).RunReadOnly)
		for path, want := range map[string]int{
			"/healthz": 200, "/healthz/ping": 200, "/livez": 200, "/readyz": 200, "/pods": 200, "/pods/": 200, "/metrics": 200, "/metrics/probes": 200, "/metrics/resource": 200,
			"/stats/summary": 500, // this agent has no statistics
			"/":              404, "/agent/": 404, "/agent/status": 404, "/agent/events": 404, "/configz": 404,
			"/exec/ns/p/c": 405, "/attach/ns/p/c": 405, "/run/ns/p/c": 405, "/portForward/ns/p": 405, "/containerLogs/ns/p/c": 405,
			"/runningpods/": 405, "/debug/pprof/": 405, "/debug/pprof/profile": 405, "/logs/": 405,
		} {
			code, _, body := get(t, http.DefaultClient, url+path)
			require.Equal(t, want, code, path)
			if want == http.StatusMethodNotAllowed {
				require.Equal(t, "Debug endpoints are disabled.\n", body, path)
			}
		}
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			r, err := http.NewRequestWithContext(t.Context(), method, url+"/pods", http.NoBody)
			require.NoError(t, err)
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode)
		}
		code, _, _ := get(t, http.DefaultClient, url+"/pods", "Host", "evil.example")
		if address == "127.0.0.1:0" {
			require.Equal(t, http.StatusForbidden, code)
		} else {
			require.Equal(t, http.StatusOK, code)
		}
	}
}
