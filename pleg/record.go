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

// record is what the generator knows of one pod. It lives from the pod's first
// listing until its last event is delivered.
type record struct {
	uid types.UID
	// delivered is the listing up to which the handler was told everything.
	delivered []object
	// seen is the newest listing and seenAt its time. complete means that it is part of
	// a global one. It is replaced, never written to.
	seen     []object
	seenAt   time.Time
	complete bool
	// good is the result of the last inspection that succeeded.
	good snapshot
	// contradicted is when the listing began in which an object had another state than in
	// good, or zero. Either the state changed in between or the runtime answered wrongly:
	// the next listing decides.
	contradicted time.Time
	// busy says that an inspection is under way, reinspect that one was asked for.
	busy, reinspect bool
	// failures counts the failed inspections in a row, err is the cause of the last, and
	// before retryAt there is no other attempt.
	failures int
	err      error
	retryAt  time.Time
}

// fail notes a failed inspection and sets the pod aside.
func (r *record) fail(err error, now time.Time) {
	r.err = errors.Unwrap(err) // of the runtime
	r.retryAt = now.Add(backoff.After(r.failures, firstBackOff, maxBackOff))
	r.failures++
}

// isDoubtful reports whether a listing that is newer than the last inspection has to decide
// which of the runtime's answers was right.
func (r *record) isDoubtful() bool {
	return !r.contradicted.IsZero() && r.seenAt.After(r.contradicted)
}

// stale returns a copy of the last good status that says how old it is.
func (r *record) stale() *podcache.Status {
	status := podcache.Status{UID: r.uid}
	if r.good.status != nil {
		status = *r.good.status
	}
	status.Stale = true
	return &status
}

// advance notes in r.delivered that an event of the change was delivered.
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

// transition returns the events of one container's change, empty where there is
// none. The order is that of delivery.
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
