package podrunner

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// over says whether the pod has run to its end: no regular container of it will
// start again, and nothing that holds it up runs in a usable sandbox.
func (p *planner) over() bool {
	if failed, _ := p.initFailed(); failed != nil {
		return true
	}
	if p.CreateSandbox == "" && slices.ContainsFunc(p.live(), p.holds) {
		return false
	}
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		if !p.done(c) {
			return false
		}
	}
	return true
}

// holds says whether a pod is not over while s runs: sidecars and ephemeral
// containers run for the sake of others, and a regular one in its place counts as
// [planner.done] has it.
func (p *planner) holds(s *runtimeapi.ContainerStatus) bool {
	name := podcache.ContainerName(s)
	kind, known := p.kindOf(name)
	return !known || kind == Init || kind == Regular && p.here(name) != s
}

// kindOf returns the kind of the spec's container of that name, if it has one.
func (p *planner) kindOf(name string) (ContainerKind, bool) {
	for c, init := range podspec.Containers(&p.Pod.Spec) {
		if c.Name == name {
			return kindOf(c, init), true
		}
	}
	return Ephemeral, slices.ContainsFunc(p.Pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

// overReason says why a pod that is over still has to be stopped, if it has.
func (p *planner) overReason() Reason {
	failed, code := p.initFailed()
	switch {
	case !p.runs():
		return ""
	case failed != nil:
		return Reason(fmt.Sprintf("init container %s failed with exit code %d and is not restarted", failed.Name, code))
	case p.CreateSandbox != "":
		return p.CreateSandbox + " and no container is restarted"
	case slices.ContainsFunc(p.Pod.Spec.Containers, func(c corev1.Container) bool { s := p.here(c.Name); return s != nil && running(s) }):
		return "every container has ended or fails a probe, and none is restarted"
	default:
		return "every container has ended and none is restarted"
	}
}

// done reports whether a regular container has ended or fails a probe, and is not to
// run again. In the sandbox of a pod that is being deleted none is started.
func (p *planner) done(c *corev1.Container) bool {
	if s := p.here(c.Name); s != nil && running(s) {
		cause, _ := p.wrong(c, Regular, s)
		return cause.probe() && !comesAgain(p.Pod, c)
	}
	if p.CreateSandbox == "" && p.Pod.DeletionTimestamp != nil {
		return true
	}
	code, ended := p.outcome(p.Status.Container(c.Name))
	return ended && !podspec.ShouldRestart(p.Pod, c, code)
}

// outcome says whether s has ended, and with which exit code. Nobody sees the end
// of a container that goes down with its sandbox; as in the pod's status it
// counts as killed. With Never it is not started again: it may have done its work.
func (p *planner) outcome(s *runtimeapi.ContainerStatus) (exitCode int32, ended bool) {
	switch {
	case s == nil || unstarted(s):
		return 0, false
	case exited(s):
		return s.GetExitCode(), true
	default:
		return killed, p.lost(s)
	}
}

// lost says whether s is not in the sandbox that is in use.
func (p *planner) lost(s *runtimeapi.ContainerStatus) bool {
	return p.CreateSandbox != "" || p.Status.SandboxOf[s.GetId()] != p.Status.Sandboxes[0].GetId()
}

// killed is the exit code of what ended unseen: 128 and SIGKILL.
const killed = 137

// initFailed returns the init container that failed for good, and its exit code;
// nil if none did. One in an unknown state has failed, as in the kubelet; it has no
// exit code, so that its policy alone counts. None but sidecars is started again in a
// pod that is being deleted.
func (p *planner) initFailed() (*corev1.Container, int32) {
	if p.initialized() {
		return nil, 0
	}
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		s := p.Status.Container(c.Name)
		if s != nil && unknown(s) {
			if !comesAgain(p.Pod, c) {
				return c, killed
			}
			continue
		}
		code, ended := p.outcome(s)
		again := podspec.IsSidecar(c) || p.Pod.DeletionTimestamp == nil && podspec.ShouldRestart(p.Pod, c, code)
		if ended && !completed(c, s) && !again {
			return c, code
		}
	}
	return nil, 0
}

// initialized reports whether a regular container runs in the sandbox that is in use,
// or was made there: that is only done when all init containers have ended well, and
// they may have been removed since. One that has ended proves nothing in the kubelet.
func (p *planner) initialized() bool {
	return slices.ContainsFunc(p.Pod.Spec.Containers, func(c corev1.Container) bool {
		s := p.here(c.Name)
		return s != nil && (running(s) || unstarted(s))
	})
}
