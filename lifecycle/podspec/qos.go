package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// QOSClass returns the pod's quality-of-service class. If the pod's status has
// a class, QOSClass returns that class, because the class of a pod never
// changes. Otherwise, for example for a static pod, QOSClass computes the class
// from the spec. The class is BestEffort if no container has a request or limit
// of CPU or memory. It is Guaranteed if every container has limits of CPU and
// memory that equal its requests. Otherwise it is Burstable. A missing request
// defaults to the limit, as in the API server. If the pod has pod-level
// resources (KEP-2837), only these count.
func QOSClass(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	if r := pod.Spec.Resources; r != nil {
		return classOf([]corev1.ResourceRequirements{*r})
	}
	all := make([]corev1.ResourceRequirements, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for c := range Containers(&pod.Spec) {
		all = append(all, c.Resources)
	}
	return classOf(all)
}

func classOf(all []corev1.ResourceRequirements) corev1.PodQOSClass {
	switch {
	case !slices.ContainsFunc(all, func(r corev1.ResourceRequirements) bool { return asks(r.Requests) || asks(r.Limits) }):
		return corev1.PodQOSBestEffort
	case !slices.ContainsFunc(all, func(r corev1.ResourceRequirements) bool { return !isGuaranteed(r) }):
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}

// asks reports whether list has an amount of CPU or memory above zero.
func asks(list corev1.ResourceList) bool {
	return list.Cpu().Sign() > 0 || list.Memory().Sign() > 0
}

func isGuaranteed(r corev1.ResourceRequirements) bool {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit := r.Limits[name]
		request, written := r.Requests[name]
		if limit.Sign() <= 0 || written && request.Cmp(limit) != 0 {
			return false
		}
	}
	return true
}
