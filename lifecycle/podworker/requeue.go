package podworker

import (
	"math"
	"time"
)

// RetryError says when a turn that failed is worth repeating. A [Syncer] may
// join several, and wrap them; the earliest time counts. A time beyond
// [Config.ResyncPeriod] is cut to that, so that nothing is forgotten; one that
// has passed means after [Config.TransientPeriod], so that nothing spins. If other
// errors are joined beside it, the turn is repeated no later than after
// [Config.BackoffPeriod].
type RetryError struct {
	// At is when to try again. It needs the clock of the Workers' Config.
	At time.Time
	// Err is what failed. It may be nil.
	Err error
}

// Error implements error.
func (e *RetryError) Error() string {
	if e.Err == nil {
		return "try again at " + e.At.Format(time.RFC3339)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *RetryError) Unwrap() error { return e.Err }

// TransientError says that a turn failed for a reason that passes by itself in
// a moment: the node's network is not ready yet. The turn is repeated after
// [Config.TransientPeriod], whatever errors are joined beside it.
type TransientError struct {
	// Err is what failed. It may be nil.
	Err error
}

// Error implements error.
func (e *TransientError) Error() string {
	if e.Err == nil {
		return "not ready yet"
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *TransientError) Unwrap() error { return e.Err }

// periods are the delays between turns before jitter.
type periods struct {
	resync, backoff, transient time.Duration
}

// delay returns how long after now the next turn is due, after one that left the
// pod in its phase and ended in err. Jitter, from 0 to 1, prolongs every delay by
// up to half, but for a time that was asked for: spread comes with it already.
func (p periods) delay(err error, now time.Time, jitter float64) time.Duration {
	spread := func(d time.Duration) time.Duration {
		return d + min(time.Duration(jitter/2*float64(d)), math.MaxInt64-d)
	}
	if err == nil {
		return spread(p.resync)
	}
	var w wishes
	w.collect(err)
	if w.transient {
		return spread(p.transient)
	}
	d := p.resync
	if w.timed {
		wait := w.at.Sub(now)
		if wait <= 0 {
			wait = p.transient
		}
		d = min(d, wait)
	}
	if w.plain {
		d = min(d, spread(p.backoff))
	}
	return d
}

// wishes are what the leaves of an error tree ask for.
type wishes struct {
	at                      time.Time // the earliest time asked for, if timed
	timed, transient, plain bool
}

// collect walks err and everything joined or wrapped in it. A typed error speaks
// for all that it wraps.
func (w *wishes) collect(err error) {
	switch e := any(err).(type) { // each node on its own: errors.As would find the first only
	case *RetryError:
		if !w.timed || e.At.Before(w.at) {
			w.at = e.At
		}
		w.timed = true
	case *TransientError:
		w.transient = true
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			w.collect(inner)
		}
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			w.collect(inner)
			return
		}
		w.plain = true
	default:
		w.plain = err != nil || w.plain
	}
}
