package podmanager

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Conflict is a pod that a [Merge] ignores because another pod has its UID or its name.
// Conflicts can be compared with ==.
type Conflict struct {
	// Source is the name of the source that defines the ignored pod.
	Source string
	// Pod and UID identify the ignored pod.
	Pod types.NamespacedName
	UID types.UID
	// UIDHolder is the source of the delivered pod that has this UID. It is empty if no
	// delivered pod has this UID.
	UIDHolder string
	// NameHolder is the source of the delivered pod that has this name. It is empty if no
	// delivered pod has this name.
	NameHolder string
}

// String returns the pod, its source, and the sources that have its UID and its name.
func (c Conflict) String() string {
	holder := ""
	switch {
	case c.UIDHolder == "":
		holder = fmt.Sprintf("source %s has a pod with this name", c.NameHolder)
	case c.NameHolder == "":
		holder = fmt.Sprintf("source %s has a pod with this UID", c.UIDHolder)
	case c.UIDHolder == c.NameHolder:
		holder = fmt.Sprintf("source %s has a pod with this UID and name", c.UIDHolder)
	default:
		holder = fmt.Sprintf("source %s has a pod with this UID, and source %s has a pod with this name", c.UIDHolder, c.NameHolder)
	}
	return fmt.Sprintf("ignored pod %s (UID %s) of source %s: %s", c.Pod, c.UID, c.Source, holder)
}

// attrs returns c as log attributes.
func (c Conflict) attrs() []any {
	return []any{
		"pod", c.Pod.String(), "podUID", string(c.UID), "source", c.Source,
		"uidHolder", c.UIDHolder, "nameHolder", c.NameHolder,
	}
}

// without returns the conflicts in the first list that are not in the second list.
func without(list, other []Conflict) (missing []Conflict) {
	known := make(map[Conflict]bool, len(other))
	for _, c := range other {
		known[c] = true
	}
	for _, c := range list {
		if !known[c] {
			missing = append(missing, c)
		}
	}
	return missing
}

// podKey is a property that only one delivered pod can have: a UID, the name of a pod, or
// the name of a mirror pod.
type podKey struct {
	uid    types.UID
	mirror bool
	name   types.NamespacedName
}

func keysOf(pod *corev1.Pod) [2]podKey {
	return [2]podKey{{uid: pod.UID}, {mirror: podspec.IsMirror(pod), name: nameOf(pod)}}
}

// merged is the result of merging the pods of all sources.
type merged struct {
	pods      []*corev1.Pod
	owners    map[podKey]string // the source of the pod that has the key
	conflicts []Conflict
}

// merge chooses the pods to deliver. The last parameter has the owner of each key after
// the previous merge. merge chooses in this order:
//  1. pods whose source owned both their UID and their name,
//  2. pods whose source owned one of the two,
//  3. all other pods.
//
// Within each group, the order of sources decides.
func merge(sources []string, defined map[string][]*corev1.Pod, before map[podKey]string) merged {
	m := merged{owners: make(map[podKey]string, len(before))}
	chosen := make(map[*corev1.Pod]bool, len(before)/2)
	for owned := 2; owned >= 0; owned-- {
		for _, source := range sources {
			for _, pod := range defined[source] {
				c := keysOf(pod)
				if countOwned(before, source, c) == owned && m.owners[c[0]] == "" && m.owners[c[1]] == "" {
					chosen[pod] = true
					m.owners[c[0]], m.owners[c[1]] = source, source
				}
			}
		}
	}
	for _, source := range sources {
		for _, pod := range defined[source] {
			if chosen[pod] {
				m.pods = append(m.pods, pod)
				delete(chosen, pod) // if the source passes this object twice, the second is a conflict
				continue
			}
			c := keysOf(pod)
			m.conflicts = append(m.conflicts, Conflict{
				Source: source, Pod: nameOf(pod), UID: pod.UID,
				UIDHolder: m.owners[c[0]], NameHolder: m.owners[c[1]],
			})
		}
	}
	return m
}

// countOwned returns how many of the keys belong to the source.
func countOwned(owners map[podKey]string, source string, keys [2]podKey) (n int) {
	for _, k := range keys {
		if owners[k] == source {
			n++
		}
	}
	return n
}
