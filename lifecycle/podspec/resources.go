package podspec

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
)

// Requests returns what the pod asks for as a whole, by its spec: the sum of its
// containers and sidecars, or what its init containers need at their most if that
// is more (KEP-753); cpu, memory and huge pages of the pod as a whole (KEP-2837)
// in place of those; and the overhead of its runtime class. The list is the
// caller's. A request that is not written down is the limit, as the API server
// would have filled it in.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	return resource.PodRequests(defaulted(apart(pod)), resource.PodResourcesOptions{})
}

// Held returns what a pod on a node takes of it: [Requests], or what its status
// says that it was given where that is more. A pod that was shrunk in place holds
// the larger amount until the smaller one is in effect, and one whose growth is
// infeasible does not hold what it will not get (KEP-1287).
func Held(pod *corev1.Pod) corev1.ResourceList {
	return resource.PodRequests(defaulted(apart(pod)), resource.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
}

// Limits returns what the pod may use as a whole, counted as in [Requests]. A
// resource that some container has no limit for is in the list with what the
// others may use; overhead counts only where there is a limit.
func Limits(pod *corev1.Pod) corev1.ResourceList {
	return resource.PodLimits(apart(pod), resource.PodResourcesOptions{})
}

// EnforceableLimits returns the limits of CPU and memory that hold for the pod as a whole,
// with its overhead: its own, or the sum of its containers' if each of them has one. Else
// a container without a limit could use only what the others leave.
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

// hasLimit reports whether the pod, or each of its containers, has a limit.
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

// apart returns the pod with a copy of its own of the resources of the whole, to
// which component-helpers adds the overhead in place: that would change the pod
// where a quantity has so many digits that it is a pointer inside.
func apart(pod *corev1.Pod) *corev1.Pod {
	if pod.Spec.Resources == nil {
		return pod
	}
	own := *pod
	own.Spec.Resources = pod.Spec.Resources.DeepCopy()
	return &own
}

// defaulted returns the pod with each missing request filled in from its limit.
// It is the same pod where nothing is missing, and a copy of what changes
// otherwise.
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
	// For the pod as a whole the limit stands in only where no container asks
	// for the resource.
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

// lacks says whether some limit has no request beside it.
func lacks(r corev1.ResourceRequirements) bool {
	for name := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			return true
		}
	}
	return false
}
