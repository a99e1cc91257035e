package podrunner

import (
	"fmt"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/podcache"
)

// strays plans to stop containers that should not run: containers that are not
// in the spec any more, containers with a newer instance, and containers
// outside of the current sandbox.
func (p *planner) strays() {
	for _, s := range p.live() {
		name := podcache.ContainerName(s)
		reason := Reason(fmt.Sprintf("Container %s was replaced by a newer container or sandbox", name))
		switch {
		case !p.inSpec(name):
			reason = notInSpec(name)
		case p.current(name) == s:
			continue
		}
		p.Kill = append(p.Kill, Kill{ID: s.GetId(), Name: name, Cause: CauseStray, Reason: reason})
	}
}

func notInSpec(name string) Reason {
	return Reason(fmt.Sprintf("Container %s is not in the pod's spec any more", name))
}

// inSpec reports whether the spec has a container of that name, of any kind.
func (p *planner) inSpec(name string) bool {
	_, known := p.kindOf(name)
	return known
}

// leftovers plans the removal of dead containers. keepCount determines how many
// of the newest instances of a container remain. leftovers also plans the
// removal of old sandboxes that are not ready and have no remaining container.
func (p *planner) leftovers() {
	seen, used := map[string]int{}, map[string]bool{}
	for _, s := range p.Status.Containers {
		if slices.ContainsFunc(p.Remove, func(r Remove) bool { return r.ID == s.GetId() }) {
			continue
		}
		name := podcache.ContainerName(s)
		keep, reason := p.keepCount(name)
		if seen[name]++; seen[name] > keep && dead(s) {
			p.Remove = append(p.Remove, Remove{ID: s.GetId(), Name: name, Reason: reason})
			continue
		}
		used[p.Status.SandboxOf[s.GetId()]] = true
	}
	for i, s := range p.Status.Sandboxes {
		// If an old sandbox is ready, this plan sets StopPod, so the Runner
		// stops the sandbox. The next plan removes the sandbox.
		if i > 0 && s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY && !used[s.GetId()] {
			p.Remove = append(p.Remove, Remove{ID: s.GetId(), Name: s.GetMetadata().GetName(), Sandbox: true, Reason: "a newer sandbox replaced this sandbox"})
		}
	}
}

// keepCount returns how many of the newest instances of a container remain, and
// the reason why older instances are removed. Usually two remain: the newest
// instance, and the instance before it, which the status shows as the last
// state. If the plan creates a new instance, one existing instance remains. If
// the container is not in the spec, no instance remains.
func (p *planner) keepCount(name string) (n int, reason Reason) {
	switch {
	case !p.inSpec(name):
		return 0, notInSpec(name)
	case slices.ContainsFunc(p.Start, func(s Start) bool { return s.Name == name && s.ID == "" }):
		return 1, "newer instances of this container are kept"
	default:
		return 2, "newer instances of this container are kept"
	}
}
