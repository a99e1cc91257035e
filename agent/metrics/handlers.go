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
// scrapes: the resource usage of a node, its pods and their containers. The figures are
// measured for each request, with its context. They are not registered anywhere and have no
// node label. Summary measures the figures; with an error, it returns those that could be
// measured. stats.Provider has such a method.
func (m *Metrics) Resource(summary func(context.Context) (*statsapi.Summary, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		registry := prometheus.NewRegistry()                                                    // one for each request, because the collector uses its context
		_ = registry.Register(&resource{ctx: r.Context(), summary: summary, log: m.cfg.Logger}) // never fails: an unchecked collector
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{
			ErrorHandling: promhttp.ContinueOnError, // serves all metrics that could be gathered
			ErrorLog:      failures{m.cfg.Logger},
		}).ServeHTTP(w, r)
	})
}

// failures logs errors of promhttp.
type failures struct{ log *slog.Logger }

// Println implements [promhttp.Logger].
func (f failures) Println(v ...any) { f.log.Warn("metrics are missing", "err", fmt.Sprint(v...)) }
