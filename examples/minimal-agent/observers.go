package main

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubeparts/kubeparts/agent/metrics"
)

// exporter is the metrics of the agent and of its process, and the registries of the
// kubelet's pages /metrics and /metrics/probes.
type exporter struct {
	*metrics.Metrics
	registry, probes *prometheus.Registry
	log              *slog.Logger
}

func newExporter(log *slog.Logger) (*exporter, error) {
	e := &exporter{registry: prometheus.NewRegistry(), probes: prometheus.NewRegistry(), log: log}
	m, err := metrics.New(metrics.Config{Registerer: e.registry, ProbeRegisterer: e.probes, Logger: log})
	e.Metrics = m
	return e, errors.Join(err,
		e.registry.Register(collectors.NewGoCollector()),
		e.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
}

// page serves what a registry can gather, and logs what it cannot.
func (e *exporter) page(from prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(from, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(e.log.Handler(), slog.LevelWarn),
	})
}

// addMetrics includes the agent in the pages of metrics. What a scrape asks for costs
// nothing between two of them.
func (a *agent) addMetrics() {
	a.node.metrics.Add(metrics.Source{
		NodeName:   a.opts.nodeName,
		Desired:    a.pods.GetPods,
		Mirrors:    func() int { return 0 }, // there is no API server
		Known:      a.workers.KnownPods,
		Observed:   a.cache.Statuses,
		RelistedAt: func() time.Time { return a.pleg.Stats().RelistedAt },
	})
}

// resourceMetrics is the page /metrics/resource, nil where nothing real runs.
func (a *agent) resourceMetrics() http.Handler {
	if a.stats == nil {
		return nil
	}
	return a.node.metrics.Resource(a.answers.summary.get)
}
