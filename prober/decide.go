package prober

import "time"

// facts are the input of plan.
type facts struct {
	kind Kind
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
	// poll: the state of the container is unknown, or the container is not running. The probe
	// stays even if an exited container will not run again: otherwise the next AddPod would add
	// the probe again, and the new probe would publish its result again.
	poll
	// idle: wait for a period, because no result is needed now.
	idle
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
	case t.State != Running:
		return poll
	case f.final, f.started == (f.kind == Startup):
		return idle
	case f.now.Before(f.eligible):
		return wait
	default:
		return proceed
	}
}
