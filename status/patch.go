package status

import (
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Patch returns the strategic merge patch that makes the status of base into next,
// nil if there is nothing to do. It names base's UID and, if it has one, its
// resource version, so that it is refused with a conflict by an object that is
// another one or has moved on. What [Merge] leaves to others is never in it. Neither
// input is modified.
func Patch(base *corev1.Pod, next *corev1.PodStatus) ([]byte, error) {
	shown, err := runtime.DefaultUnstructuredConverter.ToUnstructured(own(&base.Status))
	if err != nil {
		return nil, fmt.Errorf("convert the status that the API server shows: %w", err)
	}
	wanted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(own(next))
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

// object is a JSON object, by the names of its fields.
type object = map[string]any

const conditionsField = "conditions"

// The directives of a strategic merge patch: the API merges some lists with what is
// there, by a key, and does otherwise only where the patch asks for it.
const (
	directive = "$patch"
	replace   = "replace"
	remove    = "delete"
)

// diff returns the fields that differ. A field that next does not have becomes null,
// which removes it. The API merges objects field by field, and replaces lists but for
// those that are named here.
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

// diffConditions returns the conditions that differ, each with its type, by which the
// API merges them, and the fields that do.
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
