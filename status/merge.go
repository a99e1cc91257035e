package status

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Merge returns the status to publish. pod is the object in the API server, and reported is
// the status that the node reports. Merge has these rules:
//
//   - conditions of other writers and the status of resource claims are copied from pod,
//     whatever the reported status contains;
//   - a reported DisruptionTarget is published only together with the terminal phase that
//     it explains. Otherwise a DisruptionTarget in pod is copied, because other writers may
//     set it too;
//   - mayRun means that the pod may still have running containers. Merge then omits a new
//     terminal phase, with its reason and message, because other components would reuse the
//     pod's resources. The rest of the reported status is published. held is true if a phase
//     was omitted;
//   - a terminal phase in the API server is never changed;
//   - a pod with a terminal phase is not Ready, and its condition ContainersReady is
//     False.
//
// If a condition that Merge sets has another status in pod, or is missing in pod, its
// transition time becomes now. Neither pod nor reported is modified; the result shares
// memory with both.
func Merge(pod *corev1.Pod, reported *corev1.PodStatus, mayRun bool, now time.Time) (merged corev1.PodStatus, held bool) {
	api := &pod.Status
	merged = *reported
	merged.ResourceClaimStatuses = api.ResourceClaimStatuses
	merged.ExtendedResourceClaimStatus = api.ExtendedResourceClaimStatus
	merged.NodeAllocatableResourceClaimStatuses = api.NodeAllocatableResourceClaimStatuses
	ends := !podspec.IsTerminal(api.Phase) && podspec.IsTerminal(reported.Phase)
	held = ends && mayRun
	if held || podspec.IsTerminal(api.Phase) && reported.Phase != api.Phase {
		merged.Phase, merged.Reason, merged.Message = api.Phase, api.Reason, api.Message
	}
	merged.Conditions = mergeConditions(api, reported, ends && !mayRun, now)
	markEndedUnready(pod, &merged)
	for i := range merged.Conditions {
		if c := &merged.Conditions[i]; c.LastTransitionTime.IsZero() && (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) {
			c.LastTransitionTime = transitionTime(c, api.Conditions, now)
		}
	}
	return merged, held
}

// mergeConditions returns the node's conditions in the reported status and the conditions of
// other writers in the API server's status. If ends is true, the reported terminal phase is
// published now. A reported DisruptionTarget then replaces the condition in the API server.
func mergeConditions(api, reported *corev1.PodStatus, ends bool, now time.Time) []corev1.PodCondition {
	out := make([]corev1.PodCondition, 0, len(api.Conditions)+len(reported.Conditions))
	for _, c := range api.Conditions {
		if ownerOf(c.Type) == foreign || c.Type == corev1.DisruptionTarget {
			out = append(out, c)
		}
	}
	for _, c := range reported.Conditions {
		switch {
		case ownerOf(c.Type) == foreign:
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
