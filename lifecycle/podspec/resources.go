package podspec

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
)

// Requests returns the total requests of the pod, computed from its spec. The
// total of a resource is the sum over the pod's containers and sidecars, or the
// maximum that its init containers need, whichever is higher (KEP-753).
// Pod-level requests of CPU, memory and huge pages replace these totals
// (KEP-2837). The overhead of the pod's runtime class is added. A missing
// request defaults to the limit, as in the API server. The caller owns the
// list.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	return resource.PodRequests(defaulted(apart(pod)), resource.PodResourcesOptions{})
}

// AllocatedResources returns the resources that a pod occupies on its node:
// [Requests], or the allocated or actual resources in its status if these are
// higher (KEP-1287). While a pod shrinks in place, the larger amount counts
// until the smaller amount is in effect. If a resize to a larger amount is
// infeasible, the larger amount does not count. The list may be part of pod and
// must not be modified.
func AllocatedResources(pod *corev1.Pod) corev1.ResourceList {
	if statusIsLower(pod) {
		s := &pod.Spec
		if len(s.Containers) == 1 && len(s.InitContainers) == 0 && s.Resources == nil && s.Overhead == nil && !lacks(s.Containers[0].Resources) {
			return s.Containers[0].Resources.Requests
		}
		return Requests(pod)
	}
	return resource.PodRequests(defaulted(apart(pod)), resource.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
}

// statusIsLower reports whether no resource in the pod's status exceeds the
// request in its spec. The pod then occupies what the spec requests. This is
// the usual case: no resize is in progress. If the status has pod-level
// resources or an infeasible resize, statusIsLower returns false without a
// comparison. statusIsLower allocates no memory, because it is called for all
// other pods of the node when a pod is admitted.
func statusIsLower(pod *corev1.Pod) bool {
	if pod.Status.Resources != nil || pod.Status.AllocatedResources != nil || resource.IsPodResizeInfeasible(pod) {
		return false
	}
	for c := range Containers(&pod.Spec) {
		if !noneExceeds(pod.Status.ContainerStatuses, c) || !noneExceeds(pod.Status.InitContainerStatuses, c) {
			return false
		}
	}
	return true
}

// noneExceeds reports whether no resource in the container's status exceeds the
// request in its spec.
func noneExceeds(all []corev1.ContainerStatus, c *corev1.Container) bool {
	for i := range all {
		s := &all[i]
		if s.Name == c.Name && s.Resources != nil && (!within(s.Resources.Requests, c.Resources.Requests) || !within(s.AllocatedResources, c.Resources.Requests)) {
			return false
		}
	}
	return true
}

// within reports whether limit has each resource of list, with at least the
// same amount.
func within(list, limit corev1.ResourceList) bool {
	for name, amount := range list {
		if most, ok := limit[name]; !ok || amount.Cmp(most) > 0 {
			return false
		}
	}
	return true
}

// Limits returns the total limits of the pod, computed as in [Requests]. If a
// container has no limit of a resource, the total is the sum of the limits of
// the other containers. Overhead is added only to resources that have a limit.
func Limits(pod *corev1.Pod) corev1.ResourceList {
	return resource.PodLimits(apart(pod), resource.PodResourcesOptions{})
}

// EnforceableLimits returns the limits of CPU and memory that can be enforced
// for the pod as a whole, with its overhead. These are the pod-level limits. If
// a pod-level limit is missing and every container has a limit of the resource,
// the sum of the containers' limits is used. If a container has no limit
// either, the result has no limit of this resource: a limit of the pod would
// also limit this container.
func EnforceableLimits(pod *corev1.Pod) corev1.ResourceList {
	limits := corev1.ResourceList{}
	all := Limits(pod)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if hasLimit(pod, name) {
			limits[name] = all[name]
		}
	}
	return limits
}

// hasLimit reports whether the pod, or each of its containers, has a limit of
// the named resource.
func hasLimit(pod *corev1.Pod, name corev1.ResourceName) bool {
	has := func(limits corev1.ResourceList) bool {
		limit := limits[name]
		return limit.Sign() > 0
	}
	if r := pod.Spec.Resources; r != nil && has(r.Limits) {
		return true
	}
	for c := range Containers(&pod.Spec) {
		if !has(c.Resources.Limits) {
			return false
		}
	}
	return true
}

// apart returns a copy of the pod with its own copy of the pod-level resources,
// or the same pod if it has no such resources. component-helpers adds the
// overhead to these resources in place. Without the copy, this would change the
// original pod if a quantity is so long that it is stored behind a pointer.
func apart(pod *corev1.Pod) *corev1.Pod {
	if pod.Spec.Resources == nil {
		return pod
	}
	own := *pod
	own.Spec.Resources = pod.Spec.Resources.DeepCopy()
	return &own
}

// defaulted returns the pod with each missing request set to its limit. If no
// request is missing, defaulted returns the same pod. Otherwise it copies
// everything that it changes.
func defaulted(pod *corev1.Pod) *corev1.Pod {
	inits, initsChanged := defaultedContainers(pod.Spec.InitContainers)
	mains, mainsChanged := defaultedContainers(pod.Spec.Containers)
	if initsChanged || mainsChanged {
		filled := *pod
		filled.Spec.InitContainers, filled.Spec.Containers = inits, mains
		pod = &filled
	}
	whole := pod.Spec.Resources
	if whole == nil || !lacks(*whole) {
		return pod
	}
	// The pod-level limit becomes the pod-level request only if no container
	// requests the resource.
	asked := resource.AggregateContainerRequests(pod, resource.PodResourcesOptions{})
	requests := maps.Clone(whole.Limits)
	maps.DeleteFunc(requests, func(name corev1.ResourceName, _ quantity.Quantity) bool {
		_, ok := asked[name]
		return ok
	})
	maps.Copy(requests, whole.Requests)
	filled := *pod
	filled.Spec.Resources = &corev1.ResourceRequirements{Requests: requests, Limits: whole.Limits}
	return &filled
}

func defaultedContainers(all []corev1.Container) (filled []corev1.Container, changed bool) {
	filled = all
	for i := range all {
		r := &all[i].Resources
		if !lacks(*r) {
			continue
		}
		if !changed {
			filled, changed = append([]corev1.Container(nil), all...), true
		}
		requests := maps.Clone(r.Limits)
		maps.Copy(requests, r.Requests)
		filled[i].Resources.Requests = requests
	}
	return filled, changed
}

// lacks reports whether r has a limit of a resource but no request of it.
func lacks(r corev1.ResourceRequirements) bool {
	for name := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			return true
		}
	}
	return false
}
