package prober

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// facts are what a decision about a probe rests on.
type facts struct {
	kind      Kind
	pod       *corev1.Pod
	container *corev1.Container
	// target is what is known of the container, if known.
	target Target
	known  bool
	// stopping says that the pod is being ended.
	stopping bool
	// hold says that a verdict ended this container's probing, started that its
	// startup probe, if any, has succeeded.
	hold, started bool
	// eligible is when the initial delay is over.
	eligible, now time.Time
}

// action is what to do with a probe.
type action uint8

const (
	// proceed with the run.
	proceed action = iota
	// wait until the initial delay is over.
	wait
	// poll: the container is not running yet.
	poll
	// rest for a period: the container has no decision pending.
	rest
	// fail: the container has ended and will run again. Nothing is counted.
	fail
	// failLast: it has ended and will not run again.
	failLast
	// drop the probe: there is nothing to probe any more.
	drop
)

// decide says what to do with a probe.
func decide(f facts) action {
	t := &f.target
	switch {
	case !f.known:
		return poll
	case t.Ended:
		return drop
	case t.ID == "":
		return poll
	case f.stopping && f.kind != Readiness:
		return drop
	case t.State == Exited && !restarts(f.pod, f.container, t.ExitCode):
		return failLast
	case t.State != Running:
		return fail
	case f.hold, f.started == (f.kind == Startup):
		return rest
	case f.now.Before(f.eligible):
		return wait
	default:
		return proceed
	}
}

// restarts says whether a container that has ended may run again: by its own
// rules and policy, or because the end of some container restarts all.
func restarts(pod *corev1.Pod, c *corev1.Container, exitCode int32) bool {
	if podspec.ShouldRestart(pod, c, exitCode) {
		return true
	}
	for other := range podspec.Containers(&pod.Spec) {
		for _, r := range other.RestartPolicyRules {
			if r.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}
