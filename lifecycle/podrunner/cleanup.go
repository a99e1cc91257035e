package podrunner

import (
	"fmt"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/podcache"
)

// strays plans to stop what runs and ought not to: containers that the spec does
// not name any more, and those of which a newer instance exists or which run
// beside the sandbox in use.
func (p *planner) strays() {
	for _, s := range p.live() {
		name := podcache.ContainerName(s)
		reason := Reason(fmt.Sprintf("Container %s was replaced by another", name))
		switch {
		case !p.inSpec(name):
			reason = notInSpec(name)
		case p.here(name) == s:
			continue
		}
		p.Kill = append(p.Kill, Kill{ID: s.GetId(), Name: name, Cause: CauseStray, Reason: reason})
	}
}

func notInSpec(name string) Reason {
	return Reason(fmt.Sprintf("Container %s is not in the pod's spec any more", name))
}

// inSpec says whether the spec has a container of that name, of any kind.
func (p *planner) inSpec(name string) bool {
	_, known := p.kindOf(name)
	return known
}

// leftovers plans the removal of dead containers but the newest of each name,
// which the status shows as the last state, and of sandboxes that are not ready
// and hold none of those.
func (p *planner) leftovers() {
	seen, used := map[string]int{}, map[string]bool{}
	for _, s := range p.Status.Containers {
		if slices.ContainsFunc(p.Remove, func(r Remove) bool { return r.ID == s.GetId() }) {
			continue
		}
		name := podcache.ContainerName(s)
		keep, reason := p.kept(name)
		if seen[name]++; seen[name] > keep && dead(s) {
			p.Remove = append(p.Remove, Remove{ID: s.GetId(), Name: name, Reason: reason})
			continue
		}
		used[p.Status.SandboxOf[s.GetId()]] = true
	}
	for i, s := range p.Status.Sandboxes {
		// Ready ones are stopped by StopPod; the plan after that removes them.
		if i > 0 && s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY && !used[s.GetId()] {
			p.Remove = append(p.Remove, Remove{ID: s.GetId(), Name: s.GetMetadata().GetName(), Sandbox: true, Reason: "a newer sandbox replaced it"})
		}
	}
}

// kept is how many instances of a name stay: the newest and the one before it,
// whose end is the last state; one fewer when a new one comes now. Why the others
// go is the reason.
func (p *planner) kept(name string) (n int, reason Reason) {
	switch {
	case !p.inSpec(name):
		return 0, notInSpec(name)
	case slices.ContainsFunc(p.Start, func(s Start) bool { return s.Name == name && s.ID == "" }):
		return 1, "newer ones of this name are kept"
	default:
		return 2, "newer ones of this name are kept"
	}
}
