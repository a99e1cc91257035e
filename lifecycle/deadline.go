package lifecycle

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrDeadline is the cause (context.Cause) of a context that ended because a
// [Deadline] was reached.
var ErrDeadline = errors.New("the grace period is over")

// Deadline is the time by which something must have ended, one for all that has
// to happen until then: hooks, waiting for one another, stopping. It can only move
// earlier, and whoever waits notices at once. Make it with [NewDeadline]; all
// methods may be called by any number of goroutines.
type Deadline struct {
	clock clock.Clock

	mu      sync.Mutex
	at      time.Time
	changed chan struct{} // closed and replaced when at moves
}

// NewDeadline returns a deadline at the given time of the clock; nil is the system
// clock. For a grace period give c.Now().Add(grace): the sum keeps the monotonic
// reading, and a step of the system clock does not matter to it.
func NewDeadline(c clock.Clock, at time.Time) *Deadline {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Deadline{clock: c, at: at, changed: make(chan struct{})}
}

// At returns the deadline as it is now.
func (d *Deadline) At() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

// Shorten moves the deadline to t if that is earlier and says whether it was.
func (d *Deadline) Shorten(t time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !t.Before(d.at) {
		return false
	}
	d.at = t
	close(d.changed)
	d.changed = make(chan struct{})
	return true
}

// Remaining returns how long it is from now to the deadline, 0 once it is reached.
func (d *Deadline) Remaining(now time.Time) time.Duration { return max(0, d.At().Sub(now)) }

// Left is [Deadline.Remaining] from the clock's now.
func (d *Deadline) Left() time.Duration { return d.Remaining(d.clock.Now()) }

// Context returns a context that is done at the deadline, wherever it has moved
// to by then, with [ErrDeadline] as its cause. It carries no deadline of its own
// (ctx.Deadline), because a deadline on the wire can't move. A goroutine waits
// until the context is done; cancel ends it and returns when it has ended, and
// must be called.
func (d *Deadline) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, cause := context.WithCancelCause(parent)
	if d.Left() == 0 {
		cause(ErrDeadline) // from the beginning, so that nothing begins with it
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if d.wait(ctx.Done()) {
			cause(ErrDeadline)
		}
	}()
	return ctx, func() {
		cause(context.Canceled)
		<-gone
	}
}

// wait returns true at the deadline and false when stop is closed before.
func (d *Deadline) wait(stop <-chan struct{}) bool {
	for {
		at, changed := d.State()
		left := at.Sub(d.clock.Now())
		if left <= 0 {
			return true
		}
		timer := d.clock.NewTimer(left)
		select {
		case <-stop:
			timer.Stop()
			return false
		case <-changed:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// State returns the deadline as it is now, and a channel that is closed when it
// moves from there.
func (d *Deadline) State() (at time.Time, moved <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at, d.changed
}
