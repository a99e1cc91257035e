package plan

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// sidecarResize takes what the kubelet would do if the sidecars had started.
// withoutBackoff returns a copy of s in which no container backs off.
func (s *State) withoutBackoff() *State {
	c := s.clone()
	c.Starts = nil
	return c
}

func heldResize() deviation {
	return deviation{
		Rule: rule("resize while an init container backs off", judge.KubeletDefect, "The kubelet resizes no container while an init container of the pod backs off; ours does, because one that can't be started holds up no other."),
		facts: func(s *State, f judge.Facts) {
			if !goesOn(s, f) || !slices.ContainsFunc(s.Pod.Spec.InitContainers, func(c corev1.Container) bool { return s.current["wait "+c.Name] != "" }) {
				return
			}
			for name, value := range s.plan(s.withoutBackoff()) {
				if strings.HasPrefix(name, "resize") {
					f[name] = value
				}
			}
		},
	}
}

func limitsRemoved() deviation {
	return deviation{
		Rule: rule("limits that are taken away", judge.KubeletDefect, "The kubelet sends zero for a limit that is taken away, so that the runtime leaves the old limit in force and the status goes on to show it; ours sends -1, which takes the limit away."),
		facts: func(s *State, f judge.Facts) {
			if !s.sameClass() {
				return
			}
			for _, c := range s.resizable() {
				spec, _ := s.spec(c.Name)
				is := linuxOf(s.Pod, spec)
				if !goesOn(s, f) || s.isKind(c.Name, podrunner.Init) || f["kill "+c.ID] != "" || c.Shown == nil {
					continue
				}
				s.withoutLimit(f, c, is)
				delete(f, "resize nothing "+c.ID)
				if c.late && s.calledForNothing(c, is) {
					f["resize nothing "+c.ID] = "yes"
				}
			}
			s.renewResizeOrder(f)
		},
	}
}

// calledForNothing reports whether ours resizes a container that has what it is to
// have, because the status does not show it.
func (s *State) calledForNothing(c *Container, is *runtimeapi.LinuxContainerResources) bool {
	shown := shownAs(c.Shown, is)
	return memoryGrows(shown, is) != "" && memoryGrows(c.Linux, is) == "" || cpuGrows(shown, is) != "" && cpuGrows(c.Linux, is) == ""
}

// withoutLimit sets what ours does about a container whose spec has no limit: the
// kubelet's calls would leave the one that there is, or set that of the pod.
func (s *State) withoutLimit(f judge.Facts, c *Container, is *runtimeapi.LinuxContainerResources) {
	set := func(name, direction, text string) {
		delete(f, name)
		if direction != "" {
			f[name] = text
		}
	}
	shown := shownAs(c.Shown, is)
	if is.GetMemoryLimitInBytes() == 0 {
		set("resize memory "+c.ID, effect(memoryGrows, shown, c.Linux, is), memoryText(is))
	}
	if is.GetCpuQuota() == 0 {
		set("resize cpu "+c.ID, effect(cpuGrows, shown, c.Linux, is), cpuText(is))
	}
}

// effect returns the direction of a change that ours makes if what is shown differs
// from what is wanted, empty if it has no effect.
func effect(grows func(before, after *runtimeapi.LinuxContainerResources) string, shown, has, wanted *runtimeapi.LinuxContainerResources) string {
	if grows(shown, wanted) == "" {
		return ""
	}
	return grows(has, wanted)
}

// renewResizeOrder renews the order of resizes after some were added: what shrinks
// comes before what grows.
func (s *State) renewResizeOrder(f judge.Facts) {
	forget(f, "resize order of memory", "resize order of cpu")
	for _, c := range s.resizable() {
		spec, _ := s.spec(c.Name)
		is := linuxOf(s.Pod, spec)
		if f["resize memory "+c.ID] != "" {
			f["resize order of memory"] = sorted(f["resize order of memory"] + memoryGrows(c.Linux, is))
		}
		if f["resize cpu "+c.ID] != "" {
			f["resize order of cpu"] = sorted(f["resize order of cpu"] + cpuGrows(c.Linux, is))
		}
	}
}

func sorted(directions string) string {
	shrink := strings.Count(directions, "-")
	return strings.Repeat("-", shrink) + strings.Repeat("+", len(directions)-shrink)
}

// podWanted returns what the kubelet's cgroup of the pod is to have.
func (s *State) podWanted() *runtimeapi.LinuxContainerResources {
	res := cm.ResourceConfigForPod(s.policies, true, uint64(100*time.Millisecond/time.Microsecond), false, kubeletconfig.NoneMemoryReservationPolicy)
	wanted := &runtimeapi.LinuxContainerResources{}
	if res.Memory != nil {
		wanted.MemoryLimitInBytes = *res.Memory
	}
	if res.CPUShares != nil {
		wanted.CpuShares = int64(*res.CPUShares)
	}
	if res.CPUQuota != nil {
		wanted.CpuQuota = max(0, *res.CPUQuota)
	}
	return wanted
}

func podCgroupAlone() deviation {
	return deviation{
		Rule: rule("cgroup of a pod without running containers", judge.KubeletDefect, "The kubelet resizes a pod's cgroup only together with a container that runs, so that a pod whose limits were raised while its containers were down keeps the old ones; ours resizes it whenever it differs."),
		facts: func(s *State, f judge.Facts) {
			forget(f, "resize memory pod", "resize cpu pod", "resize nothing pod", "resize order of pod")
			if !goesOn(s, f) || !s.sameClass() {
				return
			}
			s.podFacts(f, s.podWanted())
		},
	}
}

func sidecarLimit() deviation {
	return deviation{
		Rule: rule("init container without a limit after a sidecar", judge.KubeletDefect, "The kubelet counts an init container without a limit that comes after a sidecar with one as if it had that limit, and so limits the pod as a whole; ours limits no pod in which a container has no limit."),
		facts: func(s *State, f judge.Facts) {
			if !goesOn(s, f) || !s.sameClass() {
				return
			}
			wanted := s.podWanted()
			if !s.limited(corev1.ResourceMemory) {
				wanted.MemoryLimitInBytes = 0
			}
			if !s.limited(corev1.ResourceCPU) {
				wanted.CpuQuota = 0
			}
			forget(f, "resize memory pod", "resize cpu pod", "resize order of pod")
			s.podFacts(f, wanted)
		},
	}
}

// limited reports whether the pod, or each of its containers, has a limit.
func (s *State) limited(name corev1.ResourceName) bool {
	has := func(list corev1.ResourceList) bool {
		limit := list[name]
		return !limit.IsZero()
	}
	spec := &s.policies.Spec
	return spec.Resources != nil && has(spec.Resources.Limits) ||
		!slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool { return !has(c.Resources.Limits) })
}

// shownAs returns now with the shares and memory that are wanted if it is how a
// runtime may show those.
func shownAs(now, wanted *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	as := &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: now.GetMemoryLimitInBytes(), CpuQuota: now.GetCpuQuota(), CpuShares: now.GetCpuShares(),
	}
	if as.CpuShares == rounded(wanted).CpuShares {
		as.CpuShares = wanted.CpuShares
	}
	if as.MemoryLimitInBytes == rounded(wanted).MemoryLimitInBytes {
		as.MemoryLimitInBytes = wanted.MemoryLimitInBytes
	}
	return as
}

// podFacts names what ours changes in the pod's cgroup.
func (s *State) podFacts(f judge.Facts, wanted *runtimeapi.LinuxContainerResources) {
	set := func(resource, direction, text string) {
		if direction == "" {
			return
		}
		f["resize "+resource+" pod"] = text
		if f["resize order of "+resource] != "" {
			f["resize order of pod and "+resource] = map[string]string{"+": "first", "-": "last"}[direction]
		}
	}
	now := shownAs(s.Cgroup, wanted)
	set("memory", memoryGrows(now, wanted), memoryText(wanted))
	set("cpu", cpuGrows(now, wanted), cpuText(wanted))
}

func podCgroupUnknown() deviation {
	return deviation{
		Rule: defect("cgroup of the pod", "13b", "The kubelet resizes the pod's cgroup with its containers; ours does not where nobody tells it what that has."),
		facts: func(s *State, f judge.Facts) {
			if !s.podKnown {
				forget(f, "resize memory pod", "resize cpu pod", "resize order of pod")
			}
		},
	}
}
