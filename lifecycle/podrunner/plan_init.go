package podrunner

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// initContainers plans the init container whose turn it is, keeps up the
// sidecars before it, and says whether all have had their turn.
func (p *planner) initContainers() bool {
	all := p.Pod.Spec.InitContainers
	turn := p.initTurn()
	for i := range all[:turn] {
		if podspec.IsSidecar(&all[i]) {
			p.container(&all[i], Sidecar, p.here(all[i].Name))
		}
	}
	for i := range all[turn:] {
		c := &all[turn+i]
		s := p.here(c.Name)
		if !completed(c, s) {
			p.container(c, kindOf(c, true), s)
			if !p.started(c, s) {
				return false
			}
		}
	}
	return true
}

// initTurn returns the index of the init container that was last begun, as many
// as there are when the pod is initialized. Those before it have had their turn,
// even if the runtime has forgotten them.
func (p *planner) initTurn() (turn int) {
	all := p.Pod.Spec.InitContainers
	if p.initialized() {
		return len(all)
	}
	for i := range all {
		if p.here(all[i].Name) != nil {
			turn = i
		}
	}
	return turn
}

// completed reports whether s, an init container that is to end, has ended well. One
// that was OOM killed has not, even if it exited with 0.
func completed(c *corev1.Container, s *runtimeapi.ContainerStatus) bool {
	return !podspec.IsSidecar(c) && s != nil && exited(s) && s.GetExitCode() == 0 && s.GetReason() != "OOMKilled"
}

// started says whether s is a sidecar that others need not wait for any more: it
// runs, if only until it is replaced, and its startup probe, if any, has succeeded.
func (p *planner) started(c *corev1.Container, s *runtimeapi.ContainerStatus) bool {
	if !podspec.IsSidecar(c) || s == nil || !running(s) {
		return false
	}
	return c.StartupProbe == nil || p.Probes == nil || p.Probes(s.GetId()).Started
}

// ephemeralContainers plans those that never ran. The start of one that was made
// but not begun is its first.
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
		case s != nil && s != p.here(c.Name):
			continue // it was made for a sandbox that is gone
		case s != nil:
			instead = again(&start, s, false)
		}
		p.start(c, start, instead)
	}
}

// ran says whether any instance of that name was started, as far as anybody knows.
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
