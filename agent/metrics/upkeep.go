package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
)

type evictionMetrics struct {
	evicted, killErrors *prometheus.CounterVec
	statsAge            *prometheus.HistogramVec
	statsErrors         prometheus.Counter
}

func newEviction(f *maker) evictionMetrics {
	own := f.own()
	e := evictionMetrics{
		evicted:     f.counters("evictions", "Pods that were evicted, by what the node was short of.", "eviction_signal"),
		statsAge:    f.histograms("eviction_stats_age_seconds", "Age of the figures that pods were evicted by.", prometheus.DefBuckets, "eviction_signal"),
		killErrors:  own.counters("eviction_kill_errors_total", "Pods that were to be evicted and could not be ended.", "eviction_signal"),
		statsErrors: own.counter("eviction_stats_errors_total", "Looks at the node by which something could not be measured."),
	}
	f.also(own)
	for _, s := range []eviction.Signal{ // from the start, so that a rate sees the first
		eviction.MemoryAvailable, eviction.AllocatableMemoryAvailable, eviction.PIDAvailable,
		eviction.NodeFSAvailable, eviction.NodeFSInodesFree, eviction.ImageFSAvailable, eviction.ImageFSInodesFree,
		eviction.ContainerFSAvailable, eviction.ContainerFSInodesFree,
		eviction.EmptyDirFSLimit, eviction.EphemeralPodFSLimit, eviction.EphemeralContainerFSLimit,
	} {
		e.evicted.WithLabelValues(string(s))
		e.killErrors.WithLabelValues(string(s))
	}
	return e
}

// Eviction returns an observer for an [eviction.Manager] that goes on to call next.
func (m *Metrics) Eviction(next eviction.Observer) eviction.Observer {
	c, o := &m.eviction, next
	o.Evaluated = then2(func(d eviction.Decision, err error) {
		if err != nil {
			c.statsErrors.Inc()
		}
		if len(d.Victims) > 0 && d.Threshold != nil {
			c.statsAge.WithLabelValues(safe(string(d.Signal))).Observe(age(d).Seconds())
		}
	}, next.Evaluated)
	o.Evicted = then4(func(_ *corev1.Pod, e eviction.Eviction, _ time.Duration, err error) {
		if err != nil {
			c.killErrors.WithLabelValues(safe(string(e.Signal))).Inc()
			return
		}
		c.evicted.WithLabelValues(safe(string(e.Signal))).Inc()
	}, next.Evicted)
	return o
}

// age is how old the figures were that a decision goes by; no time counts as now.
func age(d eviction.Decision) time.Duration {
	if at := d.Threshold.Observation.Time; !at.IsZero() {
		return max(0, d.At.Sub(at))
	}
	return 0
}

type upkeepMetrics struct {
	images, imageRuns, containers, logs *prometheus.CounterVec
	lostRecords                         prometheus.Counter
}

func newUpkeep(f *maker) upkeepMetrics {
	own := f.own()
	u := upkeepMetrics{
		images:      f.counters("image_garbage_collected_total", "Images that were removed, by why: for space or for their age.", "reason"),
		imageRuns:   own.counters("image_gc_runs_total", "Passes of the image garbage collection, by how they ended: ok or failed.", "result"),
		containers:  own.counters("container_gc_removals_total", "Containers, sandboxes and logs that were to be removed, by how that ended: ok or failed.", "kind", "result"),
		logs:        own.counters("log_rotations_total", "Logs of running containers that were to be rotated, by how that ended: ok or failed.", "result"),
		lostRecords: own.counter("oom_lost_records_total", "Records of the kernel's log that were overwritten before they were read."),
	}
	f.also(own)
	for _, why := range []imagegc.Reason{imagegc.ReasonAge, imagegc.ReasonSpace} { // as above
		u.images.WithLabelValues(string(why))
	}
	for _, result := range []string{succeeded, failed} {
		u.imageRuns.WithLabelValues(result)
		u.logs.WithLabelValues(result)
	}
	return u
}

// Values of the label result.
const (
	succeeded = "ok"
	failed    = "failed"
)

func result(err error) string {
	if err != nil {
		return failed
	}
	return succeeded
}

// ImageGC returns an observer for an [imagegc.Manager] that goes on to call next.
func (m *Metrics) ImageGC(next imagegc.Observer) imagegc.Observer {
	o := next
	o.Removed = then4(func(_ imagegc.Image, why imagegc.Reason, _ time.Duration, err error) {
		if err == nil {
			m.upkeep.images.WithLabelValues(string(why)).Inc()
		}
	}, next.Removed)
	o.Collected = then2(func(_ imagegc.Result, err error) { m.upkeep.imageRuns.WithLabelValues(result(err)).Inc() }, next.Collected)
	return o
}

// ContainerGC returns an observer for a [containergc.Manager] that goes on to call
// next.
func (m *Metrics) ContainerGC(next containergc.Observer) containergc.Observer {
	o := next
	o.Removed = then3(func(object containergc.Object, _ time.Duration, err error) {
		m.upkeep.containers.WithLabelValues(string(object.Kind), result(err)).Inc()
	}, next.Removed)
	return o
}

// Logs returns an observer for a [logrotate.Rotator] that goes on to call next.
func (m *Metrics) Logs(next logrotate.Observer) logrotate.Observer {
	o := next
	o.Rotated = then1(func(r logrotate.Rotation) { m.upkeep.logs.WithLabelValues(result(r.Err)).Inc() }, next.Rotated)
	return o
}
