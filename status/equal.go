package status

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Equal reports whether two statuses of pod are equal, so that b need not be published
// after a. Equal compares the results of [Normalize]: fractions of seconds, message text
// that would be cut off, and the order of containers do not matter. Equal ignores the order
// of conditions, times and generations in conditions, and everything that other writers own:
// their conditions and fields such as the status of resource claims. Neither status is modified.
func Equal(pod *corev1.Pod, a, b *corev1.PodStatus) bool {
	if a.Phase != b.Phase {
		return false
	}
	if equality.Semantic.DeepEqual(ownFields(a), ownFields(b)) {
		return true // the usual case; no copy of the statuses is needed
	}
	return equality.Semantic.DeepEqual(comparedFields(pod, a), comparedFields(pod, b))
}

// comparedFields returns a copy of the fields that [Equal] compares.
func comparedFields(pod *corev1.Pod, s *corev1.PodStatus) corev1.PodStatus {
	mine := ownFields(s).DeepCopy()
	Normalize(pod, mine)
	for i := range mine.Conditions {
		c := &mine.Conditions[i]
		c.ObservedGeneration, c.LastProbeTime, c.LastTransitionTime = 0, metav1.Time{}, metav1.Time{}
	}
	slices.SortStableFunc(mine.Conditions, func(a, b corev1.PodCondition) int { return cmp.Compare(a.Type, b.Type) })
	return *mine
}

// ownFields returns the part of a status that the node owns: the node's conditions, and all other
// fields except the fields of other writers. The result shares memory with s.
func ownFields(s *corev1.PodStatus) *corev1.PodStatus {
	mine := &corev1.PodStatus{
		ObservedGeneration:         s.ObservedGeneration,
		Phase:                      s.Phase,
		Message:                    s.Message,
		Reason:                     s.Reason,
		NominatedNodeName:          s.NominatedNodeName,
		HostIP:                     s.HostIP,
		HostIPs:                    s.HostIPs,
		PodIP:                      s.PodIP,
		PodIPs:                     s.PodIPs,
		StartTime:                  s.StartTime,
		InitContainerStatuses:      s.InitContainerStatuses,
		ContainerStatuses:          s.ContainerStatuses,
		EphemeralContainerStatuses: s.EphemeralContainerStatuses,
		QOSClass:                   s.QOSClass,
		Resize:                     s.Resize,
		AllocatedResources:         s.AllocatedResources,
		Resources:                  s.Resources,
	}
	for _, c := range s.Conditions {
		if ownerOf(c.Type) != foreign {
			mine.Conditions = append(mine.Conditions, c)
		}
	}
	return mine
}
