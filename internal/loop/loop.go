// Package loop is the one timer-and-trigger loop behind every Run of this
// module: a pass at once, then one whenever the interval since the end of the
// last pass is over or somebody asked for it.
package loop

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// ErrRunning says that a loop is running already.
var ErrRunning = errors.New("already running")

// Loop decides when a step runs. Make it with [New]; it may be triggered by any
// number of goroutines and run by one.
type Loop struct {
	clock   clock.Clock
	trigger chan struct{} // capacity 1: requests that arrive together are one
	running atomic.Bool
}

// New returns a loop on the given clock. It starts nothing.
func New(c clock.Clock) *Loop {
	return &Loop{clock: c, trigger: make(chan struct{}, 1)}
}

// Trigger asks for a pass soon. It never blocks. A trigger during a pass leads
// to one more pass after it, because that pass may have looked too early.
func (l *Loop) Trigger() {
	select {
	case l.trigger <- struct{}{}:
	default: // one is pending already
	}
}

// Run calls step until ctx is done and then returns nil. Step is called by this
// goroutine alone, at once and then again after the duration that it returned,
// counted from its return so that slow steps never pile up, or on a trigger. A
// second Run beside the first returns [ErrRunning].
func (l *Loop) Run(ctx context.Context, step func(context.Context) time.Duration) error {
	if !l.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer l.running.Store(false)
	for ctx.Err() == nil {
		// A new timer each pass: resetting one that has fired needs its channel
		// drained on some clocks and not on others.
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
