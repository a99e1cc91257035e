package pleg

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

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
	// seen is the newest listing and seenAt its time. complete says that it was
	// a global one. All of these slices are replaced, never written to.
	seen     []object
	seenAt   time.Time
	complete bool
	// good is the result of the last inspection that succeeded.
	good snapshot
	// busy says that an inspection is under way, reinspect that one was asked for.
	busy, reinspect bool
	// failures counts those in a row, err is the cause of the last, and before retryAt
	// there is no other attempt.
	failures int
	err      error
	retryAt  time.Time
}

// action is what has to be done about a pod after a look at the runtime.
type action int

const (
	rest     action = iota // nothing
	wait                   // for the inspection under way
	inspect                // it anew
	announce               // its changes without an inspection: it is set aside
	forget                 // it, after the events of its end
)

// next decides.
func (r *record) next(now time.Time) action {
	switch {
	case r.busy:
		return wait
	case len(r.seen) == 0:
		return forget
	case r.untilRetry(now) > 0:
		if r.changed() {
			return announce
		}
		return rest
	case r.failures > 0 || r.reinspect || r.changed():
		return inspect
	default:
		return rest
	}
}

// knows says whether the newest look at the pod has shown the change already.
func (r *record) knows(c change) bool {
	for i := range r.seen {
		if o := &r.seen[i]; o.is(c.object) {
			return o.state == c.to
		}
	}
	return c.to == absent
}

// differ says whether the state of any object does.
func differ(before, after []object) bool {
	return len(diff(nil, &listing{objects: before}, &listing{objects: after})) > 0
}

func (r *record) changed() bool { return len(r.changesTo(r.seen)) > 0 }

// changesTo returns what the handler was not told yet.
func (r *record) changesTo(objects []object) []change {
	return diff(nil, &listing{objects: r.delivered}, &listing{objects: objects})
}

// fail notes a failed inspection and sets the pod aside.
func (r *record) fail(err error, now time.Time) {
	r.err = cause(err)
	r.retryAt = now.Add(min(firstBackOff<<min(r.failures, 16), maxBackOff))
	r.failures++
}

// succeed notes a good inspection.
func (r *record) succeed(found snapshot) {
	r.good, r.failures, r.err = found, 0, nil
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

// untilRetry returns how long the pod stays aside. A time longer than the longest
// is over: the clock has stepped back.
func (r *record) untilRetry(now time.Time) time.Duration {
	if wait := r.retryAt.Sub(now); r.failures > 0 && wait <= maxBackOff {
		return wait
	}
	return 0
}

// advance notes that just these changes were told.
func (r *record) advance(told []change) {
	objects := slices.Clone(r.delivered)
	for _, c := range told {
		at := slices.IndexFunc(objects, func(o object) bool { return o.is(c.object) })
		switch {
		case c.to == absent && at < 0:
		case c.to == absent:
			objects = slices.Delete(objects, at, at+1)
		case at < 0:
			objects = append(objects, *c.object)
		default:
			objects[at].state = c.to
		}
	}
	r.delivered = objects
}
