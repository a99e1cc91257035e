package metrics_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/metrics"
)

func TestPages_HaveTheirMetrics(t *testing.T) {
	t.Parallel()
	p, err := metrics.NewPages(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	p.Checked("healthz", "ping", nil)
	for _, c := range []struct {
		page     http.Handler
		has, not string
	}{
		{p.Main(), "go_goroutines", "kubernetes_healthcheck"},
		{p.Health(), "kubernetes_healthcheck", "go_goroutines"},
		{p.Probes(), "", "go_goroutines"}, // without probes, the page is empty
	} {
		w := httptest.NewRecorder()
		c.page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, http.StatusOK, w.Code)
		require.Contains(t, w.Body.String(), c.has)
		require.NotContains(t, w.Body.String(), c.not)
	}
}
