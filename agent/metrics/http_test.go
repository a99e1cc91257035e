package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRequest_HasTheKubeletsLabels(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ask := func(method, path, server string) (done func()) {
		return b.Request(httptest.NewRequestWithContext(t.Context(), method, "/", nil), path, server)
	}
	const pods = `{long_running="false",method="GET",path="pods",server_type="readonly"}`
	done := ask(http.MethodGet, "pods", "readonly")
	b.is("kubelet_http_requests_total"+pods, 1)
	b.is("kubelet_http_inflight_requests"+pods, 1)
	b.none("kubelet_http_requests_duration_seconds_count")
	b.clock.SetTime(epoch.Add(2 * time.Second))
	done()
	b.is("kubelet_http_requests_total"+pods, 1)
	b.is("kubelet_http_inflight_requests"+pods, 0)
	b.is("kubelet_http_requests_duration_seconds_sum"+pods, 2)

	for _, path := range []string{"exec", "attach", "portForward", "debug"} {
		ask(http.MethodPost, path, "readwrite")()
		b.is(`kubelet_http_requests_total{long_running="true",method="POST",path="`+path+`",server_type="readwrite"}`, 1)
	}
	ask("NONSENSE", "other", "readwrite")()
	ask(http.MethodPatch, "other", "readwrite")()
	b.is(`kubelet_http_requests_total{long_running="false",method="other",path="other",server_type="readwrite"}`, 2)
}

func TestChecked_HasTheNamesOfComponentBase(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Checked("healthz", "ping", nil)
	b.Checked("healthz", "ping", errNo)
	b.Checked("readyz", "runtime", nil)
	page := scrape(t, b.health)
	require.Equal(t, []string{
		`kubernetes_healthcheck{name="ping",type="healthz"} 0`, `kubernetes_healthcheck{name="runtime",type="readyz"} 1`,
	}, series(page, "kubernetes_healthcheck{"))
	require.Equal(t, []string{
		`kubernetes_healthchecks_total{name="ping",status="error",type="healthz"} 1`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 1`,
		`kubernetes_healthchecks_total{name="runtime",status="success",type="readyz"} 1`,
	}, series(page, "kubernetes_healthchecks_total{"))

	handler := b.SLIs(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	require.Equal(t, http.StatusAccepted, w.Code)
	w = httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "/", nil))
	require.Equal(t, "metrics reset\n", w.Body.String())
	require.Empty(t, series(scrape(t, b.health), "kubernetes_"))
}
