package nodestatus

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// setResources sets the capacity and the allocatable resources of the node.
func setResources(s *corev1.NodeStatus, f Facts) {
	if s.Capacity == nil {
		s.Capacity = corev1.ResourceList{}
	}
	maps.Copy(s.Capacity, machineCapacity(f))
	maps.Copy(s.Capacity, f.Extended.Capacity.DeepCopy())

	if s.Allocatable == nil {
		s.Allocatable = corev1.ResourceList{}
	}
	maps.DeleteFunc(s.Allocatable, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, found := s.Capacity[name]
		return !found && isExtended(name)
	})
	maps.Copy(s.Allocatable, Allocatable(s.Capacity, f.Reserved))
	maps.Copy(s.Allocatable, f.Extended.Allocatable.DeepCopy())
}

// machineCapacity returns the capacity of the machine and the maximum number of pods. If the machine
// could not be measured, cpu and memory are 0.
func machineCapacity(f Facts) corev1.ResourceList {
	list := f.Capacity.DeepCopy()
	pods := int64(f.MaxPods)
	if list == nil {
		list = corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewQuantity(0, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(0, resource.BinarySI),
		}
	} else if f.PodsPerCore > 0 {
		cores := list[corev1.ResourceCPU]
		pods = min(pods, cores.Value()*int64(f.PodsPerCore))
	}
	list[corev1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
	return list
}

// Allocatable returns the resources that pods can use: capacity minus the reserved resources,
// and minus the memory of huge pages, which cannot be used as normal memory. No quantity is
// below 0.
func Allocatable(capacity corev1.ResourceList, reserved []corev1.ResourceList) corev1.ResourceList {
	left := capacity.DeepCopy()
	subtract := func(name corev1.ResourceName, amount resource.Quantity) {
		q := left[name]
		q.Sub(amount)
		if q.Sign() < 0 {
			q = *resource.NewQuantity(0, q.Format)
		}
		left[name] = q
	}
	for name := range capacity {
		for _, list := range reserved {
			if amount, ok := list[name]; ok {
				subtract(name, amount)
			}
		}
	}
	for name, amount := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			subtract(corev1.ResourceMemory, amount)
		}
	}
	return left
}

// isExtended reports whether a device plugin may offer a resource of this name.
func isExtended(name corev1.ResourceName) bool {
	const quotaPrefix = corev1.DefaultResourceRequestsPrefix
	text := string(name)
	return strings.Contains(text, "/") && !strings.Contains(text, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(text, quotaPrefix) && len(validation.IsQualifiedName(quotaPrefix+text)) == 0
}
