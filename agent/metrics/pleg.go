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
	f.counter("pleg_discard_events", "Discarded PLEG events. Always 0, because no event is discarded.")
	return plegMetrics{
		relist:       f.histogram("pleg_relist_duration_seconds", "Duration of a relist of the runtime, successful or not.", prometheus.DefBuckets),
		interval:     f.histogram("pleg_relist_interval_seconds", "Time from the start of one successful relist to the start of the next one.", prometheus.DefBuckets),
		podRelist:    f.histogram("pleg_pod_relist_duration_seconds", "Duration of the inspection of one pod, including the wait for its start.", prometheus.DefBuckets),
		streamErrors: f.counter("evented_pleg_connection_error_count", "Number of times that the runtime's event stream broke or could not be opened."),
		streamOpened: f.counter("evented_pleg_connection_success_count", "Number of times that the runtime's event stream was opened."),
		eventAge:     f.histogram("evented_pleg_connection_latency_seconds", "Age of the runtime's events when they were received.", prometheus.DefBuckets),
	}
}

// PLEG returns an observer for a [pleg.Generator] that counts events and then
// calls the given observer.
func (m *Metrics) PLEG(next pleg.Observer) pleg.Observer {
	c := &m.pleg
	var began time.Time // start of the last successful relist; a Generator never calls RelistEnd concurrently
	o := next
	o.RelistEnd = chain2(func(r pleg.Result, err error) {
		c.relist.Observe(r.Took.Seconds())
		if err != nil {
			return
		}
		if !began.IsZero() {
			c.interval.Observe(r.At.Sub(began).Seconds())
		}
		began = r.At
	}, next.RelistEnd)
	o.PodInspected = chain3(func(_ types.UID, took time.Duration, _ error) { c.podRelist.Observe(took.Seconds()) }, next.PodInspected)
	o.StreamOpened = chain0(c.streamOpened.Inc, next.StreamOpened)
	o.StreamEnded = chain1(func(error) { c.streamErrors.Inc() }, next.StreamEnded)
	o.HintReceived = chain1(func(age time.Duration) { c.eventAge.Observe(age.Seconds()) }, next.HintReceived)
	return o
}

// unix returns t in seconds since the Unix epoch.
func unix(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }
