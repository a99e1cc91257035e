package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// resource collects the resource usage for one request.
type resource struct {
	ctx     context.Context
	summary func(context.Context) (*statsapi.Summary, error)
	log     *slog.Logger
}

// Describe implements [prometheus.Collector]. It describes no metrics, because the set of
// metrics is only known in Collect.
func (r *resource) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (r *resource) Collect(ch chan<- prometheus.Metric) {
	s, err := r.summary(r.ctx)
	if err != nil {
		r.log.WarnContext(r.ctx, "could not measure some or all resource usage, its metrics are missing", "err", err)
	}
	broken := 0.0
	if s == nil {
		broken = 1
	} else {
		used(ch, s)
	}
	for name, level := range map[string]string{"scrape_error": alpha, "resource_scrape_error": stable} {
		d := prometheus.NewDesc(name, level+"1 if nothing could be measured, otherwise 0.", nil, nil)
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, broken)
	}
}

func used(ch chan<- prometheus.Metric, s *statsapi.Summary) {
	node := scope{ch: ch, prefix: "node_"}
	node.cpu(s.Node.CPU)
	node.memory(s.Node.Memory)
	node.swap(s.Node.Swap)
	for i := range s.Pods {
		p := &s.Pods[i]
		pod := scope{ch: ch, prefix: "pod_", labels: []string{"pod", "namespace"}, values: []string{safe(p.PodRef.Name), safe(p.PodRef.Namespace)}}
		pod.cpu(p.CPU)
		pod.memory(p.Memory)
		pod.swap(p.Swap)
		for j := range p.Containers {
			c := &p.Containers[j]
			container := scope{
				ch: ch, prefix: "container_",
				labels: []string{"container", "pod", "namespace"}, values: []string{safe(c.Name), safe(p.PodRef.Name), safe(p.PodRef.Namespace)},
			}
			container.started(c.StartTime.Time)
			container.cpu(c.CPU)
			container.memory(c.Memory)
			container.swap(c.Swap)
			container.swapLimit(c.Swap)
		}
	}
}

// scope is the object that figures belong to: the node, a pod or a container.
type scope struct {
	ch             chan<- prometheus.Metric
	prefix         string
	labels, values []string
}

// emit sends a figure, with the time of the measurement if the time is known.
func (s scope) emit(kind prometheus.ValueType, at metav1.Time, value float64, name, help string) {
	m := prometheus.MustNewConstMetric(prometheus.NewDesc(s.prefix+name, help, s.labels, nil), kind, value, s.values...)
	if !at.IsZero() {
		m = prometheus.NewMetricWithTimestamp(at.Time, m)
	}
	s.ch <- m
}

func (s scope) cpu(c *statsapi.CPUStats) {
	if c != nil && c.UsageCoreNanoSeconds != nil {
		s.emit(prometheus.CounterValue, c.Time, float64(*c.UsageCoreNanoSeconds)/float64(time.Second),
			"cpu_usage_seconds_total", stable+"CPU time used, in seconds of one core.")
	}
}

func (s scope) memory(m *statsapi.MemoryStats) {
	if m != nil && m.WorkingSetBytes != nil {
		s.emit(prometheus.GaugeValue, m.Time, float64(*m.WorkingSetBytes),
			"memory_working_set_bytes", stable+"Working set: used memory that can't be reclaimed easily.")
	}
}

func (s scope) swap(w *statsapi.SwapStats) {
	if w != nil && w.SwapUsageBytes != nil {
		s.emit(prometheus.GaugeValue, w.Time, float64(*w.SwapUsageBytes), "swap_usage_bytes", alpha+"Swap used.")
	}
}

func (s scope) swapLimit(w *statsapi.SwapStats) {
	if w == nil || w.SwapAvailableBytes == nil {
		return
	}
	limit := float64(*w.SwapAvailableBytes)
	if w.SwapUsageBytes != nil {
		limit += float64(*w.SwapUsageBytes)
	}
	s.emit(prometheus.GaugeValue, w.Time, limit, "swap_limit_bytes", alpha+"Swap limit.")
}

func (s scope) started(at time.Time) {
	if at.Unix() > 0 {
		s.emit(prometheus.GaugeValue, metav1.Time{}, unix(at), "start_time_seconds", stable+"Start time as a Unix time.")
	}
}
