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
		{
			Name: "limits of the pod as a whole", Class: judge.DefectOfOurs, Item: "17",
			Sentence: "The kubelet gives a container without a limit of its own that of the pod as a whole; ours gives it none.",
			Explains: podLevelLimit,
		},
		{
			Name: "period without a quota", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "The kubelet sends the period of the CPU quota with every container and sandbox; ours only where there is a quota.",
			Explains: func(s scene) bool {
				if strings.HasSuffix(s.Fact, "/sandbox/linux/resources/cpu_period") { // a limit came by a resize
					return s.Kubelet == "" && (s.Ours == period(s) || s.Ours == "(not set)") && s.World.Node.CFSQuota && ourFact(s, beside(s, "cpu_quota")) != ""
				}
				return strings.HasSuffix(s.Fact, "/cpu_period") && s.Ours == "" && s.World.Node.CFSQuota && kubeletFact(s, beside(s, "cpu_quota")) == "" &&
					s.Kubelet == period(s)
			},
		},
		{
			Name: "critical by the name of the class", Class: judge.DefectOfOurs, Item: "21a",
			Sentence: "The kubelet protects a critical pod of the class system-node-critical from OOM kills, whatever its priority; ours goes by the priority alone.",
			Explains: func(s scene) bool {
				if !strings.HasSuffix(s.Fact, "/resources/oom_score_adj") {
					return false
				}
				byName, byNumber := nodeCritical(pod(s)), pod(s).Spec.Priority != nil && *pod(s).Spec.Priority >= 2_000_001_000
				return byName != byNumber && (s.Kubelet == "-997") == byName && (s.Ours == "-997") == byNumber
			},
		},
		{
			Name: "share of the pod's memory", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "The kubelet spreads what a pod requests of memory beyond its containers over all of them for the OOM score, init containers included; ours over those that go on.",
			Explains: func(s scene) bool {
				c := container(s)
				if c == nil || !strings.HasSuffix(s.Fact, "/resources/oom_score_adj") || pod(s).Spec.Resources == nil || len(pod(s).Spec.InitContainers) == 0 {
					return false
				}
				rest, n := pod(s).Spec.Resources.Requests.Memory().Value(), int64(len(pod(s).Spec.Containers))
				for i := range pod(s).Spec.Containers {
					rest -= pod(s).Spec.Containers[i].Resources.Requests.Memory().Value()
				}
				for i := range pod(s).Spec.InitContainers {
					if pod(s).Spec.InitContainers[i].RestartPolicy != nil {
						rest, n = rest-pod(s).Spec.InitContainers[i].Resources.Requests.Memory().Value(), n+1
					}
				}
				return s.Kubelet == strconv.Itoa(qos.GetContainerOOMScoreAdjust(pod(s), c, s.World.Node.Memory)) && s.Ours == score(s, c, max(0, rest)/n)
			},
		},
		{
			Name: "memory that is kept for a container", Class: judge.DefectOfOurs, Item: "21b",
			Sentence: "With memory QoS the kubelet sets memory.min for Guaranteed and memory.low for Burstable pods if its reservation policy says so, else both to 0; ours sets memory.min for each container with a request.",
			Explains: func(s scene) bool {
				i := strings.LastIndex(s.Fact, "/")
				if container(s) == nil || !s.World.Node.MemoryQoS || !s.World.Node.CgroupV2 || !strings.HasSuffix(s.Fact[:i], "/unified") {
					return false
				}
				request, file := container(s).Resources.Requests.Memory().Value(), s.Fact[i+1:]
				ours, theirs := "", ""
				guaranteed := v1qos.GetPodQOS(pod(s)) == corev1.PodQOSGuaranteed
				switch {
				case file != "memory.min" && file != "memory.low":
					return false
				case request == 0 || !s.World.Node.TieredReservation:
					theirs = "0"
				case guaranteed == (file == "memory.min"):
					theirs = strconv.FormatInt(request, 10)
				}
				if file == "memory.min" && request > 0 {
					ours = strconv.FormatInt(request, 10)
				}
				return s.Kubelet == theirs && s.Ours == ours
			},
		},
		{
			Name: "throttling without a request", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "With memory QoS the kubelet sets memory.high for a container whose memory request differs from its limit, none and none being the same; ours for every container of a pod that is not Guaranteed.",
			Explains: func(s scene) bool {
				if container(s) == nil || !s.World.Node.MemoryQoS || !s.World.Node.CgroupV2 || !strings.HasSuffix(s.Fact, "/unified/memory.high") {
					return false
				}
				r := container(s).Resources
				request, limit := r.Requests.Memory().Value(), r.Limits.Memory().Value()
				theirs, ours := "", ""
				if request != limit {
					theirs = high(s, request, limit)
				}
				if v1qos.GetPodQOS(pod(s)) != corev1.PodQOSGuaranteed && (limit == 0 || limit > request) {
					ours = high(s, request, limit)
				}
				return s.Kubelet == theirs && s.Ours == ours
			},
		},
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
