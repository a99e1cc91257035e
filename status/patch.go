package status

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Patch returns the strategic merge patch that makes the status of base into next,
// nil if there is nothing to do. It names base's UID and, if it has one, its
// resource version, so that it is refused with a conflict by an object that is
// another one or has moved on. What [Merge] leaves to others is never in it. The
// diff is of typed values: neither status is marshalled whole. Neither input is
// modified.
func Patch(base *corev1.Pod, next *corev1.PodStatus) ([]byte, error) {
	changes := diff(&base.Status, next)
	if len(changes) == 0 {
		return nil, nil
	}
	metadata := map[string]any{"uid": base.UID}
	if base.ResourceVersion != "" {
		metadata["resourceVersion"] = base.ResourceVersion
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata, "status": changes})
	if err != nil {
		return nil, fmt.Errorf("marshal patch: %w", err)
	}
	return body, nil
}

// fields collects the changed fields of an object, by their JSON names. A field
// that is now empty becomes null, which removes it.
type fields map[string]any

func setField[T comparable](f fields, name string, old, next T) {
	var zero T
	switch {
	case old == next:
	case next == zero:
		f[name] = nil
	default:
		f[name] = next
	}
}

// diff returns the fields of a status that differ.
func diff(old, next *corev1.PodStatus) fields {
	f := fields{}
	setField(f, "phase", old.Phase, next.Phase)
	setField(f, "reason", old.Reason, next.Reason)
	setField(f, "message", old.Message, next.Message)
	setField(f, "nominatedNodeName", old.NominatedNodeName, next.NominatedNodeName)
	setField(f, "hostIP", old.HostIP, next.HostIP)
	setField(f, "podIP", old.PodIP, next.PodIP)
	setField(f, "qosClass", old.QOSClass, next.QOSClass)
	setField(f, "resize", old.Resize, next.Resize)
	setField(f, "observedGeneration", old.ObservedGeneration, next.ObservedGeneration)
	if !sameOptionalTime(old.StartTime, next.StartTime) {
		f["startTime"] = next.StartTime
	}
	diffQuantities(f, "allocatedResources", old.AllocatedResources, next.AllocatedResources)
	diffResources(f, old.Resources, next.Resources)
	diffContainers(f, "containerStatuses", old.ContainerStatuses, next.ContainerStatuses)
	diffContainers(f, "initContainerStatuses", old.InitContainerStatuses, next.InitContainerStatuses)
	diffContainers(f, "ephemeralContainerStatuses", old.EphemeralContainerStatuses, next.EphemeralContainerStatuses)
	if !slices.Equal(old.HostIPs, next.HostIPs) {
		f["hostIPs"] = replaced(old.HostIPs, next.HostIPs)
	}
	if !slices.Equal(old.PodIPs, next.PodIPs) {
		f["podIPs"] = replaced(old.PodIPs, next.PodIPs)
	}
	if conditions := diffConditions(old.Conditions, next.Conditions); len(conditions) > 0 {
		f["conditions"] = conditions
	}
	return f
}

// diffContainers: the API replaces these lists whole.
func diffContainers(f fields, name string, old, next []corev1.ContainerStatus) {
	same := slices.EqualFunc(old, next, func(a, b corev1.ContainerStatus) bool { return sameContainer(&a, &b, math.MaxInt) })
	switch {
	case same:
	case len(next) == 0:
		f[name] = nil
	default:
		f[name] = next
	}
}

// diffQuantities: the API merges these by name.
func diffQuantities(f fields, name string, old, next corev1.ResourceList) {
	if sameQuantities(old, next) {
		return
	}
	if len(next) == 0 {
		f[name] = nil
		return
	}
	changed := fields{}
	for resource := range old {
		if _, ok := next[resource]; !ok {
			changed[string(resource)] = nil
		}
	}
	for resource, quantity := range next {
		if was, ok := old[resource]; !ok || was.Cmp(quantity) != 0 {
			changed[string(resource)] = quantity
		}
	}
	f[name] = changed
}

func diffResources(f fields, old, next *corev1.ResourceRequirements) {
	switch {
	case sameResources(old, next):
		return
	case next == nil:
		f["resources"] = nil
		return
	case old == nil:
		f["resources"] = next
		return
	}
	changed := fields{}
	diffQuantities(changed, "limits", old.Limits, next.Limits)
	diffQuantities(changed, "requests", old.Requests, next.Requests)
	if !slices.Equal(old.Claims, next.Claims) {
		changed["claims"] = next.Claims // a list that the API replaces
	}
	f["resources"] = changed
}

// The API merges these lists with what is there, by a key; directives make it
// replace a list or remove an element.
const (
	directive = "$patch"
	replace   = "replace"
	remove    = "delete"
)

// replaced returns what makes the list old into next, in next's order.
func replaced[T any](old, next []T) any {
	if len(next) == 0 {
		return nil
	}
	if len(old) == 0 {
		return next
	}
	out := make([]any, 0, len(next)+1)
	out = append(out, fields{directive: replace})
	for _, item := range next {
		out = append(out, item)
	}
	return out
}

// diffConditions returns the conditions of ours that differ, each with its type,
// by which the API merges them, and the fields that do. Conditions of others are
// not looked at.
func diffConditions(old, next []corev1.PodCondition) (out []fields) {
	for i := range next {
		c := &next[i]
		if owner(c.Type) == foreign {
			continue
		}
		was := Condition(old, c.Type)
		if was == nil {
			was = &corev1.PodCondition{}
		}
		f := fields{}
		setField(f, "status", was.Status, c.Status)
		setField(f, "reason", was.Reason, c.Reason)
		setField(f, "message", was.Message, c.Message)
		setField(f, "observedGeneration", was.ObservedGeneration, c.ObservedGeneration)
		if !sameTime(was.LastProbeTime, c.LastProbeTime) {
			f["lastProbeTime"] = c.LastProbeTime
		}
		if !sameTime(was.LastTransitionTime, c.LastTransitionTime) {
			f["lastTransitionTime"] = c.LastTransitionTime
		}
		if len(f) > 0 || was.Type == "" {
			f["type"] = c.Type
			out = append(out, f)
		}
	}
	for i := range old {
		if c := &old[i]; owner(c.Type) != foreign && Condition(next, c.Type) == nil {
			out = append(out, fields{directive: remove, "type": c.Type})
		}
	}
	return out
}
