package plan

import (
	"fmt"
	"slices"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func stray() deviation {
	return deviation{
		Rule: rule("stop of pods with superfluous containers", judge.KubeletDefect, "If a running container is no longer in the spec, the kubelet can't stop the pod; this package stops the pod."),
		state: func(s *State) (changed bool) {
			for _, c := range slices.Clone(s.Containers) {
				if s.container(c.ID) != nil && !s.inSpec(c.Name) {
					s.hide(c.Name)
					changed = true
				}
			}
			return changed
		},
	}
}

func straysStopped() deviation {
	return deviation{
		Rule: rule("superfluous containers stopped", judge.Deliberate, "This package stops containers that are no longer in the spec, and older instances of a container that still run. The kubelet checks only the newest instance of each name in the spec."),
		facts: func(s *State, f judge.Facts) {
			if f["stop pod"] != "" {
				return
			}
			for _, c := range slices.Concat(s.Containers, s.hidden) {
				if f["restart all"] != "" && c.Name != keeper && (!s.inSpec(c.Name) || !s.isKind(c.Name, podrunner.Ephemeral)) {
					f["remove "+c.ID] = "yes"
				}
				switch {
				case !live(c) || c.Name == keeper || f["kill "+c.ID] != "":
				case f["restart all"] != "" && s.isKind(c.Name, podrunner.Ephemeral):
				case f["restart all"] != "":
					f["kill "+c.ID] = fmt.Sprintf("Container %s is restarted with all others (2s)", c.Name)
				case !s.inSpec(c.Name):
					f["kill "+c.ID] = fmt.Sprintf("Container %s is not in the pod's spec any more (30s)", c.Name)
				case s.here(c.Name) != c:
					f["kill "+c.ID] = fmt.Sprintf("Container %s was replaced by a newer container or sandbox (30s)", c.Name)
				}
			}
		},
	}
}
