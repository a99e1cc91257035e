package podcache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Cache holds the newest known [Status] of every pod and how new it is. Make it
// with [New]; all methods may be called by any number of goroutines.
type Cache struct {
	mu      sync.RWMutex
	entries map[types.UID]*entry
	global  time.Time
	// begun says that global was set once; until then absence means nothing.
	begun bool
	// round counts the calls of UpdateTime, to tell old holds from new ones.
	round uint64
	// held and absent name the entries that are so, or were at the last
	// UpdateTime, which thereby finds them without a walk over all.
	held, absent map[types.UID]struct{}
	waiting      map[types.UID][]*waiter
	onWait       func() // may be nil
}

// entry is what is known of one pod.
type entry struct {
	status *Status
	err    error
	// fresh is the newest time of a write to this entry; known says that there
	// was one.
	fresh time.Time
	known bool
	// absent marks an entry that only remembers when the pod was not there.
	absent bool
	// hold says that the global time does not speak for this entry, as of since
	// and the named round of UpdateTime.
	hold  bool
	since time.Time
	round uint64
}

// New returns an empty cache that knows nothing yet: see [Cache.GetNewerThan].
func New() *Cache {
	return &Cache{
		entries: map[types.UID]*entry{},
		held:    map[types.UID]struct{}{},
		absent:  map[types.UID]struct{}{},
		waiting: map[types.UID][]*waiter{},
	}
}

// Get returns what is known of the pod now, however old. It never blocks. The
// error is that of the last inspection, and the status beside it is then what
// was known before. A pod of which nothing is known yields an empty Status with
// its UID, never nil.
func (c *Cache) Get(uid types.UID) (*Status, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.read(uid)
}

// GetNewerThan returns what is known of the pod once it is at least as new as
// t, and waits for that until ctx is done. It returns like [Cache.Get], except
// that a wait cut short yields a nil Status and an error that wraps the cause of
// ctx. What is there already is returned even if ctx is done.
//
// Nothing is new enough, not even for the zero time, before the first
// [Cache.UpdateTime] or a [Cache.Set] of that pod: an agent that has just
// started must not take silence for absence.
func (c *Cache) GetNewerThan(ctx context.Context, uid types.UID, t time.Time) (*Status, error) {
	c.mu.RLock()
	if c.isFresh(uid, t) {
		defer c.mu.RUnlock()
		return c.read(uid)
	}
	c.mu.RUnlock()
	return c.wait(ctx, uid, t)
}

// wait is the slow path of GetNewerThan.
func (c *Cache) wait(ctx context.Context, uid types.UID, t time.Time) (*Status, error) {
	c.mu.Lock()
	if c.isFresh(uid, t) { // since GetNewerThan looked
		defer c.mu.Unlock()
		return c.read(uid)
	}
	w := &waiter{uid: uid, min: t, woken: make(chan struct{})}
	c.addWaiter(w)
	onWait := c.onWait
	c.mu.Unlock()
	if onWait != nil {
		onWait()
	}

	select {
	case <-w.woken:
		return c.Get(uid) // freshness never goes back, so this is no older
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.removeWaiter(w)
		return nil, fmt.Errorf("wait for a status of pod %s: %w", uid, context.Cause(ctx))
	}
}

// Known reports whether the pod was looked at, or everything without the pod being
// held back. Before that the empty Status of [Cache.Get] does not mean that the
// runtime has nothing of the pod. It never blocks.
func (c *Cache) Known(uid types.UID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.isFresh(uid, time.Time{})
}

// Set stores what an inspection begun at t found: a status, an error, or a stale
// status with the error that keeps it so. It reports false and changes nothing
// if something newer than t is known of the pod, be it by a write of its own or
// by the global time. The status is retained and must not change any more; nil
// stands for an empty one.
func (c *Cache) Set(uid types.UID, status *Status, err error, t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.writable(uid, t)
	if e == nil {
		return false
	}
	if status == nil {
		status = &Status{UID: uid}
	}
	e.status, e.err, e.absent = status, err, false
	c.written(uid, e, t)
	return true
}

// SetObservedTime says that at t the pod was seen to be as the cache has it; for
// a pod that it does not have: that it was not there. An older time than the
// known one changes nothing.
func (c *Cache) SetObservedTime(uid types.UID, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.writable(uid, t); e != nil {
		c.written(uid, e, t)
	}
}

// Delete says that the pod was missing from a listing begun at t. It wakes those
// who wait for t or earlier, with an empty Status, and remembers t until the
// global time has passed it. What is known to be newer than t stays.
func (c *Cache) Delete(uid types.UID, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.writable(uid, t)
	if e == nil {
		return
	}
	e.status, e.err, e.absent = nil, nil, true
	c.absent[uid] = struct{}{}
	c.written(uid, e, t)
}

// UpdateTime says that all the cache holds, and the absence of all it does not
// hold, is as new as t, but for the given pods: of those a listing begun at t
// has shown a change that is still being inspected. They stay as new as they
// were until they are written with a time of t or later, or a later UpdateTime
// does not name them. A time before the last one changes nothing.
//
// It costs no allocation, and looks at every waiter once.
func (c *Cache) UpdateTime(t time.Time, except ...types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun && t.Before(c.global) {
		return
	}
	c.round++
	for _, uid := range except {
		c.holdBack(uid, t)
	}
	c.global, c.begun = t, true
	c.release()
	c.forget()
	for uid := range c.waiting {
		c.wake(uid)
	}
}

// Statuses returns what is known of every pod, sorted by UID, for those who
// look for pods that should not be. The slice is the caller's.
func (c *Cache) Statuses() []*Status {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*Status, 0, len(c.entries))
	for _, e := range c.entries {
		if !e.absent {
			all = append(all, e.status)
		}
	}
	slices.SortFunc(all, func(a, b *Status) int { return cmp.Compare(a.UID, b.UID) })
	return all
}

// read needs mu.
func (c *Cache) read(uid types.UID) (*Status, error) {
	if e := c.entries[uid]; e != nil && !e.absent {
		return e.status, e.err
	}
	return &Status{UID: uid}, nil
}

// isFresh is the one rule of freshness: a time at or after t. It needs mu.
func (c *Cache) isFresh(uid types.UID, t time.Time) bool {
	e := c.entries[uid]
	if e != nil && e.known && !e.fresh.Before(t) {
		return true
	}
	return c.begun && (e == nil || !e.hold) && !c.global.Before(t)
}

// writable returns the pod's entry, made if needed, for a write at t, or nil if
// what is known is newer.
func (c *Cache) writable(uid types.UID, t time.Time) *entry {
	e := c.entries[uid]
	if e != nil && e.known && t.Before(e.fresh) {
		return nil
	}
	if c.begun && (e == nil || !e.hold) && t.Before(c.global) {
		return nil
	}
	if e == nil {
		e = c.newAbsent(uid)
	}
	return e
}

// newAbsent makes an entry for a pod that is not there.
func (c *Cache) newAbsent(uid types.UID) *entry {
	e := &entry{absent: true}
	c.entries[uid] = e
	c.absent[uid] = struct{}{}
	return e
}

// written notes a write to e at t, ends its hold if that was for an earlier
// time, and wakes whom that satisfies.
func (c *Cache) written(uid types.UID, e *entry, t time.Time) {
	e.fresh, e.known = t, true
	if e.hold && !t.Before(e.since) {
		e.hold = false
	}
	c.wake(uid)
}

// holdBack takes the pod out of what the global time speaks for. What that said
// so far stays true, and moves into the entry.
func (c *Cache) holdBack(uid types.UID, t time.Time) {
	e := c.entries[uid]
	if e == nil {
		e = c.newAbsent(uid)
	}
	if !e.hold {
		if c.begun && (!e.known || e.fresh.Before(c.global)) {
			e.fresh, e.known = c.global, true
		}
		if e.known && !e.fresh.Before(t) {
			return // it is as new as that by its own right
		}
		e.hold = true
		c.held[uid] = struct{}{}
	}
	e.since, e.round = t, c.round
}

// release ends the holds that this round did not renew.
func (c *Cache) release() {
	for uid := range c.held {
		e := c.entries[uid]
		if e.hold && e.round == c.round {
			continue
		}
		delete(c.held, uid)
		if e.hold {
			e.hold = false
			c.wake(uid)
		}
	}
}

// forget drops the entries of absent pods that say no more than the global time.
func (c *Cache) forget() {
	for uid := range c.absent {
		switch e := c.entries[uid]; {
		case !e.absent:
			delete(c.absent, uid)
		case !e.hold && (!e.known || !c.global.Before(e.fresh)):
			delete(c.absent, uid)
			delete(c.entries, uid)
		}
	}
}
