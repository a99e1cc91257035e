package main

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"github.com/kubeparts/kubeparts/agent/metrics"
)

// exporter has the metrics of the agent and its process. registry contains the metrics of the page
// /metrics, and probes the metrics of the page /metrics/probes.
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

// page returns a handler that serves the metrics of a registry. Metrics that can't be gathered are
// left out and logged.
func (e *exporter) page(from prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(from, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(e.log.Handler(), slog.LevelWarn),
	})
}

// dialOptions returns options for the runtime's connection that count its calls.
func (e *exporter) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithUnaryInterceptor(e.CallObserver())}
}
