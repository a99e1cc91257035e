package status

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Equal reports whether a and b, statuses of pod, are the same, so that a reader of
// one need not be sent the other. It sees both as [Normalize] would make them, without
// making them so: fractions of seconds, the part of a message that would be cut off and
// the order of containers do not matter. Nor do conditions of other writers,
// times and generations within conditions, and the status of resource claims,
// which others write. Neither is modified.
func Equal(pod *corev1.Pod, a, b *corev1.PodStatus) bool {
	share := messageShare(pod)
	return a.Phase == b.Phase && a.Reason == b.Reason && sameText(a.Message, b.Message) &&
		a.ObservedGeneration == b.ObservedGeneration && a.QOSClass == b.QOSClass &&
		a.NominatedNodeName == b.NominatedNodeName && a.Resize == b.Resize &&
		a.HostIP == b.HostIP && slices.Equal(a.HostIPs, b.HostIPs) &&
		a.PodIP == b.PodIP && slices.Equal(a.PodIPs, b.PodIPs) &&
		sameOptionalTime(a.StartTime, b.StartTime) &&
		sameQuantities(a.AllocatedResources, b.AllocatedResources) &&
		sameResources(a.Resources, b.Resources) &&
		sameConditions(a.Conditions, b.Conditions) && sameConditions(b.Conditions, a.Conditions) &&
		sameContainers(a.ContainerStatuses, b.ContainerStatuses, share) &&
		sameContainers(a.InitContainerStatuses, b.InitContainerStatuses, share) &&
		sameContainers(a.EphemeralContainerStatuses, b.EphemeralContainerStatuses, share)
}

// sameConditions says whether b has every condition of a that is not foreign.
func sameConditions(a, b []corev1.PodCondition) bool {
	for i := range a {
		x := &a[i]
		if owner(x.Type) == foreign {
			continue
		}
		y := Condition(b, x.Type)
		if y == nil || x.Status != y.Status || x.Reason != y.Reason || !sameText(x.Message, y.Message) {
			return false
		}
	}
	return true
}

// sameContainers compares two lists. They almost always have the same order;
// only where they have not are they sorted, in copies.
func sameContainers(a, b []corev1.ContainerStatus, share int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name {
			a, b = slices.Clone(a), slices.Clone(b)
			slices.SortStableFunc(a, byName)
			slices.SortStableFunc(b, byName)
			break
		}
	}
	for i := range a {
		if !sameContainer(&a[i], &b[i], share) {
			return false
		}
	}
	return true
}

func sameContainer(a, b *corev1.ContainerStatus, share int) bool {
	return a.Name == b.Name && a.Ready == b.Ready && a.RestartCount == b.RestartCount &&
		a.Image == b.Image && a.ImageID == b.ImageID && a.ContainerID == b.ContainerID &&
		sameOptional(a.Started, b.Started) && sameOptional(a.StopSignal, b.StopSignal) &&
		sameState(&a.State, &b.State, share) &&
		sameState(&a.LastTerminationState, &b.LastTerminationState, share) &&
		sameQuantities(a.AllocatedResources, b.AllocatedResources) &&
		sameResources(a.Resources, b.Resources) &&
		sameUser(a.User, b.User) &&
		sameRare(a.VolumeMounts, b.VolumeMounts) &&
		sameRare(a.AllocatedResourcesStatus, b.AllocatedResourcesStatus)
}

func sameState(a, b *corev1.ContainerState, share int) bool {
	if !sameWaiting(a.Waiting, b.Waiting) || (a.Running == nil) != (b.Running == nil) || (a.Terminated == nil) != (b.Terminated == nil) {
		return false
	}
	if a.Running != nil && !sameTime(a.Running.StartedAt, b.Running.StartedAt) {
		return false
	}
	if a.Terminated == nil {
		return true
	}
	x, y := a.Terminated, b.Terminated
	return x.ExitCode == y.ExitCode && x.Signal == y.Signal && x.Reason == y.Reason && x.ContainerID == y.ContainerID &&
		sameTime(x.StartedAt, y.StartedAt) && sameTime(x.FinishedAt, y.FinishedAt) &&
		(x.Message == y.Message || cut(x.Message, share) == cut(y.Message, share))
}

func sameWaiting(a, b *corev1.ContainerStateWaiting) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Reason == b.Reason && sameText(a.Message, b.Message))
}

func sameText(a, b string) bool { return a == b || valid(a) == valid(b) }

func sameTime(a, b metav1.Time) bool { return a.Unix() == b.Unix() }

func sameOptionalTime(a, b *metav1.Time) bool {
	return (a == nil) == (b == nil) && (a == nil || sameTime(*a, *b))
}

func sameOptional[T comparable](a, b *T) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

func sameResources(a, b *corev1.ResourceRequirements) bool {
	if a == nil || b == nil {
		return a == b
	}
	return sameQuantities(a.Requests, b.Requests) && sameQuantities(a.Limits, b.Limits) && slices.Equal(a.Claims, b.Claims)
}

func sameQuantities(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, x := range a {
		if y, ok := b[name]; !ok || x.Cmp(y) != 0 {
			return false
		}
	}
	return true
}

func sameUser(a, b *corev1.ContainerUser) bool {
	if a == nil || b == nil || a.Linux == nil || b.Linux == nil {
		return (a == nil) == (b == nil) && (a == nil || a.Linux == b.Linux)
	}
	return a.Linux.UID == b.Linux.UID && a.Linux.GID == b.Linux.GID &&
		slices.Equal(a.Linux.SupplementalGroups, b.Linux.SupplementalGroups)
}

// sameRare compares, by reflection, lists that few containers have. There are no
// times or quantities in them, which would need more than that.
func sameRare[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b))
}
