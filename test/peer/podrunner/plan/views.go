package plan

import (
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// here returns the newest instance of a container if it is in the newest sandbox.
func (s *State) here(name string) *Container {
	c := s.newest(name)
	if b := s.box(); c == nil || b == nil || c.Box != b.ID {
		return nil
	}
	return c
}

// names returns the names in the pod's spec, in the order in which they are started.
func (s *State) names() (names []string) {
	for i := range s.Pod.Spec.EphemeralContainers {
		names = append(names, s.Pod.Spec.EphemeralContainers[i].Name)
	}
	for i := range s.Pod.Spec.InitContainers {
		names = append(names, s.Pod.Spec.InitContainers[i].Name)
	}
	for i := range s.Pod.Spec.Containers {
		names = append(names, s.Pod.Spec.Containers[i].Name)
	}
	return names
}

// order recomputes the order of the starts after some were added or removed.
func order(s *State, f judge.Facts) {
	var starts []string
	for _, name := range s.names() {
		if f["start "+name] != "" {
			starts = append(starts, name)
		}
	}
	delete(f, "start order")
	if len(starts) > 1 {
		f["start order"] = strings.Join(starts, " ")
	}
}

// forget deletes the facts whose names begin with one of the prefixes.
func forget(f judge.Facts, prefixes ...string) {
	for name := range f {
		for _, prefix := range prefixes {
			if strings.HasPrefix(name, prefix) {
				delete(f, name)
			}
		}
	}
}

// live reports whether c was running or in an unknown state before the rules changed it.
func live(c *Container) bool {
	if c.was != nil {
		c = c.was
	}
	return c.State == running || c.State == unknownState
}

// isKind reports whether the spec has a container of that name and kind.
func (s *State) isKind(name string, k kind) bool {
	spec, is := s.spec(name)
	return spec != nil && is == k
}

func (s *State) inSpec(name string) bool {
	spec, _ := s.spec(name)
	return spec != nil
}

// newSandbox reports whether the kubelet's plan creates another sandbox.
func newSandbox(f judge.Facts) bool { return f["sandbox"] != "" }
