package podspec

import corev1 "k8s.io/api/core/v1"

// SystemCriticalPriority is the lowest priority that makes a pod critical. It
// is the priority of the built-in class system-cluster-critical. The class
// system-node-critical has a higher priority.
const SystemCriticalPriority int32 = 2_000_000_000

// Priority returns the pod's priority, or 0 if the priority is not set.
func Priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// IsCritical reports whether the pod is critical: a static pod, a mirror pod,
// or a pod with at least [SystemCriticalPriority].
func IsCritical(pod *corev1.Pod) bool {
	return IsStatic(pod) || IsMirror(pod) || Priority(pod) >= SystemCriticalPriority
}

// CanPreempt reports whether preemptor may preempt victim. A critical pod may
// preempt any pod that is not critical. In all other cases both pods must have
// a priority, and preemptor's priority must be higher. A critical pod without a
// priority, such as a static pod, is therefore never preempted.
func CanPreempt(preemptor, victim *corev1.Pod) bool {
	if IsCritical(preemptor) && !IsCritical(victim) {
		return true
	}
	return preemptor.Spec.Priority != nil && victim.Spec.Priority != nil &&
		*preemptor.Spec.Priority > *victim.Spec.Priority
}
