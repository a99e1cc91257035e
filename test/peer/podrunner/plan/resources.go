package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeutil "k8s.io/kubernetes/pkg/kubelet/util"

	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

// linuxOf returns the resources of a container that is created now.
func linuxOf(pod *corev1.Pod, c *corev1.Container) *runtimeapi.LinuxContainerResources {
	res, _ := podrunner.ContainerResources(pod, c, podrunner.Node{})
	return &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: res.GetMemoryLimitInBytes(), CpuShares: res.GetCpuShares(), CpuQuota: res.GetCpuQuota(), CpuPeriod: res.GetCpuPeriod(),
	}
}

// actuated returns the kubelet's record of the resources of a container that is created now.
func (s *State) actuated(c *corev1.Container) corev1.ResourceRequirements {
	res := *c.Resources.DeepCopy()
	res.Limits = kubeutil.GetLimits(&kubeutil.ResourceOpts{PodResources: s.Pod.Spec.Resources, ContainerResources: &c.Resources})
	return res
}

// podCgroup returns the desired resources of the pod's cgroup.
func podCgroup(pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	l := cgroups.PodLimits(pod, 100*time.Millisecond)
	return &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: l.MemoryBytes, CpuShares: l.CPUShares, CpuQuota: l.CPUQuotaMicros, CpuPeriod: l.CPUPeriodMicros,
	}
}

// rounded returns res as a runtime with cgroup v2 reports it: memory in whole pages, and CPU
// shares after conversion to a weight and back.
func rounded(res *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	weight := 1 + (res.GetCpuShares()-2)*9999/262142
	return &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: res.GetMemoryLimitInBytes() &^ 4095, CpuShares: 2 + (weight-1)*262142/9999,
		CpuQuota: res.GetCpuQuota(), CpuPeriod: res.GetCpuPeriod(),
	}
}
