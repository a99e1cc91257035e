// Package loop holds the loop behind the Run methods of this module: it runs a pass at
// once, and then another one when the interval since the end of the last pass is over, or
// after a trigger.
package loop

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// ErrRunning is returned by Run if the loop is already running.
var ErrRunning = errors.New("already running")

// Loop calls a step periodically and on triggers. Create it with [New]; any number of
// goroutines may trigger it, one may run it.
type Loop struct {
	clock   clock.Clock
	trigger chan struct{} // capacity 1: requests that arrive together count as one
	running atomic.Bool
}

// New returns a loop that uses the given clock. It starts nothing.
func New(c clock.Clock) *Loop {
	return &Loop{clock: c, trigger: make(chan struct{}, 1)}
}

// Trigger requests a pass. It never blocks. A trigger during a pass causes another pass
// after it, because the pass may have read its input before the change.
func (l *Loop) Trigger() {
	select {
	case l.trigger <- struct{}{}:
	default: // a request is pending already
	}
}

// Run calls step until ctx is done, and then returns nil. It calls step in its own
// goroutine: at once, then again after the duration that step returned, or after a trigger.
// The duration is measured from step's return, so slow steps do not accumulate. A second
// concurrent Run returns [ErrRunning].
func (l *Loop) Run(ctx context.Context, step func(context.Context) time.Duration) error {
	if !l.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer l.running.Store(false)
	for ctx.Err() == nil {
		// Use a new timer for each pass, because before the reset of a fired timer some
		// clocks require draining its channel and others do not.
		timer := l.clock.NewTimer(step(ctx))
		select {
		case <-ctx.Done():
		case <-l.trigger:
		case <-timer.C():
		}
		timer.Stop()
	}
	return nil
}
