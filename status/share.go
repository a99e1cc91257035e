package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// snapshot returns a normalized copy of next, as [Normalize] of a deep copy would
// be but for the conditions, which stay the caller's, that shares with old whatever they have in common. old must be normalized
// and is not written to, not even with what is there already: readers hold it.
// Most changes touch one condition or one container of many, so the copy of the
// rest would be all that a change costs.
func snapshot(pod *corev1.Pod, old *corev1.PodStatus, next corev1.PodStatus) corev1.PodStatus {
	share := messageShare(pod)
	next.StartTime = sharedTime(old.StartTime, next.StartTime)
	next.HostIPs = sharedSlice(old.HostIPs, next.HostIPs)
	next.PodIPs = sharedSlice(old.PodIPs, next.PodIPs)
	next.AllocatedResources = sharedQuantities(old.AllocatedResources, next.AllocatedResources)
	next.Resources = sharedResources(old.Resources, next.Resources)
	next.InitContainerStatuses = sharedContainers(old.InitContainerStatuses, next.InitContainerStatuses, share)
	next.ContainerStatuses = sharedContainers(old.ContainerStatuses, next.ContainerStatuses, share)
	next.EphemeralContainerStatuses = sharedContainers(old.EphemeralContainerStatuses, next.EphemeralContainerStatuses, share)
	sortStatuses(pod, &next)
	copyClaims(&next)
	return next
}

// copyClaims copies what others say of a pod's resource claims, in the few pods
// that have any.
func copyClaims(s *corev1.PodStatus) {
	if len(s.ResourceClaimStatuses)+len(s.NodeAllocatableResourceClaimStatuses) == 0 && s.ExtendedResourceClaimStatus == nil {
		return
	}
	claims := (&corev1.PodStatus{
		ResourceClaimStatuses:                s.ResourceClaimStatuses,
		ExtendedResourceClaimStatus:          s.ExtendedResourceClaimStatus,
		NodeAllocatableResourceClaimStatuses: s.NodeAllocatableResourceClaimStatuses,
	}).DeepCopy()
	s.ResourceClaimStatuses = claims.ResourceClaimStatuses
	s.ExtendedResourceClaimStatus = claims.ExtendedResourceClaimStatus
	s.NodeAllocatableResourceClaimStatuses = claims.NodeAllocatableResourceClaimStatuses
}

func sharedTime(old, next *metav1.Time) *metav1.Time {
	if next == nil {
		return nil
	}
	if old != nil && old.Unix() == next.Unix() {
		return old
	}
	next = next.DeepCopy()
	truncate(next)
	return next
}

func sharedSlice[T comparable](old, next []T) []T {
	if slices.Equal(old, next) && (old == nil) == (next == nil) {
		return old
	}
	return slices.Clone(next)
}

func sharedQuantities(old, next corev1.ResourceList) corev1.ResourceList {
	if old != nil && next != nil && sameQuantities(old, next) {
		return old
	}
	return next.DeepCopy()
}

func sharedResources(old, next *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if old != nil && sameResources(old, next) {
		return old
	}
	return next.DeepCopy()
}

// sharedContainers returns old if next says the same, else a list of its own, of
// containers that share with those of the same name. That the room for messages
// has not shrunk is part of saying the same.
func sharedContainers(old, next []corev1.ContainerStatus, share int) []corev1.ContainerStatus {
	if len(next) == 0 {
		return next
	}
	if sameContainers(old, next, share) && !slices.ContainsFunc(old, func(st corev1.ContainerStatus) bool {
		return tooLong(&st.State, share) || tooLong(&st.LastTerminationState, share)
	}) {
		return old
	}
	out := make([]corev1.ContainerStatus, len(next))
	var none corev1.ContainerStatus
	for i := range next {
		was := find(old, next[i].Name)
		if was == nil {
			was = &none
		}
		out[i] = sharedContainer(was, next[i], share)
	}
	return out
}

func sharedContainer(old *corev1.ContainerStatus, next corev1.ContainerStatus, share int) corev1.ContainerStatus {
	next.State = sharedState(&old.State, &next.State, share)
	next.LastTerminationState = sharedState(&old.LastTerminationState, &next.LastTerminationState, share)
	next.Started = sharedPointer(old.Started, next.Started)
	next.StopSignal = sharedPointer(old.StopSignal, next.StopSignal)
	next.AllocatedResources = sharedQuantities(old.AllocatedResources, next.AllocatedResources)
	next.Resources = sharedResources(old.Resources, next.Resources)
	if old.User != nil && sameUser(old.User, next.User) {
		next.User = old.User
	} else {
		next.User = next.User.DeepCopy()
	}
	if len(next.VolumeMounts)+len(next.AllocatedResourcesStatus) == 0 {
		return next
	}
	if sameRare(old.VolumeMounts, next.VolumeMounts) && sameRare(old.AllocatedResourcesStatus, next.AllocatedResourcesStatus) {
		next.VolumeMounts, next.AllocatedResourcesStatus = old.VolumeMounts, old.AllocatedResourcesStatus
		return next
	}
	rare := (&corev1.ContainerStatus{VolumeMounts: next.VolumeMounts, AllocatedResourcesStatus: next.AllocatedResourcesStatus}).DeepCopy()
	next.VolumeMounts, next.AllocatedResourcesStatus = rare.VolumeMounts, rare.AllocatedResourcesStatus
	return next
}

func sharedState(old, next *corev1.ContainerState, share int) corev1.ContainerState {
	if sameState(old, next, share) && !tooLong(old, share) {
		return *old
	}
	out := *next.DeepCopy()
	normalizeState(&out, share)
	return out
}

// tooLong says whether a message in state would have to be cut.
func tooLong(state *corev1.ContainerState, share int) bool {
	return state.Terminated != nil && len(state.Terminated.Message) > share
}

func sharedPointer[T comparable](old, next *T) *T {
	if next == nil {
		return nil
	}
	if old != nil && *old == *next {
		return old
	}
	return new(*next)
}
