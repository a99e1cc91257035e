package podrunner

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// initContainers plans the start of the next init container, and the restarts
// of sidecars that come before it. It reports whether the regular containers
// may start.
func (p *planner) initContainers() bool {
	all := p.Pod.Spec.InitContainers
	next := p.currentInit()
	for i := range all[:next] {
		if podspec.IsSidecar(&all[i]) {
			p.container(&all[i], Sidecar, p.current(all[i].Name))
		}
	}
	for i := range all[next:] {
		c := &all[next+i]
		s := p.current(c.Name)
		if !completed(c, s) {
			p.container(c, kindOf(c, true), s)
			if !p.started(c, s) {
				return false
			}
		}
	}
	return true
}

// currentInit returns the index of the last init container in spec order that
// has an instance in the current sandbox, or 0 if no init container has one. If
// the pod is initialized, currentInit returns the number of init containers.
// The init containers before this index have succeeded or, if they are
// sidecars, have started, even if they are no longer in the runtime.
func (p *planner) currentInit() (index int) {
	all := p.Pod.Spec.InitContainers
	if p.initialized() {
		return len(all)
	}
	for i := range all {
		if p.current(all[i].Name) != nil {
			index = i
		}
	}
	return index
}

// completed reports whether c is an init container that must end and its
// instance s has succeeded. A container that was OOM killed has not succeeded,
// even if its exit code is 0.
func completed(c *corev1.Container, s *runtimeapi.ContainerStatus) bool {
	return !podspec.IsSidecar(c) && s != nil && exited(s) && s.GetExitCode() == 0 && s.GetReason() != "OOMKilled"
}

// started reports whether c is a sidecar whose instance s runs and has passed
// its startup probe. If c has no startup probe, it has started as soon as s
// runs. When c has started, the next containers may start, even if s will be
// replaced.
func (p *planner) started(c *corev1.Container, s *runtimeapi.ContainerStatus) bool {
	if !podspec.IsSidecar(c) || s == nil || !running(s) {
		return false
	}
	return c.StartupProbe == nil || p.Probes == nil || p.Probes(s.GetId()).Started
}

// ephemeralContainers plans the starts of the ephemeral containers that have
// never run. If a container was created but not started, the plan starts the
// existing container.
func (p *planner) ephemeralContainers() {
	if p.CreateSandbox != "" {
		return
	}
	for i := range p.Pod.Spec.EphemeralContainers {
		c := podspec.Ephemeral(&p.Pod.Spec.EphemeralContainers[i])
		start := Start{Name: c.Name, Kind: Ephemeral, Reason: "it has not run yet", After: p.lastEnd(c.Name)}
		var instead []Remove
		switch s := p.Status.Container(c.Name); {
		case p.ran(c.Name):
			continue
		case s != nil && s != p.current(c.Name):
			continue // it was created in an earlier sandbox
		case s != nil:
			instead = resumeStart(&start, s, false)
		}
		p.start(c, start, instead)
	}
}

// ran reports whether an instance of the container with the given name has run.
// If the runtime has no instance, [Input].Attempts decides.
func (p *planner) ran(name string) bool {
	known := false
	for _, s := range p.Status.Containers {
		if podcache.ContainerName(s) == name {
			known = true
			if !unstarted(s) {
				return true
			}
		}
	}
	return !known && p.Attempts != nil && p.Attempts(name) > 0
}
