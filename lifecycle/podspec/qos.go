package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// QOSClass returns the pod's quality-of-service class. A class in the status
// takes precedence, because it is fixed for the pod's life. A static pod has
// none there; its class is computed from its spec: BestEffort if no container
// requests CPU or memory, Guaranteed if every container has limits for both and
// requests equal to them, else Burstable. A missing request defaults to the
// limit, as in the API server. Pod-level resources (KEP-2837) replace those of
// the containers.
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

// asks reports whether list has CPU or memory above zero.
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
