package podrunner

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// ProbeResults are the probe results of one instance of a container. The zero
// value means that the startup probe has not succeeded yet.
type ProbeResults struct {
	// Started reports whether the startup probe has succeeded. It is ignored if
	// the container has no startup probe.
	Started bool
	// StartupFailed and LivenessFailed report whether the probe has reached its
	// failure threshold. Both are used only while the instance runs.
	StartupFailed, LivenessFailed bool
}

// container plans the actions for c. s is the newest instance of c if this
// instance is in the current sandbox, else nil.
func (p *planner) container(c *corev1.Container, kind ContainerKind, s *runtimeapi.ContainerStatus) {
	last := p.Status.Container(c.Name)
	start := Start{Name: c.Name, Kind: kind, Reason: "it has not run yet", After: p.lastEnd(c.Name)}
	if last != nil {
		start.Attempt = uint32(podcache.RestartCount(last)) + 1
		start.Reason = "its sandbox is new"
	} else if p.Attempts != nil {
		if start.Attempt = p.Attempts(c.Name); start.Attempt > 0 {
			start.Reason = "it ran before, but is no longer in the runtime"
		}
	}
	var instead []Remove
	switch {
	case s == nil:
	case running(s):
		if !p.replace(c, &start, s) {
			return
		}
	case unstarted(s):
		instead = resumeStart(&start, s, changed(c, s))
	case exited(s):
		if !podspec.ShouldRestart(p.Pod, c, s.GetExitCode()) {
			return
		}
		start.Reason = Reason(fmt.Sprintf("it ended with exit code %d", s.GetExitCode()))
	default:
		start.Reason = "its state is unknown"
		p.Kill = append(p.Kill, Kill{ID: s.GetId(), Name: c.Name, Cause: CauseUnknownState, Reason: unknownReason(kind)})
	}
	p.start(c, start, instead)
}

// start plans the given removals and then the start of c. If c backs off, start
// only records that c waits.
func (p *planner) start(c *corev1.Container, start Start, instead []Remove) {
	if start.After.IsZero() || !p.backsOff(c, start.After) {
		p.Remove = append(p.Remove, instead...)
		p.Start = append(p.Start, start)
	}
}

// resumeStart changes the planned start so that it completes the start of s,
// which was created but never ran. The changed start has the attempt of s. If s
// can't be used any more, resumeStart returns the removal of s. If the start of
// s was interrupted, the next start backs off as if the container had ended.
// Without this back-off, a container whose start is always interrupted would be
// created again and again without a delay.
func resumeStart(start *Start, s *runtimeapi.ContainerStatus, changed bool) (instead []Remove) {
	start.Attempt = uint32(podcache.RestartCount(s))
	if podcache.StartInterrupted(s) {
		start.Reason = "its start was interrupted"
		return []Remove{{ID: s.GetId(), Name: start.Name, Reason: start.Reason}}
	}
	start.Reason, start.After = "it was created but not started", time.Time{}
	if changed {
		return []Remove{{ID: s.GetId(), Name: start.Name, Reason: "it was never started and its definition changed"}}
	}
	start.ID = s.GetId()
	return nil
}

// replace plans to stop the running container s if [planner.replaceCause]
// returns a cause. It reports whether another instance must then start.
func (p *planner) replace(c *corev1.Container, start *Start, s *runtimeapi.ContainerStatus) bool {
	cause, what := p.replaceCause(c, start.Kind, s)
	if cause == CauseNone {
		return false
	}
	again := !cause.probe() || restartsAfterProbe(p.Pod, c)
	reason := "Container " + c.Name + " " + what
	switch {
	case cause == CauseResize:
	case start.Kind == Sidecar:
		reason = "Init container " + c.Name + " " + what
	case again:
		reason += ", will be restarted"
	}
	start.Reason = Reason(reason)
	p.Kill = append(p.Kill, Kill{ID: s.GetId(), Name: c.Name, Cause: cause, Reason: start.Reason})
	return again
}

// replaceCause returns why the running container s must be stopped, or
// CauseNone. A changed definition takes precedence over a failed probe. An init
// container that must end is never stopped. A sidecar that has not started yet
// is stopped only if its startup probe has failed.
func (p *planner) replaceCause(c *corev1.Container, kind ContainerKind, s *runtimeapi.ContainerStatus) (cause Cause, what string) {
	var found ProbeResults
	if p.Probes != nil {
		found = p.Probes(s.GetId())
	}
	starting := kind == Sidecar && !p.started(c, s)
	switch {
	case kind == Init:
		return CauseNone, ""
	case !starting && changed(c, s):
		return CauseChanged, "definition changed"
	case !starting && c.LivenessProbe != nil && found.LivenessFailed:
		return CauseLiveness, "failed liveness probe"
	case c.StartupProbe != nil && found.StartupFailed:
		return CauseStartup, "failed startup probe"
	case !starting && p.resizeRestarts(c, s):
		return CauseResize, "resize requires restart"
	default:
		return CauseNone, ""
	}
}

// restartsAfterProbe reports whether c is started again after it was killed
// because of a failed probe. Restart rules are ignored, because the exit code
// is not known yet.
func restartsAfterProbe(pod *corev1.Pod, c *corev1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	return pod.Spec.RestartPolicy != corev1.RestartPolicyNever
}

// unknownReason returns the kubelet's message about a container in an unknown
// state.
func unknownReason(kind ContainerKind) Reason {
	if kind == Init || kind == Sidecar {
		return `Init container is in "unknown" state, try killing it before restart`
	}
	return `Container is in "unknown" state, try killing it before restart`
}

// backsOff reports whether c must wait for its restart back-off. If so,
// backsOff records this in the plan.
func (p *planner) backsOff(c *corev1.Container, since time.Time) bool {
	if p.Backoff == nil {
		return false
	}
	until, delay, waiting := p.Backoff(RestartKey(p.Pod, c), since)
	if !waiting {
		return false
	}
	p.wait(c.Name, lifecycle.CrashLoopBackOff, lifecycle.CrashLoopMessage(delay, c.Name, p.Pod))
	p.retry(until)
	return true
}

// changed reports whether s was created from another version of c. If a kubelet
// created s, only name and image are compared. If s has no hash, s counts as
// unchanged, because the agent that created s does not record hashes.
func changed(c *corev1.Container, s *runtimeapi.ContainerStatus) bool {
	if was, ok := s.GetAnnotations()[crilabels.Definition]; ok {
		return was != podspec.ContainerHash(c)
	}
	was, ok := s.GetAnnotations()[crilabels.Hash]
	return ok && was != podspec.KubeletHash(c)
}

// RestartKey returns the key of a container's restart back-off. Any change of
// the container's spec except its resize policy resets the back-off. Even a
// change of resources does, such as a higher memory limit after an OOM kill.
func RestartKey(pod *corev1.Pod, c *corev1.Container) string {
	return string(pod.UID) + "/" + c.Name + "/" + podspec.ContainerHash(c) + "/" + c.Resources.String()
}
