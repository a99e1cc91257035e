package fakecri

import (
	"context"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// metric is one metric of containers, with the name of cAdvisor's metric.
type metric struct {
	name, help string
	kind       runtimeapi.MetricType
	value      func(usage) uint64
}

func metrics() []metric {
	return []metric{
		{
			"container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.",
			runtimeapi.MetricType_COUNTER, func(u usage) uint64 { return u.cpuNanoseconds / 1e9 },
		},
		{
			"container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed.",
			runtimeapi.MetricType_GAUGE, func(u usage) uint64 { return u.memoryBytes },
		},
		{
			"container_memory_working_set_bytes", "Current working set in bytes.",
			runtimeapi.MetricType_GAUGE, func(u usage) uint64 { return u.memoryBytes },
		},
		{
			"container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.",
			runtimeapi.MetricType_GAUGE, func(u usage) uint64 { return u.diskBytes },
		},
		{
			"container_fs_inodes_used", "Number of inodes that are consumed by the container on this filesystem.",
			runtimeapi.MetricType_GAUGE, func(u usage) uint64 { return u.inodes },
		},
	}
}

// metricLabels are the label names of all metrics, in the order of the label values.
func metricLabels() []string { return []string{"id", "name", "image", "namespace", "pod", "container"} }

// ListMetricDescriptors returns the descriptors of the metrics of
// [Node.ListPodSandboxMetrics]: a few metrics of running containers, computed from their
// programs.
func (n *Node) ListMetricDescriptors(ctx context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	if err := n.enter(ctx, "ListMetricDescriptors", "", ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	var out []*runtimeapi.MetricDescriptor
	for _, m := range metrics() {
		out = append(out, &runtimeapi.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: metricLabels()})
	}
	return out, nil
}

// ListPodSandboxMetrics returns the metrics of the sandboxes that are ready.
func (n *Node) ListPodSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return n.listPodSandboxMetrics(ctx, "ListPodSandboxMetrics")
}

func (n *Node) listPodSandboxMetrics(ctx context.Context, method string) ([]*runtimeapi.PodSandboxMetrics, error) {
	if err := n.enter(ctx, method, "", ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	var out []*runtimeapi.PodSandboxMetrics
	for _, s := range n.sandboxes.order {
		if !s.ready {
			continue
		}
		pod := &runtimeapi.PodSandboxMetrics{PodSandboxId: s.id}
		for _, c := range s.containers {
			if c.running() {
				pod.ContainerMetrics = append(pod.ContainerMetrics, n.containerMetrics(c))
			}
		}
		out = append(out, pod)
	}
	return out, nil
}

func (n *Node) containerMetrics(c *container) *runtimeapi.ContainerMetrics {
	u, pod := n.usage(c), c.pod.metadata()
	labels := []string{
		c.id, c.name, c.config.GetImage().GetImage(),
		pod.GetNamespace(), pod.GetName(), c.config.GetMetadata().GetName(),
	}
	out := &runtimeapi.ContainerMetrics{ContainerId: c.id}
	for _, m := range metrics() {
		out.Metrics = append(out.Metrics, &runtimeapi.Metric{
			Name: m.name, Timestamp: n.wall().UnixNano(), MetricType: m.kind,
			LabelValues: slices.Clone(labels), Value: number(m.value(u)),
		})
	}
	return out
}
