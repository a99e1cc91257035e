package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// mergeStatus returns the status to report. It merges api, the status in the API server, with own,
// the status that the agent has computed. The rules for the fields are:
//
//   - conditions of types that the agent's status does not have are copied from api. All
//     other conditions are the agent's. Their transition time is copied from api if their field
//     Status is the same there;
//   - extended resources that the agent's status does not have are copied from api, because another
//     client offers them. As in the kubelet, their whole capacity is allocatable;
//   - VolumesAttached and Config are copied from api;
//   - the addresses, the runtime handlers, the features, and each value of NodeInfo that describes
//     the machine or the runtime are copied from api if the agent's status does not have them. The
//     images are copied from api if the agent has not listed its images yet;
//   - all other fields are copied from the agent's status.
//
// The heartbeat time of each condition of the agent is set to now. mergeStatus does not modify its
// arguments.
func mergeStatus(api, own *corev1.NodeStatus, now metav1.Time) corev1.NodeStatus {
	merged := *own.DeepCopy()
	merged.Conditions = mergeConditions(api.Conditions, merged.Conditions, now)
	merged.Capacity, merged.Allocatable = mergeResources(api, &merged)
	merged.VolumesAttached, merged.Config = api.VolumesAttached, api.Config
	if len(merged.Addresses) == 0 {
		merged.Addresses = api.Addresses
	}
	if merged.Images == nil {
		merged.Images = api.Images
	}
	if merged.RuntimeHandlers == nil { // the runtime is not ready
		merged.RuntimeHandlers = api.RuntimeHandlers
	}
	if merged.Features == nil {
		merged.Features = api.Features
	}
	for _, f := range []struct{ own, api *string }{
		{&merged.NodeInfo.MachineID, &api.NodeInfo.MachineID},
		{&merged.NodeInfo.SystemUUID, &api.NodeInfo.SystemUUID},
		{&merged.NodeInfo.BootID, &api.NodeInfo.BootID},
		{&merged.NodeInfo.KernelVersion, &api.NodeInfo.KernelVersion},
		{&merged.NodeInfo.OSImage, &api.NodeInfo.OSImage},
		{&merged.NodeInfo.ContainerRuntimeVersion, &api.NodeInfo.ContainerRuntimeVersion},
	} {
		if *f.own == "" {
			*f.own = *f.api
		}
	}
	return merged
}

// mergeConditions returns the conditions of other clients, followed by the agent's own.
func mergeConditions(api, own []corev1.NodeCondition, now metav1.Time) []corev1.NodeCondition {
	find := func(list []corev1.NodeCondition, kind corev1.NodeConditionType) int {
		return slices.IndexFunc(list, func(c corev1.NodeCondition) bool { return c.Type == kind })
	}
	var merged []corev1.NodeCondition
	for _, c := range api {
		if find(own, c.Type) < 0 {
			merged = append(merged, c)
		}
	}
	for _, c := range own {
		c.LastHeartbeatTime = now
		if i := find(api, c.Type); i >= 0 && api[i].Status == c.Status {
			c.LastTransitionTime = api[i].LastTransitionTime
		}
		merged = append(merged, c)
	}
	return merged
}

// mergeResources returns the capacity and the allocatable resources of the agent's status, with the
// extended resources of other clients.
func mergeResources(api, own *corev1.NodeStatus) (capacity, allocatable corev1.ResourceList) {
	capacity, allocatable = own.Capacity, own.Allocatable
	for name, quantity := range api.Capacity {
		if _, ok := capacity[name]; ok || !isExtended(name) {
			continue
		}
		if capacity == nil {
			capacity = corev1.ResourceList{}
		}
		if allocatable == nil {
			allocatable = corev1.ResourceList{}
		}
		capacity[name], allocatable[name] = quantity.DeepCopy(), quantity.DeepCopy()
	}
	return capacity, allocatable
}

// isExtended reports whether another client may offer a resource of this name.
func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// reconciledLabels returns the labels of an existing node that a restarted agent updates.
func reconciledLabels() []string {
	return []string{
		corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable,
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceTypeStable,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType,
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	}
}

// reconcileLabels copies labels from the initial node to an existing node: the labels that a
// restarted agent updates.
func reconcileLabels(existing, initial *corev1.Node) {
	setLabels(existing, initial, reconciledLabels())
}

// requireLabels copies labels from the agent's node to an existing node: the labels that every node
// needs.
func requireLabels(existing, own *corev1.Node) {
	setLabels(existing, own, []string{corev1.LabelOSStable, corev1.LabelArchStable})
}

func setLabels(to, from *corev1.Node, names []string) {
	labels := maps.Clone(to.Labels)
	for _, name := range names {
		if value := from.Labels[name]; value != "" && labels[name] != value {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[name] = value
		}
	}
	to.Labels = labels
}

// patchNode returns the strategic merge patch of the status subresource that changes base to next,
// or nil if they do not differ. The patch contains the UID of base. If another node of the same
// name was created in the meantime, the API server rejects the patch with a conflict.
func patchNode(base, next *corev1.Node) ([]byte, error) {
	// The API server would merge lists of addresses by their type, and lose one of two internal
	// addresses. So the patch replaces the list.
	addresses := next.Status.Addresses
	sameAddresses := slices.Equal(base.Status.Addresses, addresses)
	next = next.DeepCopy()
	next.Status.Addresses = base.Status.Addresses

	was, errWas := json.Marshal(base)
	now, errNow := json.Marshal(next)
	if err := errors.Join(errWas, errNow); err != nil {
		return nil, fmt.Errorf("marshal node %s: %w", base.Name, err)
	}
	body, err := strategicpatch.CreateTwoWayMergePatch(was, now, corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("compute the patch of node %s: %w", base.Name, err)
	}
	patch := map[string]map[string]any{}
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, fmt.Errorf("unmarshal the patch of node %s: %w", base.Name, err)
	}
	if !sameAddresses {
		list := []any{map[string]string{"$patch": "replace"}}
		for _, a := range addresses {
			list = append(list, a)
		}
		setField(patch, "status", "addresses", list)
	}
	if len(patch) == 0 {
		return nil, nil
	}
	setField(patch, "metadata", "uid", base.UID)
	return json.Marshal(patch)
}

// setField sets a field of a patch.
func setField(patch map[string]map[string]any, section, name string, value any) {
	if patch[section] == nil {
		patch[section] = map[string]any{}
	}
	patch[section][name] = value
}
