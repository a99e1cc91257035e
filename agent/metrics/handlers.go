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

// Resource returns the handler of the kubelet's page /metrics/resource, which metrics-server
// scrapes: the resource usage of a node, its pods and their containers. The handler calls
// summary for each request, with the context of the request. The metrics are not registered
// with the registerers of [Config], and have no node label. If summary returns both
// a Summary and an error, the handler serves the figures of the Summary and logs the error.
// Pass the method Summary of an agent, or a function that calls Summary of a stats.Provider.
func (m *Metrics) Resource(summary func(context.Context) (*statsapi.Summary, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		registry := prometheus.NewRegistry()                                                    // a new registry, because the collector uses the context of the request
		_ = registry.Register(&resource{ctx: r.Context(), summary: summary, log: m.cfg.Logger}) // never fails, because the collector describes no metrics
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{
			ErrorHandling: promhttp.ContinueOnError, // serves all metrics that could be gathered
			ErrorLog:      failures{m.cfg.Logger},
		}).ServeHTTP(w, r)
	})
}

// failures logs errors of promhttp.
type failures struct{ log *slog.Logger }

// Println implements [promhttp.Logger].
func (f failures) Println(v ...any) {
	f.log.Warn("could not export some metrics", "err", fmt.Sprint(v...))
}
