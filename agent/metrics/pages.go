package metrics

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Pages has the metrics of a program with one agent, and the handlers of those pages of the kubelet
// that are served from registries.
type Pages struct {
	*Metrics
	main, probes, health *prometheus.Registry
	log                  *slog.Logger
}

// NewPages returns Pages with a registry for each page. /metrics also has the metrics of the process
// and of the Go runtime. Metrics that can't be gathered are left out of their page and logged.
func NewPages(log *slog.Logger) (*Pages, error) {
	p := &Pages{main: prometheus.NewRegistry(), probes: prometheus.NewRegistry(), health: prometheus.NewRegistry(), log: log}
	var err error
	p.Metrics, err = New(Config{Registerer: p.main, ProbeRegisterer: p.probes, HealthRegisterer: p.health, Logger: log})
	return p, errors.Join(err,
		p.main.Register(collectors.NewGoCollector()),
		p.main.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
}

// Main returns the handler of /metrics.
func (p *Pages) Main() http.Handler { return p.page(p.main) }

// Probes returns the handler of /metrics/probes.
func (p *Pages) Probes() http.Handler { return p.page(p.probes) }

// Health returns the handler of /metrics/slis.
func (p *Pages) Health() http.Handler { return p.SLIs(p.page(p.health)) }

func (p *Pages) page(from prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(from, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(p.log.Handler(), slog.LevelWarn),
	})
}
