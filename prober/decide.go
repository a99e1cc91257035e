package prober

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// facts are the input of plan.
type facts struct {
	kind      Kind
	pod       *corev1.Pod
	container *corev1.Container
	// target is the state of the container. It is valid only if the field known is true.
	target Target
	known  bool
	// stopping means that the pod is terminating.
	stopping bool
	// final means that the result for this container is final. started means that the
	// startup probe of the container has succeeded or does not exist. For a startup probe,
	// started means that this probe has succeeded.
	final, started bool
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
	// poll: the state of the container is unknown, or the container does not exist yet.
	poll
	// idle: wait for a period, because no result is needed now.
	idle
	// fail: the container exists and is not running, but may run later, for example after a
	// restart. Nothing is counted.
	fail
	// failLast: the container has exited and will not run again. The probe is removed.
	failLast
	// drop: remove the probe, because it is not needed any more.
	drop
)

// plan returns what to do with a probe.
func plan(f facts) action {
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
	case f.final, f.started == (f.kind == Startup):
		return idle
	case f.now.Before(f.eligible):
		return wait
	default:
		return proceed
	}
}

// restarts reports whether an exited container may run again. The cause may be the restart
// policy of the pod, the container's own restart policy and rules, or a rule of any container
// of the pod with the action RestartAllContainers.
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
