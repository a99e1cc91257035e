package metrics

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Stability levels. Each help text starts with a level, as on the kubelet's
// pages.
const (
	alpha  = "[ALPHA] "
	beta   = "[BETA] "
	stable = "[STABLE] "
)

// ownPrefix is the prefix of metrics that the kubelet does not have.
const ownPrefix = "kubeparts_"

// safe makes text valid as a label value: Prometheus refuses invalid UTF-8.
func safe(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// maker creates and registers metrics.
type maker struct {
	prefix   string
	registry prometheus.Registerer
	made     []prometheus.Collector // registered metrics
	err      error
}

func (m *maker) add(c prometheus.Collector) {
	if err := m.registry.Register(c); err != nil {
		m.err = errors.Join(m.err, err)
		return
	}
	m.made = append(m.made, c)
}

// undo unregisters all metrics of m.
func (m *maker) undo() {
	for _, c := range m.made {
		m.registry.Unregister(c)
	}
}

// own returns a maker of metrics that the kubelet does not have.
func (m *maker) own() *maker { return &maker{prefix: ownPrefix, registry: m.registry} }

// also adds the metrics and the error of another maker to m. Afterwards,
// undo also unregisters the metrics of the other maker.
func (m *maker) also(other *maker) {
	m.made = append(m.made, other.made...)
	m.err = errors.Join(m.err, other.err)
}

func (m *maker) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: m.prefix + name, Help: alpha + help})
	m.add(c)
	return c
}

// betaCounter creates a counter that is BETA in the kubelet.
func (m *maker) betaCounter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: m.prefix + name, Help: beta + help})
	m.add(c)
	return c
}

func (m *maker) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.prefix + name, Help: alpha + help}, labels)
	m.add(c)
	return c
}

func (m *maker) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: m.prefix + name, Help: alpha + help})
	m.add(g)
	return g
}

func (m *maker) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.prefix + name, Help: alpha + help}, labels)
	m.add(g)
	return g
}

func (m *maker) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: m.prefix + name, Help: alpha + help, Buckets: buckets})
	m.add(h)
	return h
}

func (m *maker) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.prefix + name, Help: alpha + help, Buckets: buckets}, labels)
	m.add(h)
	return h
}
