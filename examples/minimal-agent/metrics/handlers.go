package metrics

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handlers serve the kubelet's pages of metrics.
type Handlers struct {
	// Metrics is for /metrics, Probes for /metrics/probes.
	Metrics, Probes http.Handler
	// Resource is for /metrics/resource. It is nil without [Sources].Summary.
	Resource http.Handler
}

// Handlers returns the handlers, which ask the sources. It may be called again.
func (m *Metrics) Handlers(s Sources) Handlers {
	asked := prometheus.NewRegistry()
	// This fails for no names but those that New has refused.
	_ = asked.Register(newState(s, m.cfg.Prefix, m.kills))
	h := Handlers{
		Metrics: m.page(prometheus.Gatherers{m.registry, asked}),
		Probes:  m.page(m.probes),
	}
	if s.Summary != nil {
		h.Resource = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// One for each request, so that it ends with the request.
			registry := prometheus.NewRegistry()
			_ = registry.Register(&resource{ctx: r.Context(), summary: s.Summary, log: m.cfg.Logger}) // of no name yet
			m.page(registry).ServeHTTP(w, r)
		})
	}
	return h
}

// page serves all that can be gathered, whatever can't.
func (m *Metrics) page(from prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(from, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      failures{m.cfg.Logger},
	})
}

// failures is where promhttp says what went wrong.
type failures struct{ log *slog.Logger }

// Println is for [promhttp.Logger].
func (f failures) Println(v ...any) { f.log.Warn("metrics are missing", "err", fmt.Sprint(v...)) }
