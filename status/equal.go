package status

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Equal reports whether a and b, statuses of pod, are the same, so that a reader of
// one need not be sent the other. It compares them as [Normalize] would make them:
// fractions of seconds, the part of a message that would be cut off and the order of
// containers do not matter. Nor do conditions of other writers, times and generations
// within conditions, and what others write, such as the status of resource claims.
// Neither is modified.
func Equal(pod *corev1.Pod, a, b *corev1.PodStatus) bool {
	return equality.Semantic.DeepEqual(essence(pod, a), essence(pod, b))
}

// essence returns a copy of what [Equal] compares.
func essence(pod *corev1.Pod, s *corev1.PodStatus) corev1.PodStatus {
	mine := own(s).DeepCopy()
	Normalize(pod, mine)
	for i := range mine.Conditions {
		c := &mine.Conditions[i]
		c.ObservedGeneration, c.LastProbeTime, c.LastTransitionTime = 0, metav1.Time{}, metav1.Time{}
	}
	slices.SortStableFunc(mine.Conditions, func(a, b corev1.PodCondition) int { return cmp.Compare(a.Type, b.Type) })
	return *mine
}

// own returns what the node writes of a status: every field but those that are left to
// others, and the conditions of the node. It shares memory with s.
func own(s *corev1.PodStatus) *corev1.PodStatus {
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
		if owner(c.Type) != foreign {
			mine.Conditions = append(mine.Conditions, c)
		}
	}
	return mine
}
