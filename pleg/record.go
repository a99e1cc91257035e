package pleg

import (
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/backoff"
	"github.com/kubeparts/kubeparts/podcache"
)

// Back-off of a pod whose inspection failed.
const (
	firstBackOff = time.Second
	maxBackOff   = time.Minute
)

// record is the state of one pod in the generator. It exists from the pod's first
// listing until its last event is delivered.
type record struct {
	uid types.UID
	// delivered is the listing up to which all events have been delivered.
	delivered []object
	// seen is the newest listing of the pod and seenAt its time. complete means that it
	// is part of a global listing. seen is replaced, never modified.
	seen     []object
	seenAt   time.Time
	complete bool
	// good is the result of the last successful inspection.
	good snapshot
	// contradictedAt is the start of a listing in which an object had another state than
	// in good; zero if they agree. Either the state has changed in between or an answer of
	// the runtime was wrong. The next listing decides.
	contradictedAt time.Time
	// busy means that an inspection is in progress, reinspect that one was requested.
	busy, reinspect bool
	// failures counts the consecutive failed inspections, err is the cause of the last,
	// and retryAt is the earliest time of the next attempt.
	failures int
	err      error
	retryAt  time.Time
}

// fail records a failed inspection and the time of the next attempt.
func (r *record) fail(err error, now time.Time) {
	r.err = errors.Unwrap(err) // the runtime's error, without our prefix
	r.retryAt = now.Add(backoff.After(r.failures, firstBackOff, maxBackOff))
	r.failures++
}

// needsConfirmation reports whether the last inspection contradicted its listing and a
// newer listing exists, so that the pod must be inspected again.
func (r *record) needsConfirmation() bool {
	return !r.contradictedAt.IsZero() && r.seenAt.After(r.contradictedAt)
}

// stale returns a copy of the status of the last successful inspection, marked as stale.
func (r *record) stale() *podcache.Status {
	status := podcache.Status{UID: r.uid}
	if r.good.status != nil {
		status = *r.good.status
	}
	status.Stale = true
	return &status
}

// advance records in r.delivered that an event of the change was delivered.
func (r *record) advance(c change, event EventType) {
	others := slices.DeleteFunc(r.delivered, func(o object) bool { return o.key == c.object.key })
	o := *c.object
	switch event {
	case ContainerStarted:
		o.state = running
	case ContainerDied:
		o.state = exited
	default: // removed
		r.delivered = others
		return
	}
	r.delivered = append(others, o)
}

// transition returns the events of a change of one container, in the order of delivery.
// They are empty if the change has no event, or only one.
func transition(from, to state) (first, second EventType) {
	switch {
	case from == to:
		return "", ""
	case to == running:
		return ContainerStarted, ""
	case to == exited:
		return ContainerDied, ""
	case to == created, to == unknown:
		return ContainerChanged, ""
	case from == exited:
		return ContainerRemoved, ""
	default:
		return ContainerDied, ContainerRemoved
	}
}
