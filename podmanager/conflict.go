package podmanager

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Conflict is a pod that a [Merge] leaves out because another pod has its UID or its
// name. Conflicts can be compared with ==.
type Conflict struct {
	// Source defines the pod.
	Source string
	// Pod and UID are those of the pod that is left out.
	Pod types.NamespacedName
	UID types.UID
	// UIDHolder is the source of the pod that has this UID, empty if none has.
	UIDHolder string
	// NameHolder is the source of the pod that has this name, empty if none has.
	NameHolder string
}

// String returns the pod, its source, and the sources that have its UID and its name.
func (c Conflict) String() string {
	holder := ""
	switch {
	case c.UIDHolder == "":
		holder = fmt.Sprintf("source %s has a pod of this name", c.NameHolder)
	case c.NameHolder == "":
		holder = fmt.Sprintf("source %s has a pod of this UID", c.UIDHolder)
	case c.UIDHolder == c.NameHolder:
		holder = fmt.Sprintf("source %s has a pod of this UID and name", c.UIDHolder)
	default:
		holder = fmt.Sprintf("source %s has a pod of this UID, and source %s one of this name", c.UIDHolder, c.NameHolder)
	}
	return fmt.Sprintf("pod %s (UID %s) of source %s is left out: %s", c.Pod, c.UID, c.Source, holder)
}

// attrs are the attributes of a line in the log.
func (c Conflict) attrs() []any {
	return []any{
		"pod", c.Pod.String(), "podUID", string(c.UID), "source", c.Source,
		"uidHolder", c.UIDHolder, "nameHolder", c.NameHolder,
	}
}

// without returns the conflicts of list that are not in other.
func without(list, other []Conflict) (rest []Conflict) {
	known := make(map[Conflict]bool, len(other))
	for _, c := range other {
		known[c] = true
	}
	for _, c := range list {
		if !known[c] {
			rest = append(rest, c)
		}
	}
	return rest
}

// claim is what only one pod can have: a UID, or a name among pods or among mirrors.
type claim struct {
	uid    types.UID
	mirror bool
	name   types.NamespacedName
}

func claims(pod *corev1.Pod) [2]claim {
	return [2]claim{{uid: pod.UID}, {mirror: podspec.IsMirror(pod), name: nameOf(pod)}}
}

// merged is what all sources together define.
type merged struct {
	pods      []*corev1.Pod
	held      map[claim]string // the source that each claim belongs to
	conflicts []Conflict
}

// merge chooses the pods that count: first those whose source had both their name and
// their UID before, then those whose source had one of the two, then the others; each
// time in the order of sources.
func merge(sources []string, defined map[string][]*corev1.Pod, before map[claim]string) merged {
	m := merged{held: make(map[claim]string)}
	chosen := make(map[*corev1.Pod]bool)
	for had := 2; had >= 0; had-- {
		for _, source := range sources {
			for _, pod := range defined[source] {
				c := claims(pod)
				if holds(before, source, c) == had && m.held[c[0]] == "" && m.held[c[1]] == "" {
					chosen[pod] = true
					m.held[c[0]], m.held[c[1]] = source, source
				}
			}
		}
	}
	for _, source := range sources {
		for _, pod := range defined[source] {
			if chosen[pod] {
				m.pods = append(m.pods, pod)
				delete(chosen, pod) // a source may give the same object twice
				continue
			}
			c := claims(pod)
			m.conflicts = append(m.conflicts, Conflict{
				Source: source, Pod: nameOf(pod), UID: pod.UID,
				UIDHolder: m.held[c[0]], NameHolder: m.held[c[1]],
			})
		}
	}
	return m
}

// holds returns how many of the claims are the source's.
func holds(held map[claim]string, source string, claims [2]claim) (n int) {
	for _, c := range claims {
		if held[c] == source {
			n++
		}
	}
	return n
}
