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

// RestartAll describes a restart of all containers in the pod's sandbox
// (KEP-5532).
type RestartAll struct {
	// Name is the container whose end requests the restart, and After is the
	// time at which that container ended. The restart back-off of the container
	// counts from After. If the container was removed, Name and After are zero.
	Name   string
	After  time.Time
	Reason Reason
}

// restartsAll reports whether a restart of all containers is in progress. This
// is so if the end of a container has requested the restart, now or before an
// earlier plan, and some containers are not removed yet. If the sandbox can't
// be used, a new sandbox is created first.
func (p *planner) restartsAll() bool {
	asked, left := p.Input.Restarting, false
	for c := range podspec.Containers(&p.Pod.Spec) {
		s := p.Status.Container(c.Name)
		asked, left = asked || !p.isReplaced(s) && requestsRestartAll(c, s), left || s != nil
	}
	return asked && left
}

// requestsRestartAll reports whether s has ended with an exit code for which
// the rules of c restart all containers.
func requestsRestartAll(c *corev1.Container, s *runtimeapi.ContainerStatus) bool {
	return s != nil && exited(s) && podspec.RestartsAll(c, s.GetExitCode())
}

// restartAll plans to stop and remove all containers except ephemeral
// containers. The next plan then finds an empty sandbox and starts the first
// init container. While the container that requested the restart backs off,
// containers are only stopped. The container that requested the restart is
// removed last, so that a restarted agent can continue the restart.
func (p *planner) restartAll() {
	p.RestartAll = &RestartAll{Reason: "a container that was removed from the runtime requested the restart"}
	var askers []Remove
	for c := range podspec.Containers(&p.Pod.Spec) {
		s := p.Status.Container(c.Name)
		if p.isReplaced(s) || !requestsRestartAll(c, s) {
			continue
		}
		if askers == nil {
			reason := Reason(fmt.Sprintf("container %s ended with exit code %d, for which all containers are restarted", c.Name, s.GetExitCode()))
			p.RestartAll = &RestartAll{Name: c.Name, After: endOf(s), Reason: reason}
			p.backsOff(c, endOf(s))
		}
		askers = append(askers, Remove{ID: s.GetId(), Name: c.Name, Reason: restartAllReason})
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
		p.RestartAll = nil // the requesting container backs off
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
		p.Remove = append(p.Remove, Remove{ID: s.GetId(), Name: name, Reason: restartAllReason})
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

// restartAllReason is the reason of the removals for a restart of all containers.
const restartAllReason Reason = "all containers are restarted"
