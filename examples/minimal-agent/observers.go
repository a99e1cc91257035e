package main

import "github.com/kubeparts/kubeparts/examples/minimal-agent/metrics"

// metricsPages are the kubelet's pages of metrics. What a scrape asks for costs nothing
// between two of them.
func (a *agent) metricsPages() metrics.Handlers {
	sources := metrics.Sources{
		Desired:  a.pods.GetPods,
		Mirrors:  func() int { return 0 }, // there is no API server
		Known:    a.workers.KnownPods,
		Observed: a.cache.Statuses,
	}
	if a.stats != nil {
		sources.Summary = a.answers.summary.get
	}
	return a.node.metrics.Handlers(sources)
}
