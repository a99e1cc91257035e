package podrunner

import (
	"fmt"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// RestartAll is the order to begin a pod anew in its sandbox (KEP-5532).
type RestartAll struct {
	// Name is the container whose end asks for it, After when it ended. It counts
	// against that container's restart back-off.
	Name   string
	After  time.Time
	Reason Reason
}

// restartAll plans the removal of every container if one ended in a way that
// its rules answer with that. The plan after it finds a sandbox with nothing in
// it and begins with the first init container. Nothing runs while the one that
// asked for it backs off. It goes last, so that an agent that dies half-way knows
// what it was at; ephemeral containers are stopped but stay, and so never run again.
func (p *planner) restartAll() bool {
	var askers []Remove
	for c := range podspec.Containers(&p.Pod.Spec) {
		s := p.here(c.Name)
		if s == nil || !exited(s) || !podspec.RestartsAll(c, s.GetExitCode()) {
			continue
		}
		reason := Reason(fmt.Sprintf("container %s ended with exit code %d, for which all are restarted", c.Name, s.GetExitCode()))
		if askers == nil {
			p.RestartAll = &RestartAll{Name: c.Name, After: endOf(s), Reason: reason}
			p.backsOff(c, endOf(s))
		}
		askers = append(askers, Remove{ID: s.GetId(), Name: c.Name, Reason: beginsAnew})
	}
	if askers == nil {
		return false
	}
	for _, s := range p.live() {
		name := podcache.ContainerName(s)
		p.Kill = append(p.Kill, Kill{
			ID: s.GetId(), Name: name, Cause: CauseRestartAll,
			Reason: Reason(fmt.Sprintf("Container %s is restarted with all others", name)),
		})
	}
	if !p.RetryAt.IsZero() {
		p.RestartAll = nil // its turn comes
		return true
	}
	isAsker := func(s *runtimeapi.ContainerStatus) bool {
		return slices.ContainsFunc(askers, func(r Remove) bool { return r.ID == s.GetId() })
	}
	for _, s := range p.Status.Containers {
		name := podcache.ContainerName(s)
		if kind, known := p.kindOf(name); known && kind == Ephemeral || isAsker(s) {
			continue
		}
		p.Remove = append(p.Remove, Remove{ID: s.GetId(), Name: name, Reason: beginsAnew})
	}
	p.Remove = append(p.Remove, askers...)
	for c := range podspec.Containers(&p.Pod.Spec) {
		p.wait(c.Name, RestartingAllContainers, string(p.RestartAll.Reason))
	}
	return true
}

// beginsAnew is why everything of a pod is removed that is to begin anew.
const beginsAnew Reason = "all containers are restarted"
