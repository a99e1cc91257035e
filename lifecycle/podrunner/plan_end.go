package podrunner

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// hasEnded reports whether the pod has ended. This is so in two cases:
//   - An init container has failed for good.
//   - [planner.done] is true for every regular container. If no new sandbox is
//     needed, there must also be no running container for which
//     [planner.keepsAlive] is true.
func (p *planner) hasEnded() bool {
	if failed, _ := p.initFailed(); failed != nil {
		return true
	}
	if p.CreateSandbox == "" && slices.ContainsFunc(p.live(), p.keepsAlive) {
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

// keepsAlive reports whether the pod counts as running as long as s runs. This
// is so for init containers that must end, for containers that are not in the
// spec, and for old instances of regular containers. For the current instance
// of a regular container, [planner.done] decides instead.
func (p *planner) keepsAlive(s *runtimeapi.ContainerStatus) bool {
	name := podcache.ContainerName(s)
	kind, known := p.kindOf(name)
	return !known || kind == Init || kind == Regular && p.current(name) != s
}

// kindOf returns the kind of the container with the given name, and reports
// whether the spec has this container.
func (p *planner) kindOf(name string) (ContainerKind, bool) {
	for c, init := range podspec.Containers(&p.Pod.Spec) {
		if c.Name == name {
			return kindOf(c, init), true
		}
	}
	return Ephemeral, slices.ContainsFunc(p.Pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

// stopReason returns why an ended pod must be stopped, or "" if nothing of the
// pod runs.
func (p *planner) stopReason() Reason {
	failed, code := p.initFailed()
	switch {
	case !p.runs():
		return ""
	case failed != nil:
		return Reason(fmt.Sprintf("init container %s failed with exit code %d and is not restarted", failed.Name, code))
	case p.CreateSandbox != "":
		return p.CreateSandbox + " and no container is restarted"
	case slices.ContainsFunc(p.Pod.Spec.Containers, func(c corev1.Container) bool { s := p.current(c.Name); return s != nil && running(s) }):
		return "every container has ended or fails a probe, and none is restarted"
	default:
		return "every container has ended and none is restarted"
	}
}

// done reports whether a regular container has ended or fails a probe, and will
// not be restarted. If the pod is being deleted and has a usable sandbox, a
// container that does not run counts as ended, because it is not started any
// more.
func (p *planner) done(c *corev1.Container) bool {
	if s := p.current(c.Name); s != nil && running(s) {
		cause, _ := p.replaceCause(c, Regular, s)
		return cause.probe() && !restartsAfterProbe(p.Pod, c)
	}
	if p.CreateSandbox == "" && p.Pod.DeletionTimestamp != nil {
		return true
	}
	code, ended := p.outcome(p.Status.Container(c.Name))
	return ended && !podspec.ShouldRestart(p.Pod, c, code)
}

// outcome reports whether s has ended, and returns its exit code. If s was lost
// with its sandbox, its end was not observed. s then counts as killed, as in
// the pod's status. With restartPolicy Never, s is not started again, because s
// may have completed its work. If a requested restart replaces the sandbox of
// s, s does not count as ended, because its container starts again.
func (p *planner) outcome(s *runtimeapi.ContainerStatus) (exitCode int32, ended bool) {
	switch {
	case s == nil || unstarted(s) || p.isReplaced(s):
		return 0, false
	case exited(s):
		return s.GetExitCode(), true
	default:
		return killed, p.lost(s)
	}
}

// lost reports whether s was lost with its sandbox: s is in an earlier sandbox,
// or a new sandbox is needed.
func (p *planner) lost(s *runtimeapi.ContainerStatus) bool {
	return p.CreateSandbox != "" || p.Status.SandboxOf[s.GetId()] != p.Status.Sandboxes[0].GetId()
}

// killed is the exit code of a container whose end was not observed: 128 +
// SIGKILL.
const killed = 137

// initFailed returns the first init container that has failed and will not be
// restarted, and its exit code. It returns nil if no init container has failed
// for good. A container in an unknown state counts as failed, as in the
// kubelet. It has no exit code, so its restart policy decides and its rules are
// ignored. In a pod that is being deleted, only sidecars restart after they have
// ended.
func (p *planner) initFailed() (*corev1.Container, int32) {
	if p.initialized() {
		return nil, 0
	}
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		s := p.Status.Container(c.Name)
		if s != nil && unknown(s) && !p.isReplaced(s) {
			if !restartsAfterProbe(p.Pod, c) {
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

// initialized reports whether the current sandbox has a regular container that
// runs or was created but not started. All init containers have then succeeded,
// and all sidecars have started, even if they were removed from the runtime. As
// in the kubelet, a regular container that has ended does not count.
func (p *planner) initialized() bool {
	return slices.ContainsFunc(p.Pod.Spec.Containers, func(c corev1.Container) bool {
		s := p.current(c.Name)
		return s != nil && (running(s) || unstarted(s))
	})
}
