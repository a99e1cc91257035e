package podspec

import corev1 "k8s.io/api/core/v1"

// SystemCriticalPriority is the lowest priority of a critical pod. The two
// built-in priority classes, system-cluster-critical and system-node-critical,
// start there.
const SystemCriticalPriority int32 = 2_000_000_000

// Priority returns the pod's priority, 0 if it is not set.
func Priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// IsCritical reports whether the pod is critical: a static pod, a mirror pod,
// or a pod of a system-critical priority.
func IsCritical(pod *corev1.Pod) bool {
	return IsStatic(pod) || IsMirror(pod) || Priority(pod) >= SystemCriticalPriority
}

// CanPreempt reports whether preemptor may preempt victim. A critical pod may
// preempt any pod that is not critical. Otherwise preemptor needs a higher
// priority, and both must have a priority. A critical pod without a priority,
// for example a static one, is therefore never preempted by another critical
// pod.
func CanPreempt(preemptor, victim *corev1.Pod) bool {
	if IsCritical(preemptor) && !IsCritical(victim) {
		return true
	}
	return preemptor.Spec.Priority != nil && victim.Spec.Priority != nil &&
		*preemptor.Spec.Priority > *victim.Spec.Priority
}
