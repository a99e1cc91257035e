package eviction

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// request returns what the pod asks for of one resource, as [podspec.Requests]
// counts it, but overhead only for a pod that asks for something, and without making
// lists: ranking needs this one figure of every pod of the node, while the node has
// nothing to spare.
func request(pod *corev1.Pod, name corev1.ResourceName) int64 {
	if n, ok := plainRequest(pod, name); ok {
		return n
	}
	total := total(pod, func(r *corev1.ResourceRequirements) resource.Quantity {
		if q, ok := r.Requests[name]; ok {
			return q
		}
		return r.Limits[name]
	})
	if whole := pod.Spec.Resources; whole != nil && ofWholePod(name) {
		if q, ok := whole.Requests[name]; ok {
			total = q.DeepCopy() // Add changes what an amount such as 0.25Gi points to
		} else if q, ok := whole.Limits[name]; ok && total.IsZero() {
			total = q.DeepCopy()
		}
	}
	if q, ok := pod.Spec.Overhead[name]; ok && !total.IsZero() {
		total.Add(q)
	}
	return total.Value()
}

// plainRequest is request for what most pods are: regular containers that ask for whole
// numbers. It does without the arithmetic of quantities, a third of all ranking.
func plainRequest(pod *corev1.Pod, name corev1.ResourceName) (sum int64, ok bool) {
	if len(pod.Spec.InitContainers) > 0 || len(pod.Spec.Overhead) > 0 || pod.Spec.Resources != nil {
		return 0, false
	}
	for i := range pod.Spec.Containers {
		r := &pod.Spec.Containers[i].Resources
		q, found := r.Requests[name]
		if !found {
			q, found = r.Limits[name]
		}
		n, whole := q.AsInt64()
		if found && !whole {
			return 0, false
		}
		sum = plus(sum, n)
	}
	return sum, true
}

// ofWholePod says whether pods can ask for the resource as a whole (KEP-2837).
func ofWholePod(name corev1.ResourceName) bool { return name == corev1.ResourceMemory }

// total adds up one figure of the containers: regular ones and sidecars at a
// time, or an init container beside the sidecars before it if that is more
// (KEP-753).
func total(pod *corev1.Pod, of func(*corev1.ResourceRequirements) resource.Quantity) (sum resource.Quantity) {
	for i := range pod.Spec.Containers {
		sum.Add(of(&pod.Spec.Containers[i].Resources))
	}
	var sidecars, most resource.Quantity
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if podspec.IsSidecar(c) {
			sum.Add(of(&c.Resources))
			sidecars.Add(of(&c.Resources))
			continue
		}
		beside := sidecars.DeepCopy()
		beside.Add(of(&c.Resources))
		if beside.Cmp(most) > 0 {
			most = beside
		}
	}
	if most.Cmp(sum) > 0 {
		sum = most
	}
	return sum
}
