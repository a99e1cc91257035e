package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle"
)

type evictionMetrics struct {
	evicted, killErrors *prometheus.CounterVec
	statsAge            *prometheus.HistogramVec
	statsErrors         prometheus.Counter
}

func newEviction(f *maker) evictionMetrics {
	own := f.own()
	e := evictionMetrics{
		evicted:     f.counters("evictions", "Evicted pods, by eviction signal.", "eviction_signal"),
		statsAge:    f.histograms("eviction_stats_age_seconds", "Age of the statistics that led to an eviction.", prometheus.DefBuckets, "eviction_signal"),
		killErrors:  own.counters("eviction_kill_errors_total", "Pods that could not be stopped for an eviction.", "eviction_signal"),
		statsErrors: own.counter("eviction_stats_errors_total", "Eviction evaluations in which something could not be measured."),
	}
	f.also(own)
	for _, s := range []eviction.Signal{ // create all series at the start, so that a rate includes the first event
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

// Eviction returns an observer for an [eviction.Manager] that counts events and then calls
// the given observer.
func (m *Metrics) Eviction(next eviction.Observer) eviction.Observer {
	c, o := &m.eviction, next
	o.Evaluated = chain2(func(d eviction.Decision, err error) {
		if err != nil {
			c.statsErrors.Inc()
		}
		if len(d.Victims) > 0 && d.Threshold != nil {
			c.statsAge.WithLabelValues(safe(string(d.Signal))).Observe(age(d).Seconds())
		}
	}, next.Evaluated)
	o.Evicted = chain4(func(_ *corev1.Pod, e eviction.Eviction, _ time.Duration, err error) {
		if err != nil {
			c.killErrors.WithLabelValues(safe(string(e.Signal))).Inc()
			return
		}
		c.evicted.WithLabelValues(safe(string(e.Signal))).Inc()
	}, next.Evicted)
	return o
}

// age returns the age of the measurement that led to a decision, or 0 if the time
// of the measurement is unknown.
func age(d eviction.Decision) time.Duration {
	if at := d.Threshold.Observation.Time; !at.IsZero() {
		return max(0, d.At.Sub(at))
	}
	return 0
}

type managerMetrics struct {
	images, imageRuns, containers, logs *prometheus.CounterVec
	lostRecords                         prometheus.Counter
	cgroups                             *prometheus.HistogramVec
	preemptions                         *prometheus.CounterVec
}

func newManagers(f *maker) managerMetrics {
	own := f.own()
	u := managerMetrics{
		images:      f.counters("image_garbage_collected_total", "Images removed by garbage collection, by reason: space or age.", "reason"),
		imageRuns:   own.counters("image_gc_runs_total", "Passes of the image garbage collection, by result: ok or failed.", "result"),
		containers:  own.counters("container_gc_removals_total", "Removals of containers, sandboxes and logs, by kind and by result: ok or failed.", "kind", "result"),
		logs:        own.counters("log_rotations_total", "Rotations of logs of running containers, by result: ok or failed.", "result"),
		cgroups:     f.histograms("cgroup_manager_duration_seconds", "Duration of operations on the cgroups of pods, by operation: create, update or destroy.", prometheus.DefBuckets, "operation_type"),
		preemptions: f.counters("preemptions", "Pods that were preempted for a critical pod, by the resource that was missing.", "preemption_signal"),
		lostRecords: own.counter("oom_lost_records_total", "Records of the kernel's log that were overwritten before they were read."),
	}
	f.also(own)
	for _, why := range []imagegc.Reason{imagegc.ReasonAge, imagegc.ReasonSpace} { // create all series at the start
		u.images.WithLabelValues(string(why))
	}
	for _, result := range []string{succeeded, failed} {
		u.imageRuns.WithLabelValues(result)
		u.logs.WithLabelValues(result)
	}
	return u
}

// Values of the label "result".
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

// Preemption returns an observer for a [lifecycle.NodeHandler] that counts events and then
// calls the given observer.
func (m *Metrics) Preemption(next lifecycle.NodeObserver) lifecycle.NodeObserver {
	o := next
	o.Preempted = chain1(func(p lifecycle.Preemption) {
		if p.Err == nil {
			m.managers.preemptions.WithLabelValues(safe(string(p.Resource))).Inc()
		}
	}, next.Preempted)
	return o
}

// ImageGC returns an observer for an [imagegc.Manager] that counts events and then calls
// the given observer.
func (m *Metrics) ImageGC(next imagegc.Observer) imagegc.Observer {
	o := next
	o.Removed = chain4(func(_ imagegc.Image, why imagegc.Reason, _ time.Duration, err error) {
		if err == nil {
			m.managers.images.WithLabelValues(string(why)).Inc()
		}
	}, next.Removed)
	o.Collected = chain2(func(_ imagegc.Result, err error) { m.managers.imageRuns.WithLabelValues(result(err)).Inc() }, next.Collected)
	return o
}

// ContainerGC returns an observer for a [containergc.Manager] that counts events and then
// calls the given observer.
func (m *Metrics) ContainerGC(next containergc.Observer) containergc.Observer {
	o := next
	o.Removed = chain3(func(object containergc.Object, _ time.Duration, err error) {
		m.managers.containers.WithLabelValues(string(object.Kind), result(err)).Inc()
	}, next.Removed)
	return o
}

// Logs returns an observer for a [logrotate.Rotator] that counts events and then calls the
// given observer.
func (m *Metrics) Logs(next logrotate.Observer) logrotate.Observer {
	o := next
	o.Rotated = chain1(func(r logrotate.Rotation) { m.managers.logs.WithLabelValues(result(r.Err)).Inc() }, next.Rotated)
	return o
}
