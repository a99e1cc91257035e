package podrunner

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// RestartAll is the order to begin a pod anew in its sandbox (KEP-5532).
type RestartAll struct {
	// Name is the container whose end asks for it, After when it ended. It counts
	// against that container's restart back-off. Both are zero if it is gone.
	Name   string
	After  time.Time
	Reason Reason
}

// restartsAll reports whether all containers are being restarted: the end of one asks
// for it, or did before, and some are not removed yet. If their sandbox dies, another
// is made first.
func (p *planner) restartsAll() bool {
	asked, left := p.Input.Restarting, false
	for c := range podspec.Containers(&p.Pod.Spec) {
		s := p.Status.Container(c.Name)
		asked, left = asked || asksForAll(c, s), left || s != nil
	}
	return asked && left
}

// asksForAll reports whether s has ended so that the rules of c restart all containers.
func asksForAll(c *corev1.Container, s *runtimeapi.ContainerStatus) bool {
	return s != nil && exited(s) && podspec.RestartsAll(c, s.GetExitCode())
}

// restartAll plans the removal of every container. The plan after it finds a sandbox
// with nothing in it and begins with the first init container. Nothing runs while the
// one that asked for it backs off. It goes last, so that an agent that dies half-way
// knows what it was at; ephemeral containers go on.
func (p *planner) restartAll() {
	p.RestartAll = &RestartAll{Reason: "a container that has been removed asked for it"}
	var askers []Remove
	for c := range podspec.Containers(&p.Pod.Spec) {
		s := p.Status.Container(c.Name)
		if !asksForAll(c, s) {
			continue
		}
		if askers == nil {
			reason := Reason(fmt.Sprintf("container %s ended with exit code %d, for which all are restarted", c.Name, s.GetExitCode()))
			p.RestartAll = &RestartAll{Name: c.Name, After: endOf(s), Reason: reason}
			p.backsOff(c, endOf(s))
		}
		askers = append(askers, Remove{ID: s.GetId(), Name: c.Name, Reason: beginsAnew})
	}
	for _, s := range p.live() {
		name := podcache.ContainerName(s)
		if p.isEphemeral(name) {
			continue
		}
		p.Kill = append(p.Kill, Kill{
			ID: s.GetId(), Name: name, Cause: CauseRestartAll,
			Reason: Reason(fmt.Sprintf("Container %s is restarted with all others", name)),
		})
	}
	if !p.RetryAt.IsZero() {
		p.RestartAll = nil // its turn comes
		return
	}
	isAsker := func(s *runtimeapi.ContainerStatus) bool {
		return slices.ContainsFunc(askers, func(r Remove) bool { return r.ID == s.GetId() })
	}
	for _, s := range p.Status.Containers {
		name := podcache.ContainerName(s)
		if p.isEphemeral(name) || isAsker(s) {
			continue
		}
		p.Remove = append(p.Remove, Remove{ID: s.GetId(), Name: name, Reason: beginsAnew})
	}
	p.Remove = append(p.Remove, askers...)
	for c := range podspec.Containers(&p.Pod.Spec) {
		p.wait(c.Name, RestartingAllContainers, string(p.RestartAll.Reason))
	}
}

func (p *planner) isEphemeral(name string) bool {
	kind, known := p.kindOf(name)
	return known && kind == Ephemeral
}

// beginsAnew is why everything of a pod is removed that is to begin anew.
const beginsAnew Reason = "all containers are restarted"
