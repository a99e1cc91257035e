package fakecri

import (
	"cmp"
	"context"
	"time"

	"github.com/kubeparts/kubeparts/internal/priority"
)

// timer is something that happens at a moment, unless it is removed before.
type timer struct {
	at    time.Time
	seq   uint64 // breaks ties: what was planned first happens first
	place int    // in the timers
	fire  func()
}

// timers is what is to happen, the next first.
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

// remove takes tm out. A nil timer, or one that has fired, is left alone.
func (t *timers) remove(tm *timer) {
	if tm != nil {
		t.Remove(tm)
	}
}

// next returns the moment of the next timer, or the zero time.
func (t *timers) next() time.Time {
	if tm := t.First(); tm != nil {
		return tm.at
	}
	return time.Time{}
}

// settle lets everything happen that was due by now, in its order and each at
// its own time, and then makes it now. Every look at the node settles it first;
// so containers end on time without anything running in between.
func (n *Node) settle() {
	now := n.cfg.Clock.Now()
	for tm := n.timers.First(); tm != nil && !tm.at.After(now); tm = n.timers.First() {
		n.timers.Remove(tm)
		n.now = tm.at
		tm.fire()
		n.broadcast()
	}
	n.now = now
}

// plan has fire called, with the lock held, when the node is first looked at
// after the given moment.
func (n *Node) plan(at time.Time, fire func()) *timer {
	n.broadcast() // who waits may have to wake earlier now
	return n.timers.add(at, fire)
}

// broadcast wakes all who wait in await.
func (n *Node) broadcast() {
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// await blocks until done says so, which it asks with the lock held after every
// change of the node. It is called with the lock held and returns with it, and
// gives the lock up in between. It fails when ctx ends or the runtime restarts.
func (n *Node) await(ctx context.Context, done func() bool) error {
	for epoch := n.epoch; ; {
		n.settle()
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

// pause returns when ctx ends, changed is closed or the moment due has come;
// with a zero due there is none. It may return early.
func (n *Node) pause(ctx context.Context, changed <-chan struct{}, due time.Time) {
	var fired <-chan time.Time
	if !due.IsZero() {
		before := n.cfg.Clock.Now()
		if !before.Before(due) {
			return
		}
		timer := n.cfg.Clock.NewTimer(due.Sub(before))
		defer timer.Stop()
		// A fake clock that was stepped meanwhile has armed the timer too late
		// by that step. Let the caller look again.
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
