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

// dialOptions count the calls of the runtime.
func (e *exporter) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithUnaryInterceptor(e.CallObserver())}
}
