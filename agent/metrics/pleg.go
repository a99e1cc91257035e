package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/pleg"
)

type plegMetrics struct {
	relist, interval, podRelist prometheus.Histogram
	streamErrors, streamOpened  prometheus.Counter
	eventAge                    prometheus.Histogram
}

func newPLEG(f *maker) plegMetrics {
	f.counter("pleg_discard_events", "Events that were dropped. Always 0: none is.")
	return plegMetrics{
		relist:       f.histogram("pleg_relist_duration_seconds", "How long a look at all pods in the runtime took, successful or not.", prometheus.DefBuckets),
		interval:     f.histogram("pleg_relist_interval_seconds", "Time from the beginning of one look at all pods in the runtime to that of the next.", prometheus.DefBuckets),
		podRelist:    f.histogram("pleg_pod_relist_duration_seconds", "How long the inspection of one pod took, the wait for its turn included.", prometheus.DefBuckets),
		streamErrors: f.counter("evented_pleg_connection_error_count", "How often the runtime's stream of events broke or could not be opened."),
		streamOpened: f.counter("evented_pleg_connection_success_count", "How often the runtime's stream of events was opened."),
		eventAge:     f.histogram("evented_pleg_connection_latency_seconds", "Age of the runtime's events when they came.", prometheus.DefBuckets),
	}
}

// PLEG returns an observer for a [pleg.Generator] that goes on to call next.
func (m *Metrics) PLEG(next pleg.Observer) pleg.Observer {
	c := &m.pleg
	var began time.Time // of the last that succeeded; they are called one at a time
	o := next
	o.RelistEnd = then2(func(r pleg.Result, err error) {
		c.relist.Observe(r.Took.Seconds())
		if err != nil {
			return
		}
		if !began.IsZero() {
			c.interval.Observe(r.At.Sub(began).Seconds())
		}
		began = r.At
	}, next.RelistEnd)
	o.PodInspected = then3(func(_ types.UID, took time.Duration, _ error) { c.podRelist.Observe(took.Seconds()) }, next.PodInspected)
	o.StreamOpened = then0(c.streamOpened.Inc, next.StreamOpened)
	o.StreamEnded = then1(func(error) { c.streamErrors.Inc() }, next.StreamEnded)
	o.Hinted = then1(func(age time.Duration) { c.eventAge.Observe(age.Seconds()) }, next.Hinted)
	return o
}

// unix returns t in seconds.
func unix(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }
