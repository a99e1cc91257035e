package requests

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"

	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const theSandbox = "update the sandbox"

// podResizeRules are about changes of pod-level resources.
func podResizeRules() []rule {
	return []rule{
		{
			Name: "cgroup of a pod without running containers", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "The kubelet resizes a pod's cgroup only together with a running container. If the limits of a pod are raised while no container runs, the pod keeps the old limits. This package resizes the cgroup whenever its limits differ from the spec.",
			Explains: func(s scene) bool {
				if s.Step == 0 || strings.Contains(kubeletFact(s, "calls"), "update ") {
					return false
				}
				field, about := strings.CutPrefix(s.Fact, theSandbox+"/")
				return about && s.Kubelet == "" && s.Ours == sandboxUpdate(s)[field] || s.Fact == "calls" && s.Ours == ourCalls(s)
			},
		},
		{
			Name: "resize order of an unlimited pod", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "The kubelet treats a missing limit of a pod as the lowest limit. If the pod gets a limit, the kubelet therefore limits the pod before its containers shrink. This package treats a missing limit as the highest limit.",
			Explains: func(s scene) bool {
				if s.Fact != "calls" || s.Ours != ourCalls(s) {
					return false
				}
				before, after := podLimits(s, s.World.pods[s.Step-1]), podLimits(s, pod(s))
				return before.MemoryBytes == 0 && after.MemoryBytes != 0 || before.CPUQuotaMicros == 0 && after.CPUQuotaMicros != 0
			},
		},
		{
			Name: "removed pod-level limits", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "If a limit of a pod is removed, the kubelet leaves the old limit in the pod's cgroup. This package removes the limit from the cgroup too.",
			Explains: func(s scene) bool {
				if s.Step == 0 || !slices.ContainsFunc(s.World.pods[:s.Step], func(before *corev1.Pod) bool { return limitTaken(s, before) }) {
					return false
				}
				field, about := strings.CutPrefix(s.Fact, theSandbox+"/")
				return about && s.Ours == sandboxUpdate(s)[field] || s.Fact == "calls" && s.Ours == ourCalls(s)
			},
		},
		{
			Name: "unlimited init container after a sidecar", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "If an init container without a limit comes after a sidecar with a limit, the kubelet assumes the sidecar's limit for the init container, and therefore limits the pod as a whole. This package does not limit a pod in which a container has no limit.",
			Explains: func(s scene) bool {
				if !limitTaken(s, pod(s)) {
					return false
				}
				field, about := strings.CutPrefix(s.Fact, theSandbox+"/")
				return about && s.Ours == sandboxUpdate(s)[field] || s.Fact == "calls" && s.Ours == ourCalls(s)
			},
		},
		{
			Name: "unlimited pod in UpdatePodSandboxResources", Class: judge.KubeletDefect, Doc: ourDoc,
			Sentence: "If a pod has no limit of memory or CPU, the kubelet subtracts the pod's overhead from the number that means \"no limit\" when it reports the pod to the runtime; this package reports no limit.",
			Explains: func(s scene) bool {
				overhead := pod(s).Spec.Overhead
				switch s.Fact {
				case theSandbox + "/resources/memory_limit_in_bytes":
					return s.Ours == "" && s.Kubelet == strconv.FormatInt(math.MaxInt64-overhead.Memory().Value(), 10)
				case theSandbox + "/resources/cpu_quota":
					period, err := strconv.ParseInt(kubeletFact(s, theSandbox+"/resources/cpu_period"), 10, 64)
					return err == nil && s.Ours == "-1" && s.Kubelet == strconv.FormatInt(-1-overhead.Cpu().MilliValue()*period/1000, 10)
				}
				return false
			},
		},
		{
			Name: "CPU quota and shares together", Class: judge.Deliberate, Doc: ourDoc,
			Sentence: "The kubelet reports the CPU limit and the CPU shares of a resized pod to the runtime in two calls; this package uses one call.",
			Explains: func(s scene) bool {
				if s.Fact != "calls" || s.Ours != ourCalls(s) {
					return false
				}
				before, after := podLimits(s, s.World.pods[s.Step-1]), podLimits(s, pod(s))
				return cmp.Compare(after.CPUQuotaMicros, before.CPUQuotaMicros)*cmp.Compare(after.CPUShares, before.CPUShares) < 0
			},
		},
		{
			Name: "CPU period with CPU quotas disabled", Class: judge.Deliberate, Doc: ourDoc,
			Sentence: "If CPU quotas are disabled, the kubelet sets and reports the configured quota period for a pod with a CPU limit; this package leaves the kernel's default.",
			Explains: func(s scene) bool {
				return s.Fact == theSandbox+"/resources/cpu_period" && !s.World.Node.CFSQuota && s.Ours == "100000" &&
					s.Kubelet == strconv.FormatInt(s.World.Node.CFSPeriod.Microseconds(), 10)
			},
		},
	}
}

// limitTaken reports whether the kubelet had set a limit for the previous pod that it does
// not set now.
func limitTaken(s scene, before *corev1.Pod) bool {
	memory, quota := limitedByKubelet(s, before)
	is := podLimits(s, pod(s))
	return memory && is.MemoryBytes == 0 || quota && is.CPUQuotaMicros == 0
}

// limitedByKubelet reports whether the kubelet limits the memory and the CPU of a pod.
func limitedByKubelet(s scene, of *corev1.Pod) (memory, quota bool) {
	n := s.World.Node
	c := cm.ResourceConfigForPod(of, n.CFSQuota, uint64(n.CFSPeriod.Microseconds()), false, kubeletconfig.NoneMemoryReservationPolicy)
	return c.Memory != nil, c.CPUQuota != nil && *c.CPUQuota > 0
}

// podLimits returns the desired limits of a pod's cgroup.
func podLimits(s scene, of *corev1.Pod) cgroups.Limits {
	period := s.World.Node.CFSPeriod
	if !s.World.Node.CFSQuota {
		period = 0
	}
	return cgroups.PodLimits(of, period)
}

// sandboxUpdate returns the UpdatePodSandboxResources request of our side. It is empty if the
// pod-level resources do not change.
func sandboxUpdate(s scene) map[string]string {
	if !strings.Contains(ourCalls(s), theSandbox) {
		return nil
	}
	l, before := podLimits(s, pod(s)), podLimits(s, s.World.pods[s.Step-1])
	facts := map[string]string{"pod_sandbox_id": ourFact(s, theSandbox+"/pod_sandbox_id")}
	for fact, value := range s.KubeletFacts[0] { // the overhead is that at the sandbox's creation
		if field, ok := strings.CutPrefix(fact, "sandbox/linux/overhead"); ok {
			facts["overhead"+field] = value
		}
	}
	put := func(field string, value int64) {
		if value != 0 {
			facts["resources/"+field] = strconv.FormatInt(value, 10)
		}
	}
	cpu := pod(s).Spec.Overhead.Cpu().MilliValue()
	put("cpu_shares", max(2, l.CPUShares-cpu*1024/1000))
	switch {
	case l.MemoryBytes > 0:
		put("memory_limit_in_bytes", l.MemoryBytes-pod(s).Spec.Overhead.Memory().Value())
	case before.MemoryBytes > 0:
		put("memory_limit_in_bytes", -1)
	}
	if l.CPUQuotaMicros > 0 {
		put("cpu_quota", l.CPUQuotaMicros-cpu*l.CPUPeriodMicros/1000)
		put("cpu_period", l.CPUPeriodMicros)
	} else {
		put("cpu_quota", -1)
		put("cpu_period", 100_000)
	}
	return facts
}

// ourCalls returns our calls: those of the kubelet plus our resizes. For each resource, the
// pod comes first if it increases and last if it decreases.
func ourCalls(s scene) string {
	calls := slices.DeleteFunc(strings.Split(kubeletFact(s, "calls"), ", "), func(call string) bool { return call == "" })
	at := max(0, slices.IndexFunc(calls, func(call string) bool { return strings.HasPrefix(call, "update ") }))
	container := ""
	for _, call := range calls {
		if strings.HasPrefix(call, "update ") && call != theSandbox {
			container = call
		}
	}
	calls = slices.DeleteFunc(calls, func(call string) bool { return strings.HasPrefix(call, "update ") })
	before, after := s.World.pods[s.Step-1], pod(s)
	var updates []string
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU} {
		grows := podGrows(s, before, after, name)
		if grows > 0 {
			updates = append(updates, theSandbox)
		}
		if c := strings.TrimPrefix(container, "update "); c != "" && differs(named(before, c).Resources, named(after, c).Resources, name) {
			updates = append(updates, container)
		}
		if grows < 0 {
			updates = append(updates, theSandbox)
		}
	}
	return strings.Join(slices.Insert(calls, at, slices.Compact(updates)...), ", ")
}

// podGrows compares a pod-level resource. No limit is the highest value.
func podGrows(s scene, before, after *corev1.Pod, name corev1.ResourceName) int {
	a, b := podLimits(s, before), podLimits(s, after)
	most := func(limit int64) uint64 { return uint64(limit) - 1 }
	if name == corev1.ResourceMemory {
		return cmp.Compare(most(b.MemoryBytes), most(a.MemoryBytes))
	}
	return cmp.Or(cmp.Compare(most(b.CPUQuotaMicros), most(a.CPUQuotaMicros)), cmp.Compare(b.CPUShares, a.CPUShares))
}

func differs(a, b corev1.ResourceRequirements, name corev1.ResourceName) bool {
	other := func(a, b corev1.ResourceList) bool { return a.Name(name, "").Cmp(*b.Name(name, "")) != 0 }
	return other(a.Requests, b.Requests) || other(a.Limits, b.Limits)
}
