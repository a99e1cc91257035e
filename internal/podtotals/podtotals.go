// Package podtotals adds up what a pod asks for. Its parts are used by whoever
// sets limits for a pod as a whole: its sandbox and its cgroup.
package podtotals

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Of returns what the pod requests and what it is limited to, without its
// overhead: the larger of what its regular containers and sidecars need together
// and of what any init container needs besides the sidecars before it. What is
// asked for the pod as a whole (KEP-2837) stands in for that, resource by
// resource. The lists are the caller's.
func Of(pod *corev1.Pod) (requests, limits corev1.ResourceList) {
	requests = total(&pod.Spec, func(r corev1.ResourceRequirements) corev1.ResourceList { return r.Requests })
	limits = total(&pod.Spec, func(r corev1.ResourceRequirements) corev1.ResourceList { return r.Limits })
	if r := pod.Spec.Resources; r != nil {
		replace(requests, r.Requests)
		replace(limits, r.Limits)
	}
	return requests, limits
}

// Plus adds what is in more to list, which it changes.
func Plus(list, more corev1.ResourceList) {
	for name, quantity := range more {
		sum := list[name]
		sum.Add(quantity)
		list[name] = sum
	}
}

func total(spec *corev1.PodSpec, of func(corev1.ResourceRequirements) corev1.ResourceList) corev1.ResourceList {
	sum, sidecars, peak := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range spec.Containers {
		Plus(sum, of(spec.Containers[i].Resources))
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		needs := corev1.ResourceList{}
		Plus(needs, of(c.Resources))
		if podspec.IsSidecar(c) {
			Plus(sum, needs)
			Plus(sidecars, needs)
			continue
		}
		Plus(needs, sidecars)
		raise(peak, needs)
	}
	raise(sum, peak)
	return sum
}

// raise makes list at least as large as other.
func raise(list, other corev1.ResourceList) {
	for name, quantity := range other {
		if have, ok := list[name]; !ok || have.Cmp(quantity) < 0 {
			list[name] = quantity.DeepCopy()
		}
	}
}

func replace(list, by corev1.ResourceList) {
	for name, quantity := range by {
		list[name] = quantity.DeepCopy()
	}
}
