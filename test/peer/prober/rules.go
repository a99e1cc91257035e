package prober

import (
	"slices"
	"strings"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type scene = judge.Scene[world]

const inDoc = "prober/doc.go"

// stepRules returns the rules of prober/steps. The first that explains a difference counts.
func stepRules() []judge.Rule[world] {
	return slices.Concat(runRules(), restartRules(), endingRules(), eventRules(), workerRules())
}

// about returns the container that a fact is about, and the probes that decide it.
func about(fact string) (container string, kinds []prober.Kind) {
	subject, rest, _ := strings.Cut(fact, " ")
	container, what, _ := strings.Cut(rest, "/")
	switch {
	case subject == "kill":
		return container, []prober.Kind{prober.Liveness, prober.Startup}
	case what == "Started", what == "Startup":
		return container, []prober.Kind{prober.Startup}
	case what == "Readiness":
		return container, []prober.Kind{prober.Readiness}
	case what == "Ready":
		return container, []prober.Kind{prober.Readiness, prober.Startup}
	case what == "Liveness":
		return container, []prober.Kind{prober.Liveness}
	default:
		return "", nil
	}
}

// before returns our value before the step: nothing is announced, and the status is
// unchanged.
func before(s scene) string {
	if s.Step == 0 || strings.HasPrefix(s.Fact, "announced ") {
		return ""
	}
	return s.OursFacts[s.Step-1][s.Fact]
}

// lastOf returns the last step with an operation, or -1.
func lastOf(s scene, o op) int {
	for i := s.Step; i >= 0; i-- {
		if s.World.Steps[i].Op == o {
			return i
		}
	}
	return -1
}

// history returns the runtime after each step.
func (w world) history(last int) []node {
	n := newNode(w)
	var all []node
	for _, s := range w.Steps[:last+1] {
		if s.Op == opStart && s.Container < len(n.containers) && n.containers[s.Container].State == running {
			n.apply(step{Op: opExit, Container: s.Container})
		}
		n.apply(s)
		was := *n
		was.containers = slices.Clone(n.containers)
		all = append(all, was)
	}
	return all
}
