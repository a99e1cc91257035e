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

// ProbeResults is what probes found of one instance of a container. The zero
// value is that of one whose startup probe has not succeeded yet.
type ProbeResults struct {
	// Started says that its startup probe has succeeded. It does not matter where
	// there is none.
	Started bool
	// StartupFailed and LivenessFailed say that the probe failed as often as it
	// may. Both matter only while the instance runs.
	StartupFailed, LivenessFailed bool
}

// container plans what to do with c, whose newest instance in the sandbox is s,
// nil if there is none.
func (p *planner) container(c *corev1.Container, kind ContainerKind, s *runtimeapi.ContainerStatus) {
	last := p.Status.Container(c.Name)
	start := Start{Name: c.Name, Kind: kind, Reason: "it has not run yet", After: p.lastEnd(c.Name)}
	if last != nil {
		start.Attempt = uint32(podcache.RestartCount(last)) + 1
		start.Reason = "its sandbox is new"
	} else if p.Attempts != nil {
		if start.Attempt = p.Attempts(c.Name); start.Attempt > 0 {
			start.Reason = "it has run before, but is gone"
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
		instead = again(&start, s, changed(c, s))
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

// start plans the start of c, and before it the removals, unless it backs off.
func (p *planner) start(c *corev1.Container, start Start, instead []Remove) {
	if start.After.IsZero() || !p.backsOff(c, start.After) {
		p.Remove = append(p.Remove, instead...)
		p.Start = append(p.Start, start)
	}
}

// again completes the start of s, which was made but never ran: as the same attempt, at
// once, in its place if it can't be used any more. One that was broken off backs off like one
// that ended: not the first time, but its agent may never have the time that it takes.
func again(start *Start, s *runtimeapi.ContainerStatus, changed bool) (instead []Remove) {
	start.Attempt = uint32(podcache.RestartCount(s))
	if podcache.BrokenOff(s) {
		start.Reason = "its start was broken off"
		return []Remove{{ID: s.GetId(), Name: start.Name, Reason: start.Reason}}
	}
	start.Reason, start.After = "it was created but not started", time.Time{}
	if changed {
		return []Remove{{ID: s.GetId(), Name: start.Name, Reason: "it was never started and its definition changed"}}
	}
	start.ID = s.GetId()
	return nil
}

// replace plans the end of s, which runs, if something is wrong with it, and
// says whether another one is to start in its place.
func (p *planner) replace(c *corev1.Container, start *Start, s *runtimeapi.ContainerStatus) bool {
	cause, what := p.wrong(c, start.Kind, s)
	if cause == CauseNone {
		return false
	}
	again := !cause.probe() || comesAgain(p.Pod, c)
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

// wrong says why s, which runs, can't go on as it is: what is wrong with its
// definition counts before what its probes say. Nothing is wrong with an init container
// that is to end, and with a sidecar only its startup probe until it has started.
func (p *planner) wrong(c *corev1.Container, kind ContainerKind, s *runtimeapi.ContainerStatus) (cause Cause, what string) {
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

// comesAgain says whether c is started again after its probe had it killed. No
// rule is asked: there is no exit code yet.
func comesAgain(pod *corev1.Pod, c *corev1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	return pod.Spec.RestartPolicy != corev1.RestartPolicyNever
}

// unknownReason is the kubelet's, word for word.
func unknownReason(kind ContainerKind) Reason {
	if kind == Init || kind == Sidecar {
		return `Init container is in "unknown" state, try killing it before restart`
	}
	return `Container is in "unknown" state, try killing it before restart`
}

// backsOff records that c must wait, if it must.
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

// changed says whether s was made from another version of c. Of a container that a
// kubelet made only name and image are known. One that carries no hash at all is left
// alone: who made it keeps none.
func changed(c *corev1.Container, s *runtimeapi.ContainerStatus) bool {
	if was, ok := s.GetAnnotations()[crilabels.Definition]; ok {
		return was != podspec.ContainerHash(c)
	}
	was, ok := s.GetAnnotations()[crilabels.Hash]
	return ok && was != podspec.KubeletHash(c)
}

// RestartKey is the key of a container's restart back-off. A change of the
// container's spec starts afresh, also one of its resources, such as of the memory
// limit for which it was OOM killed.
func RestartKey(pod *corev1.Pod, c *corev1.Container) string {
	return string(pod.UID) + "/" + c.Name + "/" + podspec.ContainerHash(c) + "/" + c.Resources.String()
}
