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

// record is the state of one pod in the generator. It exists from the pod's first listing
// until a global relist has confirmed the pod's removal and the pod's last event is
// delivered.
type record struct {
	uid types.UID
	// delivered has the pod's objects in their states after the last delivered event.
	// The differences between these states and a newer listing are the next events.
	delivered []object
	// The slice seen is the newest listing of the pod, and seenAt is the start of that
	// listing. The field complete reports whether the listing is from a global relist, not
	// from a relist of this pod only. The slice is replaced, never modified.
	seen     []object
	seenAt   time.Time
	complete bool
	// good is the result of the last successful inspection.
	good snapshot
	// contradictedAt is the start of the listing if an object had another state in the
	// listing than in the inspection. It is zero if the listing and the inspection agree.
	// Either the state changed between the list and the inspection, or a response of the
	// runtime was wrong. The pod is inspected again after the next listing.
	contradictedAt time.Time
	// busy means that an inspection is queued or in progress. reinspect means that a
	// reinspection was requested.
	busy, reinspect bool
	// failures counts the consecutive failed inspections, err is the error of the last
	// inspection, and retryAt is the earliest time of the next attempt.
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
// newer listing exists. The pod must then be inspected again.
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
// The second event is empty if the change has only one event. Both are empty if the change
// has no event.
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
