package status

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The minimum values of the kernel. A lower value in the spec is enforced as the minimum,
// so the enforced value does not show the value in the spec.
const (
	minMilliCPULimit   = 10 // a quota of 1 ms in each period of 100 ms
	minMilliCPURequest = 2  // two shares
	minShares          = 2
)

// setResources sets the resources of st. The second argument contains the resources that are
// allocated to the container. The status of a running container shows the enforced values, which
// differ from the allocated values during a resize (KEP-1287). If the runtime reports no values,
// the values in g.Enforced are used. For the memory request, which runtimes do not report, the
// value in g.Enforced is used in any case. For a value that is still unknown, the previously
// reported value is used.
func (g *generator) setResources(
	st *corev1.ContainerStatus, given *corev1.ResourceRequirements, seen *runtimeapi.ContainerStatus, old *corev1.ContainerStatus,
) {
	st.Resources = given.DeepCopy()
	st.AllocatedResources = given.Requests.DeepCopy()
	if st.State.Running == nil {
		return
	}
	var before corev1.ResourceRequirements
	if old != nil && old.Resources != nil && old.State.Running != nil && old.ContainerID == st.ContainerID {
		before = *old.Resources
	}
	linux := seen.GetResources().GetLinux()
	cpuLimit, memoryLimit, cpuRequest := milliCPUOfQuota(linux), memoryLimit(linux), milliCPUOfShares(linux)
	var memoryRequest *resource.Quantity // runtimes do not report it
	last, known := g.Enforced[st.Name]
	switch {
	case !known:
	case cpuLimit == nil && memoryLimit == nil && cpuRequest == nil:
		cpuLimit, memoryLimit = last.Limits.Cpu(), last.Limits.Memory()
		cpuRequest, memoryRequest = last.Requests.Cpu(), last.Requests.Memory()
	case !last.Requests.Memory().IsZero():
		memoryRequest = last.Requests.Memory()
	}
	enforce(st.Resources.Limits, before.Limits, corev1.ResourceCPU, cpuLimit, minMilliCPULimit)
	enforce(st.Resources.Limits, before.Limits, corev1.ResourceMemory, memoryLimit, 0)
	enforce(st.Resources.Requests, before.Requests, corev1.ResourceCPU, cpuRequest, minMilliCPURequest)
	enforce(st.Resources.Requests, before.Requests, corev1.ResourceMemory, memoryRequest, 0)
}

// enforce replaces the value of a resource in the first list with the enforced value. If the
// enforced value is nil (unknown), it uses the value in the second list, which has the previous
// values. It does nothing if the first list is nil. The last argument is the kernel's minimum in
// thousandths of a unit; 0 means no minimum. If neither the enforced value nor the value in the
// first list is above this minimum, the list does not change.
func enforce(given, before corev1.ResourceList, name corev1.ResourceName, enforced *resource.Quantity, least int64) {
	if given == nil {
		return
	}
	if enforced == nil {
		if was, ok := before[name]; ok {
			given[name] = was.DeepCopy()
		}
		return
	}
	if requested := given[name]; least == 0 || enforced.MilliValue() > least || requested.MilliValue() > least {
		given[name] = enforced.DeepCopy()
	}
}

func milliCPUOfQuota(r *runtimeapi.LinuxContainerResources) *resource.Quantity {
	if r.GetCpuQuota() <= 0 || r.GetCpuPeriod() <= 0 {
		return nil
	}
	return resource.NewMilliQuantity(r.GetCpuQuota()*1000/r.GetCpuPeriod(), resource.DecimalSI)
}

func milliCPUOfShares(r *runtimeapi.LinuxContainerResources) *resource.Quantity {
	if r.GetCpuShares() < minShares {
		return nil
	}
	return resource.NewMilliQuantity((r.GetCpuShares()*1000+1023)/1024, resource.DecimalSI) // rounded up, because shares are rounded down
}

func memoryLimit(r *runtimeapi.LinuxContainerResources) *resource.Quantity {
	if r.GetMemoryLimitInBytes() <= 0 {
		return nil
	}
	return resource.NewQuantity(r.GetMemoryLimitInBytes(), resource.BinarySI)
}

// volumeMounts returns the status of each volume mount of c. The runtime reports whether a
// read-only mount is recursively read-only (KEP-3857).
func volumeMounts(c *corev1.Container, seen *runtimeapi.ContainerStatus) []corev1.VolumeMountStatus {
	if len(c.VolumeMounts) == 0 {
		return nil
	}
	out := make([]corev1.VolumeMountStatus, 0, len(c.VolumeMounts))
	for _, mount := range c.VolumeMounts {
		st := corev1.VolumeMountStatus{Name: mount.Name, MountPath: mount.MountPath, ReadOnly: mount.ReadOnly}
		if mount.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			for _, m := range seen.GetMounts() {
				if m.GetContainerPath() == mount.MountPath && m.GetRecursiveReadOnly() {
					mode = corev1.RecursiveReadOnlyEnabled
				}
			}
			st.RecursiveReadOnly = &mode
		}
		out = append(out, st)
	}
	return out
}
