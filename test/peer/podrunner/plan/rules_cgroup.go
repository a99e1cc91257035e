package plan

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// withoutBackoff returns a copy of s in which no container backs off.
func (s *State) withoutBackoff() *State {
	c := s.clone()
	c.Starts = nil
	return c
}

func heldResize() deviation {
	return deviation{
		Rule: rule("resize while an init container backs off", judge.KubeletDefect, "While an init container of a pod backs off, the kubelet resizes no container of the pod. This package resizes the running containers, because a container that can't be started does not delay other containers."),
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

func cpuWithMemory() deviation {
	return deviation{
		Rule: rule("CPU limit sent with memory limit", judge.KubeletDefect, "If a container inherits new limits from its pod, the kubelet sets the container's CPU limit twice: together with the memory limit, and again with the other CPU values. This package sets each limit once."),
		facts: func(s *State, f judge.Facts) {
			if s.Pod.Spec.Resources == nil || s.Pod.Spec.Resources.Limits.Cpu().IsZero() {
				return
			}
			for _, c := range s.resizable() {
				spec, _ := s.spec(c.Name)
				is := s.actuated(spec)
				nothing := "resize nothing " + c.ID
				switch {
				case !c.Has.Limits.Cpu().IsZero() || f["resize cpu "+c.ID] == "" && f["resize memory "+c.ID] == "":
				case f["resize memory "+c.ID] == "" && !sameAmounts(c.Has, is, corev1.ResourceMemory):
					f[nothing] = "yes" // memory only: in the kubelet the same call sets the CPU limit
				case f["resize memory "+c.ID] != "" && spec.Resources.Limits.Cpu().IsZero() && sharesOf(c.Has.Requests) == sharesOf(is.Requests):
					delete(f, nothing) // CPU only: in the kubelet the memory call has set it
				}
			}
		},
	}
}

// sharesOf returns the CPU shares for requests.
func sharesOf(requests corev1.ResourceList) int64 {
	return linuxOf(&corev1.Pod{}, &corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests}}).GetCpuShares()
}

func limitsRemoved() deviation {
	return deviation{
		Rule: rule("removed container limits", judge.KubeletDefect, "The kubelet sends zero for a limit that was removed, so the runtime keeps the old limit and the status still shows it. This package sends -1, which removes the limit."),
		facts: func(s *State, f judge.Facts) {
			if !s.sameClass() {
				return
			}
			for _, c := range s.resizable() {
				spec, _ := s.spec(c.Name)
				if wanted := linuxOf(s.Pod, spec); wanted.GetMemoryLimitInBytes() == 0 || wanted.GetCpuQuota() == 0 {
					s.withoutLimit(f, c, wanted)
				}
			}
			s.renewResizeOrder(f)
		},
	}
}

// withoutLimit sets our actions for a container that the kubelet resizes and whose spec lacks
// a limit.
func (s *State) withoutLimit(f judge.Facts, c *Container, wanted *runtimeapi.LinuxContainerResources) {
	memory, cpu, nothing := "resize memory "+c.ID, "resize cpu "+c.ID, "resize nothing "+c.ID
	if f[memory]+f[cpu]+f[nothing] == "" {
		return
	}
	forget(f, memory, cpu, nothing)
	spec, _ := s.spec(c.Name)
	is := s.actuated(spec)
	set := func(resource corev1.ResourceName, name, direction, text string) {
		switch {
		case sameAmounts(c.Has, is, resource):
		case direction == "":
			f[nothing] = "yes"
		default:
			f[name] = text
		}
	}
	set(corev1.ResourceMemory, memory, memoryGrows(c.Linux, wanted), memoryText(wanted))
	set(corev1.ResourceCPU, cpu, cpuGrows(c.Linux, wanted), cpuText(wanted))
}

// sameAmounts reports whether request and limit of a resource are the same.
func sameAmounts(a, b corev1.ResourceRequirements, name corev1.ResourceName) bool {
	same := func(a, b corev1.ResourceList) bool { return a.Name(name, "").Cmp(*b.Name(name, "")) == 0 }
	return same(a.Requests, b.Requests) && same(a.Limits, b.Limits)
}

// renewResizeOrder recomputes the order of resizes after some were added: decreases come
// before increases, relative to our recorded resources.
func (s *State) renewResizeOrder(f judge.Facts) {
	for resource, grows := range map[string]direction{"memory": memoryGrows, "cpu": cpuGrows} {
		order := map[string]string{} // directions by our record: decrease, unchanged, increase
		for _, name := range s.names() {
			c := s.here(name)
			if c == nil || f["resize "+resource+" "+c.ID] == "" {
				continue
			}
			spec, _ := s.spec(name)
			wanted := linuxOf(s.Pod, spec)
			given := grows(linuxOf(&corev1.Pod{}, &corev1.Container{Resources: c.Has}), wanted)
			order[given] += grows(c.Linux, wanted)
		}
		delete(f, "resize order of "+resource)
		if all := order["-"] + order[""] + order["+"]; all != "" {
			f["resize order of "+resource] = all
		}
	}
}

// podWanted returns the resources that the kubelet sets for the pod's cgroup.
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
		Rule: rule("cgroup of a pod without running containers", judge.KubeletDefect, "The kubelet resizes a pod's cgroup only together with a running container. If the limits of a pod are raised while no container runs, the pod keeps the old limits. This package resizes the cgroup whenever its limits differ from the spec."),
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
		Rule: rule("unlimited init container after a sidecar", judge.KubeletDefect, "If an init container without a limit comes after a sidecar with a limit, the kubelet assumes the sidecar's limit for the init container, and therefore limits the pod as a whole. This package does not limit a pod in which a container has no limit."),
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

// shownAs returns the values that now may stand for. A runtime reports rounded CPU shares and
// memory. If the rounded desired value equals the value in now, shownAs returns the desired
// value.
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

// podFacts adds our changes of the pod's cgroup.
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
