package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeparts/kubeparts/prober"
)

type probeMetrics struct {
	total *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

func newProbes(f *maker) probeMetrics {
	p := probeMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prober_probe_total", Help: beta + "Runs of a container's probe, by result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		took: f.histograms("prober_probe_duration_seconds", "Duration of successful runs of a container's probe.", prometheus.DefBuckets,
			"probe_type", "container", "pod", "namespace"),
	}
	f.add(p.total)
	return p
}

// timing has the labels of a duration series. The probes of pods with the same name share
// a series.
type timing struct{ kind, container, pod, namespace string }

// probeSeries are the series of one probe.
type probeSeries struct {
	timing                      timing
	successful, failed, unknown prometheus.Counter
	took                        prometheus.Observer
}

// Prober returns an observer for a [prober.Manager] that counts events and then calls the
// given observer.
func (m *Metrics) Prober(next prober.Observer) prober.Observer {
	o := next
	o.RunFinished = chain1(m.probed, next.RunFinished)
	o.Removed = chain1(m.unprobed, next.Removed)
	return o
}

func (m *Metrics) probed(r prober.Run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.runs[r.Key]
	if s == nil {
		if r.Pod == nil {
			return
		}
		s = m.newSeries(r)
		m.runs[r.Key] = s
	}
	switch r.Outcome {
	case prober.Succeeded, prober.Warned:
		s.successful.Inc()
		s.took.Observe(r.Duration.Seconds())
	case prober.Failed:
		s.failed.Inc()
	case prober.Errored:
		s.unknown.Inc()
	}
}

// newSeries creates all series of a probe. Callers hold mu.
func (m *Metrics) newSeries(r prober.Run) *probeSeries {
	t := timing{r.Kind.String(), safe(r.Container), safe(r.Pod.Name), safe(r.Pod.Namespace)}
	m.timed[t]++
	of := func(result string) prometheus.Counter {
		return m.probeRuns.total.WithLabelValues(t.kind, result, t.container, t.pod, t.namespace, safe(string(r.PodUID)))
	}
	return &probeSeries{
		timing: t, successful: of("successful"), failed: of("failed"), unknown: of("unknown"),
		took: m.probeRuns.took.WithLabelValues(t.kind, t.container, t.pod, t.namespace),
	}
}

// unprobed deletes the series of a removed probe.
func (m *Metrics) unprobed(k prober.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropSeries(k)
}

// dropSeries deletes the series of a probe. Callers hold mu.
func (m *Metrics) dropSeries(k prober.Key) {
	s := m.runs[k]
	if s == nil {
		return
	}
	delete(m.runs, k)
	t := s.timing
	for _, result := range []string{"successful", "failed", "unknown"} {
		m.probeRuns.total.DeleteLabelValues(t.kind, result, t.container, t.pod, t.namespace, safe(string(k.PodUID)))
	}
	if m.timed[t]--; m.timed[t] == 0 {
		delete(m.timed, t)
		m.probeRuns.took.DeleteLabelValues(t.kind, t.container, t.pod, t.namespace)
	}
}
