package fakecri

import (
	"cmp"
	"context"
	"time"

	"github.com/kubeparts/kubeparts/internal/priority"
)

// timer is a change that is scheduled for a time. It can be removed before this time.
type timer struct {
	at    time.Time
	seq   uint64 // order of creation, which breaks ties
	place int    // position in the timers
	fire  func()
}

// timers is a queue of scheduled changes, the earliest change first.
type timers struct {
	priority.Queue[timer]
	seq uint64
}

func newTimers() timers {
	before := func(a, b *timer) bool { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.seq, b.seq)) < 0 }
	return timers{Queue: priority.Queue[timer]{Before: before, Place: func(t *timer) *int { return &t.place }}}
}

func (t *timers) add(at time.Time, fire func()) *timer {
	t.seq++
	tm := &timer{at: at, seq: t.seq, fire: fire}
	t.Put(tm)
	return tm
}

// remove removes tm. It does nothing if tm is nil or has fired.
func (t *timers) remove(tm *timer) {
	if tm != nil {
		t.Remove(tm)
	}
}

// next returns the time of the next timer, or the zero time if no timer is scheduled.
func (t *timers) next() time.Time {
	if tm := t.First(); tm != nil {
		return tm.at
	}
	return time.Time{}
}

// advance applies all scheduled changes that are due, in order and each at its own time,
// and then sets the node's time to now. Every method whose result depends on the time calls
// advance first, so containers exit on time although no goroutine runs in between.
func (n *Node) advance() {
	now := n.cfg.Clock.Now()
	for tm := n.timers.First(); tm != nil && !tm.at.After(now); tm = n.timers.First() {
		n.timers.Remove(tm)
		n.now = tm.at
		tm.fire()
		n.broadcast()
	}
	n.now = now
}

// plan schedules a call of a function for the given time. The first call of advance at or
// after that time calls the function, with the lock held.
func (n *Node) plan(at time.Time, fire func()) *timer {
	n.broadcast() // waiting calls may have to wake up earlier now
	return n.timers.add(at, fire)
}

// broadcast wakes up all calls that wait in await.
func (n *Node) broadcast() {
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// await blocks until done() returns true. It calls done() with the lock held after every
// change of the node. The caller holds the lock. await releases the lock while it waits,
// and holds it again when it returns. It returns an error when ctx ends or the runtime
// restarts.
func (n *Node) await(ctx context.Context, done func() bool) error {
	for epoch := n.epoch; ; {
		n.advance()
		switch {
		case n.epoch != epoch:
			return errUnavailable()
		case done():
			return nil
		case ctx.Err() != nil:
			return contextError(ctx)
		}
		if n.changed == nil {
			n.changed = make(chan struct{})
		}
		changed, due := n.changed, n.timers.next()
		n.mu.Unlock()
		n.pause(ctx, changed, due)
		n.mu.Lock()
	}
}

// pause returns when ctx ends, when the channel is closed, or when the given time is
// reached. A zero time is never reached. pause may return early.
func (n *Node) pause(ctx context.Context, changed <-chan struct{}, due time.Time) {
	var fired <-chan time.Time
	if !due.IsZero() {
		before := n.cfg.Clock.Now()
		if !before.Before(due) {
			return
		}
		timer := n.cfg.Clock.NewTimer(due.Sub(before))
		defer timer.Stop()
		// If a fake clock was stepped between the reading of the time and the start of the
		// timer, the timer fires too late. Return, so that the caller checks again.
		if n.cfg.Clock.Since(before) >= time.Millisecond {
			return
		}
		fired = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case <-fired:
	}
}
