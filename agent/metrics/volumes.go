package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

type volumeMetrics struct {
	operations, total *prometheus.HistogramVec
	volumes           *prometheus.GaugeVec
	orphans, remain   prometheus.Gauge
}

func newVolumes(f *maker) volumeMetrics {
	bare := &maker{registry: f.registry} // names without the prefix
	defer f.also(bare)
	buckets := []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
	return volumeMetrics{
		operations: bare.histograms("storage_operation_duration_seconds", "Duration of operations on volumes.", buckets,
			"volume_plugin", "operation_name", "status", "migrated"),
		total: bare.histograms("volume_operation_total_seconds", "Time from the request of a pod's volumes until a volume was mounted.", buckets,
			"plugin_name", "operation_name"),
		volumes: bare.gauges("volume_manager_total_volumes",
			"Volumes of pods, by state: desired_state_of_world (a pod needs the volume) or actual_state_of_world (the volume is mounted).", "plugin_name", "state"),
		orphans: f.gauge("orphan_pod_cleaned_volumes", "Pods without a definition whose files the last search of the disk has found. The agent removes these files."),
		remain:  f.gauge("orphan_pod_cleaned_volumes_errors", "Pods without a definition whose files an earlier search has found and the agent could not remove."),
	}
}

// volume identifies a volume of a pod.
type volume struct{ plugin, name string }

// Volumes returns an observer for a [volumes.Manager] that counts events and then calls the given
// observer.
func (m *Metrics) Volumes(next volumes.Observer) volumes.Observer {
	o := next
	o.Mounted = chain1(func(op volumes.Operation) {
		m.volumes.observe("volume_mount", op)
		if op.Total > 0 && op.Err == nil {
			m.volumes.total.WithLabelValues(safe(op.Plugin), "overall_volume_mount").Observe(op.Total.Seconds())
		}
		m.setVolume(op, op.Err == nil)
	}, next.Mounted)
	o.TornDown = chain1(func(op volumes.Operation) { m.volumes.observe("volume_unmount", op) }, next.TornDown)
	o.Unmounted = chain1(m.unmounted, next.Unmounted)
	return o
}

func (v *volumeMetrics) observe(name string, op volumes.Operation) {
	status := "success"
	if op.Err != nil {
		status = "fail-unknown"
	}
	v.operations.WithLabelValues(safe(op.Plugin), name, status, "false").Observe(op.Took.Seconds())
}

// setVolume records a volume that a pod needs. A volume that was mounted once counts as mounted,
// even if a later mount fails.
func (m *Metrics) setVolume(op volumes.Operation, mounted bool) {
	v := volume{safe(op.Plugin), op.Volume}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.podVolumes[op.PodUID]
	if all == nil {
		all = map[volume]bool{}
		m.podVolumes[op.PodUID] = all
	}
	was, known := all[v]
	if !known {
		m.volumes.volumes.WithLabelValues(v.plugin, "desired_state_of_world").Inc()
	}
	if mounted && !was {
		m.volumes.volumes.WithLabelValues(v.plugin, "actual_state_of_world").Inc()
	}
	all[v] = was || mounted
}

// unmounted records that no volume of a pod is left.
func (m *Metrics) unmounted(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropVolumes(pod)
}

// dropVolumes deletes the records of a pod's volumes. Callers hold mu.
func (m *Metrics) dropVolumes(pod types.UID) {
	for v, mounted := range m.podVolumes[pod] {
		m.volumes.volumes.WithLabelValues(v.plugin, "desired_state_of_world").Dec()
		if mounted {
			m.volumes.volumes.WithLabelValues(v.plugin, "actual_state_of_world").Dec()
		}
	}
	delete(m.podVolumes, pod)
}

// searched records a search for files of pods without a definition.
func (m *Metrics) searched(found, remaining int) {
	m.volumes.orphans.Set(float64(found))
	m.volumes.remain.Set(float64(remaining))
}

// cgroup records an operation on the cgroups of pods.
func (m *Metrics) cgroup(operation string, took time.Duration) {
	m.managers.cgroups.WithLabelValues(operation).Observe(took.Seconds())
}
