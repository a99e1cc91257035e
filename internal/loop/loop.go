// Package loop implements the loop of the Run methods of this module. The loop runs the
// first pass at once. It runs the next pass after a trigger, or when the interval since the
// end of the last pass is over.
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

// Loop calls a step function periodically and after triggers. Create it with [New]. Any
// number of goroutines may call Trigger, but only one goroutine at a time may call Run.
type Loop struct {
	clock   clock.Clock
	trigger chan struct{} // capacity 1: several requests before a pass count as one request
	running atomic.Bool
}

// New returns a loop that uses the given clock. It starts no goroutine.
func New(c clock.Clock) *Loop {
	return &Loop{clock: c, trigger: make(chan struct{}, 1)}
}

// Trigger requests a pass. It never blocks. A trigger during a pass causes another pass,
// because the running pass may have read its input before the change.
func (l *Loop) Trigger() {
	select {
	case l.trigger <- struct{}{}:
	default: // a request is already pending
	}
}

// Run calls step until ctx is done, and then returns nil. It calls step in the caller's
// goroutine: first at once, and then again after the duration that step returned or after a
// trigger. The duration starts when step returns, so slow steps do not accumulate. A second
// concurrent call of Run returns [ErrRunning].
func (l *Loop) Run(ctx context.Context, step func(context.Context) time.Duration) error {
	if !l.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer l.running.Store(false)
	for ctx.Err() == nil {
		// Use a new timer for each pass: before a fired timer is reset, some clocks require
		// that its channel is drained, and other clocks do not.
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
