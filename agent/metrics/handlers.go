package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Resource returns the handler of the kubelet's page /metrics/resource, which
// metrics-server scrapes: what one node, its pods and their containers use. The figures are
// not registered anywhere, because they are measured for each request, with its context,
// and have no label of the node. Summary measures them; with an error it returns what it
// could measure all the same. The Summary of stats.Provider is such a function.
func (m *Metrics) Resource(summary func(context.Context) (*statsapi.Summary, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		registry := prometheus.NewRegistry()                                                    // one for each request, so that it ends with the request
		_ = registry.Register(&resource{ctx: r.Context(), summary: summary, log: m.cfg.Logger}) // it names no metrics before
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{
			ErrorHandling: promhttp.ContinueOnError, // it serves all that can be gathered
			ErrorLog:      failures{m.cfg.Logger},
		}).ServeHTTP(w, r)
	})
}

// failures is where promhttp logs errors.
type failures struct{ log *slog.Logger }

// Println is for [promhttp.Logger].
func (f failures) Println(v ...any) { f.log.Warn("metrics are missing", "err", fmt.Sprint(v...)) }
