package status

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Merge returns the status that the API server is to show of pod, which is as it shows
// it, where the node reports said:
//
//   - conditions of other writers and the status of resource claims stay as the API server
//     has them, whatever said has;
//   - DisruptionTarget, which others write too, is the node's to set only with the
//     end that it explains;
//   - while mayRun, the pod may still have running containers, and its end is held
//     back: others would give its resources away. held says so. The rest of said
//     goes out;
//   - an end that the API server has is never taken back or changed into another one;
//   - an ended pod is not Ready, nor are its containers.
//
// Transition times of conditions that change here are now. Neither input is
// modified; the result shares memory with both.
func Merge(pod *corev1.Pod, said *corev1.PodStatus, mayRun bool, now time.Time) (merged corev1.PodStatus, held bool) {
	api := &pod.Status
	merged = *said
	merged.ResourceClaimStatuses = api.ResourceClaimStatuses
	merged.ExtendedResourceClaimStatus = api.ExtendedResourceClaimStatus
	merged.NodeAllocatableResourceClaimStatuses = api.NodeAllocatableResourceClaimStatuses
	ends := !podspec.IsTerminal(api.Phase) && podspec.IsTerminal(said.Phase)
	held = ends && mayRun
	if held || podspec.IsTerminal(api.Phase) && said.Phase != api.Phase {
		merged.Phase, merged.Reason, merged.Message = api.Phase, api.Reason, api.Message
	}
	merged.Conditions = mergeConditions(api, said, ends && !mayRun, now)
	settle(pod, &merged)
	for i := range merged.Conditions {
		if c := &merged.Conditions[i]; c.LastTransitionTime.IsZero() && (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) {
			c.LastTransitionTime = transitionTime(c, api.Conditions, now)
		}
	}
	return merged, held
}

// mergeConditions takes ours from said and the rest from api.
func mergeConditions(api, said *corev1.PodStatus, ends bool, now time.Time) []corev1.PodCondition {
	out := make([]corev1.PodCondition, 0, len(api.Conditions)+len(said.Conditions))
	for _, c := range api.Conditions {
		if owner(c.Type) == foreign || c.Type == corev1.DisruptionTarget {
			out = append(out, c)
		}
	}
	for _, c := range said.Conditions {
		switch {
		case owner(c.Type) == foreign:
		case c.Type != corev1.DisruptionTarget:
			out = append(out, c)
		case ends:
			c.LastTransitionTime = transitionTime(&c, api.Conditions, now)
			out = slices.DeleteFunc(out, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
			out = append(out, c)
		}
	}
	return out
}
