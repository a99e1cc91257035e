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

// Deadline is the time by which a pod or container must have ended. Hooks,
// waits for other containers, and stops share one Deadline. A Deadline can only
// be moved to an earlier time. Every goroutine that waits for the Deadline is
// then notified at once. Create it with [NewDeadline]. It is safe for
// concurrent use.
type Deadline struct {
	clock clock.Clock

	mu      sync.Mutex
	at      time.Time
	changed chan struct{} // closed and replaced when the deadline moves
}

// NewDeadline returns a deadline at the given time of the clock c. A nil c
// means the system clock. For a grace period, pass c.Now().Add(grace): this
// time has a monotonic reading, so a step of the system clock does not move the
// deadline.
func NewDeadline(c clock.Clock, at time.Time) *Deadline {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Deadline{clock: c, at: at, changed: make(chan struct{})}
}

// At returns the current deadline.
func (d *Deadline) At() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

// Shorten moves the deadline to t if t is earlier, and reports whether it has
// moved the deadline.
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

// Remaining returns the time from now to the deadline, 0 if the deadline has
// passed.
func (d *Deadline) Remaining(now time.Time) time.Duration { return max(0, d.At().Sub(now)) }

// Left returns [Deadline.Remaining] for the clock's current time.
func (d *Deadline) Left() time.Duration { return d.Remaining(d.clock.Now()) }

// Context returns a context that is done when the deadline is reached. The
// cause of the context is then [ErrDeadline]. If the deadline moves after the
// call, the context is done at the new deadline. ctx.Deadline does not report
// the deadline, because a client would send it to its server, and could not
// move it there later. Context starts a goroutine. The caller must call cancel,
// which stops the goroutine and waits until it has ended.
func (d *Deadline) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, cause := context.WithCancelCause(parent)
	if d.Left() == 0 {
		cause(ErrDeadline) // immediately, so that no work starts with this context
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

// wait returns true when the deadline is reached, or false if stop is closed
// first.
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

// State returns the current deadline, and a channel that is closed when the
// deadline moves.
func (d *Deadline) State() (at time.Time, moved <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at, d.changed
}
