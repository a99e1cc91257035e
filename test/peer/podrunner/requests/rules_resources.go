package requests

import (
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"k8s.io/kubernetes/pkg/kubelet/qos"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// resourceRules are about limits.
func resourceRules() []rule {
	return []rule{
	}
}

// score is the OOM score of a container of a Burstable pod of which each container
// has a share of memory more than it asks for.
func score(s scene, c *corev1.Container, share int64) string {
	capacity := s.World.Node.Memory
	of := func(c *corev1.Container) int64 {
		asked := min(min(c.Resources.Requests.Memory().Value(), capacity)+share, capacity)
		return 1000 - int64(1000*float64(asked)/float64(capacity))
	}
	v := of(c)
	if i := slices.IndexFunc(pod(s).Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name }); i >= 0 && c.RestartPolicy != nil {
		latest := int64(0)
		for j := range pod(s).Spec.Containers {
			latest = max(latest, of(&pod(s).Spec.Containers[j]))
		}
		v = min(v, latest)
	}
	return strconv.FormatInt(min(max(v, 3), 999), 10)
}

func period(s scene) string {
	return strconv.FormatInt(s.World.Node.CFSPeriod.Microseconds(), 10)
}

// nodeCritical reports whether the pod is critical, and to its node.
func nodeCritical(p *corev1.Pod) bool {
	source, ok := p.Annotations["kubernetes.io/config.source"]
	_, mirror := p.Annotations["kubernetes.io/config.mirror"]
	critical := ok && source != "api" || mirror || p.Spec.Priority != nil && *p.Spec.Priority >= 2_000_000_000
	return critical && p.Spec.PriorityClassName == "system-node-critical"
}

// high is where a container of the world is slowed down.
func high(s scene, request, limit int64) string {
	const page = 4096
	if limit == 0 {
		limit = s.World.Node.Allocatable.Memory().Value()
	}
	v := int64(math.Floor(float64(request)+(float64(limit)-float64(request))*s.World.Node.ThrottlingFactor)/page) * page
	if v <= request || v == 0 {
		return ""
	}
	return strconv.FormatInt(v, 10)
}

// podLevelLimit explains what a container takes over from its pod.
func podLevelLimit(s scene) bool {
	r, c := pod(s).Spec.Resources, container(s)
	if r == nil || c == nil {
		return false
	}
	_, _, field := about(s)
	field = strings.TrimPrefix(field[strings.LastIndex(field, "/resources/")+1:], "resources/")
	cpu, memory := int64(0), int64(0)
	if c.Resources.Limits.Cpu().IsZero() {
		cpu = r.Limits.Cpu().MilliValue()
	}
	if c.Resources.Limits.Memory().IsZero() {
		memory = r.Limits.Memory().Value()
	}
	_, asked := c.Resources.Requests[corev1.ResourceCPU]
	switch field {
	case "memory_limit_in_bytes":
		return memory > 0 && s.Ours == "" && s.Kubelet == strconv.FormatInt(memory, 10)
	case "memory_swap_limit_in_bytes":
		return memory > 0 && s.Ours == "" && s.Kubelet == strconv.FormatInt(memory, 10) && !s.World.Node.CgroupV2
	case "cpu_quota":
		quota := max(1000, cpu*s.World.Node.CFSPeriod.Microseconds()/1000)
		return cpu > 0 && s.World.Node.CFSQuota && s.Ours == "" && s.Kubelet == strconv.FormatInt(quota, 10)
	case "cpu_period":
		return cpu > 0 && s.World.Node.CFSQuota && s.Ours == "" && s.Kubelet == period(s)
	case "cpu_shares":
		return cpu > 0 && !asked && s.Ours == "2" && s.Kubelet == strconv.FormatInt(min(max(2, cpu*1024/1000), 262144), 10)
	case "hugepage_limits":
		return s.Kubelet == pageLimits(s, r.Limits, c.Resources.Limits) && s.Ours == pageLimits(s, c.Resources.Limits)
	}
	return false
}

// pageLimits are the limits of huge pages of the node's sizes as a fact has them;
// later lists win.
func pageLimits(s scene, lists ...corev1.ResourceList) string {
	if len(s.World.Node.HugePages) == 0 {
		return ""
	}
	var all []map[string]any
	for _, size := range s.World.Node.HugePages {
		m := map[string]any{"page_size": size}
		for _, limits := range lists {
			name := corev1.ResourceName("hugepages-" + map[string]string{"2MB": "2Mi", "1GB": "1Gi", "64KB": "64Ki"}[size])
			if q, ok := limits[name]; ok && !q.IsZero() {
				m["limit"] = q.Value()
			}
		}
		all = append(all, m)
	}
	return text(generic(all))
}
