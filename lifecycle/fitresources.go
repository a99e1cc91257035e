package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// FitsResources returns which of the node's allocatable resources are too small
// for the pod beside others: pods, cpu, memory, ephemeral storage, then the rest
// by name. Of the others, what they hold counts: see [podspec.Held]. A pod that
// asks for nothing needs only its place among the pods. It is pure.
//
// An extended resource that the node has never heard of is not counted: it is
// served by the cluster or by a driver (DRA), and so is one that the pod's status
// says is served by a driver.
func FitsResources(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) (misfits []Misfit) {
	allocatable := node.Status.Allocatable
	places, count := allocatable.Pods().Value(), int64(0)
	for _, other := range others {
		if other != nil {
			count++
		}
	}
	if count+1 > places {
		misfits = append(misfits, insufficient(corev1.ResourcePods, 1, count, places))
	}
	asked := podspec.Requests(withoutForeign(pod, allocatable))
	names := counted(asked)
	if len(names) == 0 {
		return misfits
	}
	used := map[corev1.ResourceName]int64{}
	for _, other := range others {
		if other == nil {
			continue
		}
		held := podspec.Held(other)
		for _, name := range names {
			used[name] += amount(held, name)
		}
	}
	for _, name := range names {
		want, capacity := amount(asked, name), amount(allocatable, name)
		if want > capacity-used[name] {
			misfits = append(misfits, insufficient(name, want, used[name], capacity))
		}
	}
	return misfits
}

func insufficient(name corev1.ResourceName, requested, used, capacity int64) Misfit {
	return Misfit{
		Reason: InsufficientResourcePrefix + string(name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			name, requested, used, capacity),
		Resource: name, Requested: requested, Used: used, Capacity: capacity,
	}
}

// amount is the number in which the kubelet counts a resource.
func amount(list corev1.ResourceList, name corev1.ResourceName) int64 {
	q := list[name]
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// counted returns the resources in list that are more than nothing and that a
// node has a countable amount of, in order.
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

// isScalar says whether the scheduler counts the resource though it is none of
// the basic ones.
func isScalar(name corev1.ResourceName) bool {
	return isExtended(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(string(name), corev1.ResourceAttachableVolumesPrefix) || isPrefixedNative(name)
}

// isExtended says whether the resource is one that somebody added to Kubernetes.
func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !isPrefixedNative(name) &&
		!strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}

func isPrefixedNative(name corev1.ResourceName) bool {
	return strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// withoutForeign returns the pod without the requests that are none of this
// node's business; it is the same pod if there are none.
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
		own[i].Resources = r // its limits too: a missing request is read from them
	}
	return own, changed
}

// without returns list without what drop names; it is the same list if that is
// nothing.
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

// draPrefix starts the names of resources that are device classes (KEP-5004).
const draPrefix = "deviceclass.resource.kubernetes.io/"

// servedByDriver says whether the container gets the resource from a driver (DRA),
// as the pod's status says.
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
