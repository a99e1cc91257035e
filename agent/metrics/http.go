package metrics

import (
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

type httpMetrics struct {
	requests *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
	took     *prometheus.HistogramVec
}

func newHTTP(f *maker) httpMetrics {
	labels := []string{"method", "path", "server_type", "long_running"}
	return httpMetrics{
		requests: f.counters("http_requests_total", "Requests to the HTTP server.", labels...),
		inFlight: f.gauges("http_inflight_requests", "Requests that the HTTP server is processing.", labels...),
		took:     f.histograms("http_requests_duration_seconds", "Duration of requests to the HTTP server.", prometheus.DefBuckets, labels...),
	}
}

// Request counts a request to the HTTP server. The request counts as in flight until the caller
// calls done. Request is the callback Request of kubeletapi.Observer. If another server calls
// Request, the paths must be few, because each path has its own series. A request with an unknown
// method is counted with the method "other".
func (m *Metrics) Request(r *http.Request, path, serverType string) (done func()) {
	method := r.Method
	if !slices.Contains([]string{
		http.MethodOptions, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodTrace, http.MethodConnect,
	}, method) {
		method = "other"
	}
	longRunning := slices.Contains([]string{"exec", "attach", "portForward", "debug"}, path)
	labels := []string{method, path, serverType, strconv.FormatBool(longRunning)}
	began := m.cfg.Clock.Now()
	m.http.requests.WithLabelValues(labels...).Inc()
	inFlight := m.http.inFlight.WithLabelValues(labels...)
	inFlight.Inc()
	return func() {
		inFlight.Dec()
		m.http.took.WithLabelValues(labels...).Observe(m.cfg.Clock.Since(began).Seconds())
	}
}

type healthMetrics struct {
	last    *prometheus.GaugeVec
	results *prometheus.CounterVec
}

// newHealth returns the metrics of component-base's page /metrics/slis.
func newHealth(f *maker) healthMetrics {
	h := healthMetrics{
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: stable + "Last result of a health check: 1 if it has passed, otherwise 0.",
		}, []string{"name", "type"}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: stable + "Results of health checks, by status: success or error.",
		}, []string{"name", "type", "status"}),
	}
	f.add(h.last)
	f.add(h.results)
	return h
}

// Checked counts the result of a health check. It is the callback Checked of kubeletapi.Observer.
func (m *Metrics) Checked(endpoint, check string, err error) {
	check = safe(check)
	if err != nil {
		m.health.last.WithLabelValues(check, endpoint).Set(0)
		m.health.results.WithLabelValues(check, endpoint, "error").Inc()
		return
	}
	m.health.last.WithLabelValues(check, endpoint).Set(1)
	m.health.results.WithLabelValues(check, endpoint, "success").Inc()
}

// SLIs returns the handler of the kubelet's page /metrics/slis. The argument is the handler that
// serves the metrics of [Config].HealthRegisterer. A DELETE request resets these metrics, as in the
// kubelet.
func (m *Metrics) SLIs(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete {
			page.ServeHTTP(w, r)
			return
		}
		m.health.last.Reset()
		m.health.results.Reset()
		_, _ = io.WriteString(w, "metrics reset\n") // an error means that the client has disconnected
	})
}
