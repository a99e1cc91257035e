package main

import (
	"net/http"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/metrics"
)

// metricsHandlers serve the kubelet's pages of metrics, by their paths. What a scrape
// asks for costs nothing between two of them.
func (a *agent) metricsHandlers() map[string]http.Handler {
	sources := metrics.Sources{
		Desired:  a.pods.GetPods,
		Mirrors:  func() int { return 0 }, // there is no API server
		Known:    a.workers.KnownPods,
		Observed: a.cache.Statuses,
	}
	if a.stats != nil {
		sources.Summary = a.stats.Summary
	}
	h := a.node.metrics.Handlers(sources)
	pages := map[string]http.Handler{"/metrics": h.Metrics, "/metrics/probes": h.Probes}
	if h.Resource != nil {
		pages["/metrics/resource"] = h.Resource
	}
	return pages
}
