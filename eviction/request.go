package eviction

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// request returns what the pod asks for of one resource, as [podspec.Requests]
// counts it, but without making lists: ranking needs this one figure of every
// pod of the node, while the node has nothing to spare.
func request(pod *corev1.Pod, name corev1.ResourceName) int64 {
	if n, ok := plainRequest(pod, name); ok {
		return n
	}
	total, _ := total(pod, func(r *corev1.ResourceRequirements) (resource.Quantity, bool) {
		if q, ok := r.Requests[name]; ok {
			return q, true
		}
		q, ok := r.Limits[name]
		return q, ok
	})
	if whole := pod.Spec.Resources; whole != nil && ofWholePod(name) {
		if q, ok := whole.Requests[name]; ok {
			total = q
		} else if q, ok := whole.Limits[name]; ok && total.IsZero() {
			total = q
		}
	}
	if len(pod.Spec.Overhead) > 0 {
		if q, ok := pod.Spec.Overhead[name]; ok {
			total.Add(q)
		}
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

// limit returns what the pod may use of one resource, where some of its
// containers have a limit for it; all says that each regular one has.
func limit(pod *corev1.Pod, name corev1.ResourceName) (sum resource.Quantity, all, some bool) {
	sum, some = total(pod, func(r *corev1.ResourceRequirements) (resource.Quantity, bool) {
		q, ok := r.Limits[name]
		return q, ok
	})
	all = some
	for i := range pod.Spec.Containers {
		_, ok := pod.Spec.Containers[i].Resources.Limits[name]
		all = all && ok
	}
	if q, ok := pod.Spec.Overhead[name]; ok && some {
		sum.Add(q)
	}
	return sum, all, some
}

// total adds up one figure of the containers: regular ones and sidecars at a
// time, or an init container beside the sidecars before it if that is more
// (KEP-753).
func total(pod *corev1.Pod, of func(*corev1.ResourceRequirements) (resource.Quantity, bool)) (sum resource.Quantity, some bool) {
	for i := range pod.Spec.Containers {
		some = add(&sum, &pod.Spec.Containers[i], of) || some
	}
	if len(pod.Spec.InitContainers) == 0 {
		return sum, some
	}
	var sidecars, most resource.Quantity
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if podspec.IsSidecar(c) {
			some = add(&sum, c, of) || some
			add(&sidecars, c, of)
			continue
		}
		beside := sidecars.DeepCopy()
		some = add(&beside, c, of) || some
		if beside.Cmp(most) > 0 {
			most = beside
		}
	}
	if most.Cmp(sum) > 0 {
		sum = most
	}
	return sum, some
}

func add(sum *resource.Quantity, c *corev1.Container, of func(*corev1.ResourceRequirements) (resource.Quantity, bool)) bool {
	q, ok := of(&c.Resources)
	if !ok {
		return false
	}
	if sum.IsZero() {
		*sum = q.DeepCopy() // with its format
	} else {
		sum.Add(q)
	}
	return true
}
