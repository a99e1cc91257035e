package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// QOSClass returns the pod's quality-of-service class. A class in the status
// wins, because it is fixed for the pod's life; a static pod has none there and
// gets it from its spec: BestEffort when no container asks for cpu or memory,
// Guaranteed when every container has limits for both and requests equal to
// them, else Burstable. A request that is not written down defaults to the
// limit, as the API server would have filled it in. Resources of the pod as a
// whole (KEP-2837) stand in for those of its containers.
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

// asks says whether list has some cpu or memory in it. A zero is no wish.
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
