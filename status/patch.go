package status

import (
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Patch returns the strategic merge patch that changes the status of base to the next
// status, or nil if they do not differ. The patch contains the UID of base and, if set,
// the resource version of base. With these, the API server rejects the patch with a
// conflict if the object was replaced or has changed. The patch never contains fields or
// conditions of other writers (see [Merge]). Neither base nor next is modified.
func Patch(base *corev1.Pod, next *corev1.PodStatus) ([]byte, error) {
	shown, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ownFields(&base.Status))
	if err != nil {
		return nil, fmt.Errorf("convert the status from the API server: %w", err)
	}
	wanted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ownFields(next))
	if err != nil {
		return nil, fmt.Errorf("convert the status that the node reports: %w", err)
	}
	conditions := diffConditions(conditionsOf(shown), conditionsOf(wanted))
	delete(shown, conditionsField)
	delete(wanted, conditionsField)
	changes := diff(shown, wanted)
	if len(conditions) > 0 {
		changes[conditionsField] = conditions
	}
	if len(changes) == 0 {
		return nil, nil
	}
	metadata := object{"uid": base.UID}
	if base.ResourceVersion != "" {
		metadata["resourceVersion"] = base.ResourceVersion
	}
	body, err := json.Marshal(object{"metadata": metadata, "status": changes})
	if err != nil {
		return nil, fmt.Errorf("marshal patch: %w", err)
	}
	return body, nil
}

// object is a JSON object.
type object = map[string]any

const conditionsField = "conditions"

// The directives of a strategic merge patch. Without a directive, the API server merges some
// lists with the existing lists, by a key.
const (
	directive = "$patch"
	replace   = "replace"
	remove    = "delete"
)

// diff returns the fields that differ. A field that is missing in next becomes null, so that the
// API server removes the field. The API server merges objects field by field. It replaces all
// lists of these objects except podIPs and hostIPs. It merges these two lists, or replaces them
// if the patch has the directive replace.
func diff(old, next object) object {
	changes := object{}
	for name, was := range old {
		if was != nil && next[name] == nil {
			changes[name] = nil
		}
	}
	for name, now := range next {
		was := old[name]
		if now == nil || reflect.DeepEqual(was, now) {
			continue
		}
		if before, isObject := was.(object); isObject {
			now = diff(before, now.(object))
		} else if was != nil && (name == "podIPs" || name == "hostIPs") {
			now = append([]any{object{directive: replace}}, now.([]any)...)
		}
		changes[name] = now
	}
	return changes
}

// diffConditions returns the conditions that differ, each with its type, which is the merge
// key, and the fields that differ. For a condition that is missing in next, it returns the type
// and the directive to delete the condition.
func diffConditions(old, next []any) (changes []object) {
	before, after := byType(old), byType(next)
	for _, c := range next {
		kind := c.(object)["type"]
		if changed := diff(before[kind], after[kind]); len(changed) > 0 {
			changed["type"] = kind
			changes = append(changes, changed)
		}
	}
	for _, c := range old {
		if kind := c.(object)["type"]; after[kind] == nil {
			changes = append(changes, object{directive: remove, "type": kind})
		}
	}
	return changes
}

func conditionsOf(status object) []any {
	conditions, _ := status[conditionsField].([]any)
	return conditions
}

func byType(conditions []any) map[any]object {
	types := map[any]object{}
	for _, c := range conditions {
		types[c.(object)["type"]] = c.(object)
	}
	return types
}
