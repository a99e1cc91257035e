package podworker

import (
	"math"
	"time"
)

// RetryError names the time at which a failed sync should be repeated. A
// [Syncer] may join and wrap several RetryErrors; the earliest time counts. The
// delay is at most [Config.ResyncPeriod]. If the time has passed, the delay is
// [Config.TransientPeriod], so that the worker does not loop without a delay.
// If a RetryError is joined with errors that are neither RetryErrors nor
// TransientErrors, the delay is at most [Config.BackoffPeriod] plus jitter.
type RetryError struct {
	// At is the time of the next try, on the clock of the Workers' Config.
	At time.Time
	// Err is the error. It may be nil.
	Err error
}

// Error implements error.
func (e *RetryError) Error() string {
	if e.Err == nil {
		return "retry at " + e.At.Format(time.RFC3339)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *RetryError) Unwrap() error { return e.Err }

// TransientError means that a sync failed for a reason that will disappear by
// itself soon, for example because the node's network is not ready yet. The
// sync is repeated after [Config.TransientPeriod], even if the TransientError
// is joined with other errors.
type TransientError struct {
	// Err is the error. It may be nil.
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

// periods are the delays between syncs, without jitter.
type periods struct {
	resync, backoff, transient time.Duration
}

// delay returns the time from now until the next sync is due, after a sync that
// has not changed the pod's phase and has returned err. jitter, from 0 to 1,
// prolongs every delay by up to half, except for a delay that a RetryError
// requested.
func (p periods) delay(err error, now time.Time, jitter float64) time.Duration {
	spread := func(d time.Duration) time.Duration {
		return d + min(time.Duration(jitter/2*float64(d)), math.MaxInt64-d)
	}
	if err == nil {
		return spread(p.resync)
	}
	var w retryRequests
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

// retryRequests are the requests of all errors in an error tree.
type retryRequests struct {
	at                      time.Time // the earliest requested time, if timed
	timed, transient, plain bool
}

// collect walks err and everything joined or wrapped in it. It does not descend
// into a RetryError or TransientError.
func (w *retryRequests) collect(err error) {
	switch e := any(err).(type) { // not errors.As, which would find only the first error of a type
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
