package lifecycle

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// FitsResources adds the pod's requests to the amounts that the other pods use,
// and compares the sum with the node's allocatable amounts. It returns a
// failure for each resource that the node has too little of. The order is:
// pods, CPU, memory, ephemeral storage, then the other resources by name. Each
// of the other pods uses the amounts of [podspec.AllocatedResources]. A pod
// without requests fits if the node has fewer pods than its maximum.
// FitsResources is pure.
//
// FitsResources ignores an extended resource that the node does not list,
// because the cluster or a driver (DRA) provides it. It also ignores a resource
// that a driver provides according to the pod's status.
func FitsResources(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) (failures []AdmissionFailure) {
	allocatable := node.Status.Allocatable
	places, count := allocatable.Pods().Value(), int64(0)
	for _, other := range others {
		if other != nil {
			count++
		}
	}
	if count+1 > places {
		failures = append(failures, insufficient(corev1.ResourcePods, 1, count, places))
	}
	asked := podspec.Requests(withoutForeign(pod, allocatable))
	names := counted(asked)
	if len(names) == 0 {
		return failures
	}
	used := map[corev1.ResourceName]int64{}
	for _, other := range others {
		if other == nil {
			continue
		}
		held := podspec.AllocatedResources(other)
		for _, name := range names {
			used[name] = plus(used[name], amount(held, name))
		}
	}
	for _, name := range names {
		want, capacity := amount(asked, name), amount(allocatable, name)
		if want > capacity-used[name] {
			failures = append(failures, insufficient(name, want, used[name], capacity))
		}
	}
	return failures
}

func insufficient(name corev1.ResourceName, requested, used, capacity int64) AdmissionFailure {
	return AdmissionFailure{
		Reason: InsufficientResourcePrefix + string(name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			name, requested, used, capacity),
		Resource: name, Requested: requested, Used: used, Capacity: capacity,
	}
}

// amount returns the amount of a resource as an integer, like the kubelet: CPU
// in millicores, other resources in their own unit. A negative amount counts as
// zero. An amount that an int64 cannot hold counts as the largest int64; in the
// kubelet it overflows.
func amount(list corev1.ResourceList, name corev1.ResourceName) int64 {
	q, scale := list[name], quantity.Scale(0)
	if name == corev1.ResourceCPU {
		scale = quantity.Milli
	}
	if q.Cmp(*quantity.NewScaledQuantity(math.MaxInt64, scale)) >= 0 {
		return math.MaxInt64
	}
	return max(0, q.ScaledValue(scale))
}

// plus returns a + b for amounts that are not negative, at most the largest
// int64.
func plus(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }

// counted returns the resources in list with an amount above zero that the
// scheduler counts: CPU, memory and ephemeral storage, then the scalar
// resources by name.
func counted(list corev1.ResourceList) (names []corev1.ResourceName) {
	first := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	for _, name := range first {
		if amount(list, name) > 0 {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if isScalar(name) && amount(list, name) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// isScalar reports whether the scheduler counts the resource as a scalar
// resource.
func isScalar(name corev1.ResourceName) bool {
	return isExtended(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(string(name), corev1.ResourceAttachableVolumesPrefix) || isPrefixedNative(name)
}

// isExtended reports whether the resource is an extended resource, which
// Kubernetes itself does not define.
func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !isPrefixedNative(name) &&
		!strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}

func isPrefixedNative(name corev1.ResourceName) bool {
	return strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// withoutForeign returns a copy of the pod without the requests that
// [FitsResources] ignores. It returns the pod itself if there are no such
// requests.
func withoutForeign(pod *corev1.Pod, allocatable corev1.ResourceList) *corev1.Pod {
	inits, initsChanged := ownRequests(pod, pod.Spec.InitContainers, allocatable)
	mains, mainsChanged := ownRequests(pod, pod.Spec.Containers, allocatable)
	if !initsChanged && !mainsChanged {
		return pod
	}
	own := *pod
	own.Spec.InitContainers, own.Spec.Containers = inits, mains
	return &own
}

func ownRequests(pod *corev1.Pod, all []corev1.Container, allocatable corev1.ResourceList) (own []corev1.Container, changed bool) {
	own = all
	for i := range all {
		c := &all[i]
		foreign := func(name corev1.ResourceName) bool {
			_, known := allocatable[name]
			return isExtended(name) && !known || servedByDriver(pod, c.Name, name)
		}
		r := corev1.ResourceRequirements{Requests: without(c.Resources.Requests, foreign), Limits: without(c.Resources.Limits, foreign)}
		if len(r.Requests) == len(c.Resources.Requests) && len(r.Limits) == len(c.Resources.Limits) {
			continue
		}
		if !changed {
			own, changed = slices.Clone(all), true
		}
		own[i].Resources = r // also without the limits: a missing request defaults to the limit
	}
	return own, changed
}

// without returns a copy of the list that lacks the names for which drop
// returns true. It returns the list itself if drop returns false for every
// name.
func without(list corev1.ResourceList, drop func(corev1.ResourceName) bool) corev1.ResourceList {
	var rest corev1.ResourceList
	for name := range list {
		if !drop(name) {
			continue
		}
		if rest == nil {
			rest = maps.Clone(list)
		}
		delete(rest, name)
	}
	if rest == nil {
		return list
	}
	return rest
}

// draPrefix is the prefix of resource names that are device classes (KEP-5004).
const draPrefix = "deviceclass.resource.kubernetes.io/"

// servedByDriver reports whether, according to the pod's status, the container
// gets the resource from a driver (DRA).
func servedByDriver(pod *corev1.Pod, container string, name corev1.ResourceName) bool {
	claim := pod.Status.ExtendedResourceClaimStatus
	if claim == nil || !isExtended(name) && !strings.HasPrefix(string(name), draPrefix) {
		return false
	}
	for _, m := range claim.RequestMappings {
		if m.ContainerName == container && m.ResourceName == string(name) {
			return true
		}
	}
	return false
}
