package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

type resizeMetrics struct {
	requested *prometheus.CounterVec
	took      *prometheus.HistogramVec
}

func newResizes(f *maker) resizeMetrics {
	return resizeMetrics{
		requested: f.counters("container_requested_resizes_total",
			"Requested changes of the resources of running pods, by resource, by requirement (requests or limits) and by operation (add, remove, increase or decrease).",
			"resource", "requirement", "operation"),
		took: f.histograms("pod_resize_duration_milliseconds", "Duration of changes of the resources of a running pod in the runtime, in milliseconds.",
			[]float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000}, "success"),
	}
}

// edited counts the changes of resources between two definitions of a pod. It skips containers
// that only one of the definitions has.
func (m *Metrics) edited(before, after *corev1.Pod) {
	for c := range podspec.Containers(&before.Spec) {
		changed := podspec.Container(&after.Spec, c.Name)
		if changed == nil {
			continue
		}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			m.requested(name, "requests", c.Resources.Requests[name], changed.Resources.Requests[name])
			m.requested(name, "limits", c.Resources.Limits[name], changed.Resources.Limits[name])
		}
	}
}

func (m *Metrics) requested(name corev1.ResourceName, requirement string, from, to quantity.Quantity) {
	var operation string
	switch order := to.Cmp(from); {
	case order == 0:
		return
	case from.IsZero():
		operation = "add"
	case to.IsZero():
		operation = "remove"
	case order > 0:
		operation = "increase"
	default:
		operation = "decrease"
	}
	m.resizes.requested.WithLabelValues(string(name), requirement, operation).Inc()
}

func (m *Metrics) resized(took time.Duration, err error) {
	m.resizes.took.WithLabelValues(strconv.FormatBool(err == nil)).Observe(float64(took) / float64(time.Millisecond))
}
