package podspec

import corev1 "k8s.io/api/core/v1"

// SystemCriticalPriority is the lowest priority of a critical pod; the two
// built-in classes of it, system-cluster-critical and system-node-critical,
// start there.
const SystemCriticalPriority int32 = 2_000_000_000

// Priority returns the pod's priority, 0 for one without.
func Priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// IsCritical says whether the node itself depends on the pod: a static pod, the
// mirror of one, or one of a system-critical priority.
func IsCritical(pod *corev1.Pod) bool {
	return IsStatic(pod) || IsMirror(pod) || Priority(pod) >= SystemCriticalPriority
}

// CanPreempt says whether preemptor may take the place of victim: a critical pod
// that of any other, and otherwise only a pod of a higher priority, if both have
// one. A critical pod without a priority, a static one for example, therefore
// gives way to no critical one.
func CanPreempt(preemptor, victim *corev1.Pod) bool {
	if IsCritical(preemptor) && !IsCritical(victim) {
		return true
	}
	return preemptor.Spec.Priority != nil && victim.Spec.Priority != nil &&
		*preemptor.Spec.Priority > *victim.Spec.Priority
}
