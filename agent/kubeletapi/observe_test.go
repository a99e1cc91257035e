package kubeletapi_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

func TestObserver_Request(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var began, ended []string
	url, stop := run(t, kubeletapi.Config{
		Metrics: page(""), ProbeMetrics: page(""), Page: page("hello"),
		Observer: kubeletapi.Observer{Request: func(r *http.Request, path, serverType string) func() {
			mu.Lock()
			defer mu.Unlock()
			text := strings.Join([]string{r.Method, path, serverType}, " ")
			began = append(began, text)
			return func() {
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, text)
			}
		}},
	})
	for _, path := range []string{"/", "/healthz/ping", "/metrics", "/metrics/probes", "/metrics/other", "/nothing/here", "/exec/ns/p/c", "/agent/status"} {
		_, _, _ = get(t, http.DefaultClient, url+path)
	}
	_, _, _ = get(t, http.DefaultClient, url+"/pods", "Host", "evil.example")
	require.NoError(t, stop())
	slices.Sort(began)
	slices.Sort(ended)
	require.Equal(t, []string{
		"GET agent readwrite", "GET agent readwrite", // one after the redirect from /
		"GET exec readwrite", "GET healthz readwrite", "GET metrics readwrite", "GET metrics/probes readwrite",
		"GET other readwrite", "GET other readwrite", "GET other readwrite", "GET pods readwrite",
	}, began)
	require.Equal(t, began, ended)
}

func TestObserver_Checked(t *testing.T) {
	t.Parallel()
	bad := kubeletapi.Check{Name: "bad", Run: func() error { return errors.New("it hurts") }}
	var got []string
	cfg := kubeletapi.Config{Checks: []kubeletapi.Check{bad}, Observer: kubeletapi.Observer{
		Checked: func(endpoint, check string, err error) {
			text := endpoint + " " + check + " ok"
			if err != nil {
				text = endpoint + " " + check + " " + err.Error()
			}
			got = append(got, text)
		},
	}}
	for _, path := range []string{"/livez", "/healthz", "/readyz?exclude=bad"} {
		_, _ = ask(t, cfg, path)
	}
	require.Equal(t, []string{"livez ping ok", "healthz ping ok", "healthz bad it hurts", "readyz ping ok"}, got)
}
