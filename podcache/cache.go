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

// Cache contains the newest known [Status] of every pod, and the time at which it was
// observed. Create it with [New]. All methods are safe for concurrent use.
type Cache struct {
	mu      sync.RWMutex
	entries map[types.UID]*entry
	global  time.Time
	// globalSet means that the global time was set. Until then, the runtime may have pods
	// without an entry.
	globalSet bool
	// round counts the calls of UpdateTime that have set the global time. Each of these
	// calls ends the exclusions that it does not renew.
	round uint64
	// excluded contains the UIDs of all excluded entries, and absent of all absent entries.
	// Until the next UpdateTime, they also contain entries that are no longer excluded or
	// absent. UpdateTime uses these sets instead of a loop over all entries.
	excluded, absent map[types.UID]struct{}
	waiting          map[types.UID][]*waiter
	onWait           func() // may be nil
}

// entry is the cached state of one pod.
type entry struct {
	status *Status
	err    error
	// fresh is the time of the last write to this entry. If the last global time before the
	// pod was excluded is later, fresh is that time. known means that fresh is set.
	fresh time.Time
	known bool
	// absent means that the entry has no status. Such an entry records only when the pod
	// did not exist, or that the pod is excluded.
	absent bool
	// excluded means that the global time does not apply to this entry. excludedAt and round
	// are the time and the round of the last UpdateTime that excluded the pod.
	excluded   bool
	excludedAt time.Time
	round      uint64
}

// New returns an empty cache. Calls of [Cache.GetNewerThan] wait until the writer has
// written their pod or set the global time.
func New() *Cache {
	return &Cache{
		entries:  map[types.UID]*entry{},
		excluded: map[types.UID]struct{}{},
		absent:   map[types.UID]struct{}{},
		waiting:  map[types.UID][]*waiter{},
	}
}

// Get returns the newest status of the pod, however old it is. It never blocks. If the last
// inspection failed, Get returns its error and the status that the writer stored with the
// error, usually the last known status. For a pod that is not in the cache, Get returns a
// Status that has only the UID, never nil.
func (c *Cache) Get(uid types.UID) (*Status, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.read(uid)
}

// GetNewerThan waits until the status of the pod is at least as new as t and returns the
// same as [Cache.Get]. If ctx is done first, it returns a nil Status and an error that
// wraps the cause of ctx. If the status is new enough at the time of the call, GetNewerThan
// returns it even if ctx is done.
//
// While [Cache.Known] returns false for the pod, GetNewerThan waits even if t is the zero
// time. Otherwise an agent that has just started would conclude from the empty cache that
// the pod does not exist.
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
	if c.isFresh(uid, t) { // it became fresh after the check in GetNewerThan
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
		return c.Get(uid) // freshness never decreases, so the status is still new enough
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.removeWaiter(w)
		return nil, fmt.Errorf("wait for a status of pod %s: %w", uid, context.Cause(ctx))
	}
}

// Known reports whether the pod was written to the cache, or the global time was set
// without excluding the pod. If Known returns false, the pod may exist in the runtime even
// if [Cache.Get] returns an empty Status. Known never blocks.
func (c *Cache) Known(uid types.UID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.isFresh(uid, time.Time{})
}

// Set stores the result of an inspection that began at t: a status, an error, or a stale
// status with the error of the inspection that failed. If the cached state of the pod is
// newer than t, because of a write or of the global time, Set changes nothing and returns
// false. The status is retained and must not be modified afterwards; nil means an empty
// Status.
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
	c.recordWrite(uid, e, t)
	return true
}

// SetObservedTime records that the cached status of the pod was still correct at t. For a
// pod that is not in the cache, it records that the pod did not exist. If the cached state
// of the pod is newer than t, SetObservedTime changes nothing.
func (c *Cache) SetObservedTime(uid types.UID, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.writable(uid, t); e != nil {
		c.recordWrite(uid, e, t)
	}
}

// Delete records that the pod was missing from a listing that began at t. It wakes the
// readers that wait for t or earlier; they get an empty Status. The cache stores t until
// the global time has reached t. If the cached state of the pod is newer than t, Delete
// changes nothing.
func (c *Cache) Delete(uid types.UID, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.writable(uid, t)
	if e == nil {
		return
	}
	e.status, e.err, e.absent = nil, nil, true
	c.absent[uid] = struct{}{}
	c.recordWrite(uid, e, t)
}

// UpdateTime sets the global time to t, the start of a listing. This time applies to all
// pods, whether or not they are in the cache. It does not apply yet to excluded pods, whose
// UIDs the parameter except contains. The caller must exclude the pods that have changed in
// the listing and are not inspected yet. The exclusion of a pod ends when the pod is written
// with a time of t or later, or when a later UpdateTime does not exclude the pod. If t is
// before the current global time, UpdateTime changes nothing.
//
// UpdateTime allocates nothing if no pods are excluded, and checks all waiters.
func (c *Cache) UpdateTime(t time.Time, except ...types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.globalSet && t.Before(c.global) {
		return
	}
	c.round++
	for _, uid := range except {
		c.exclude(uid, t)
	}
	c.global, c.globalSet = t, true
	c.endExclusions()
	c.deleteAbsent()
	for uid := range c.waiting {
		c.wake(uid)
	}
}

// Statuses returns the newest status of every pod in the cache, sorted by UID. Callers use
// it to find pods that should not exist. The caller owns the slice; the statuses are
// shared.
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

// read returns the status and error of a pod. The caller holds mu.
func (c *Cache) read(uid types.UID) (*Status, error) {
	if e := c.entries[uid]; e != nil && !e.absent {
		return e.status, e.err
	}
	return &Status{UID: uid}, nil
}

// isFresh reports whether the cached state of the pod is at least as new as t. The caller
// holds mu.
func (c *Cache) isFresh(uid types.UID, t time.Time) bool {
	e := c.entries[uid]
	if e != nil && e.known && !e.fresh.Before(t) {
		return true
	}
	return c.globalSet && (e == nil || !e.excluded) && !c.global.Before(t)
}

// writable returns the pod's entry for a write at t and creates it if necessary. It returns
// nil if the cached state of the pod is newer than t.
func (c *Cache) writable(uid types.UID, t time.Time) *entry {
	e := c.entries[uid]
	if e != nil && e.known && t.Before(e.fresh) {
		return nil
	}
	if c.globalSet && (e == nil || !e.excluded) && t.Before(c.global) {
		return nil
	}
	if e == nil {
		e = c.addAbsent(uid)
	}
	return e
}

// addAbsent adds an entry without a status.
func (c *Cache) addAbsent(uid types.UID) *entry {
	e := &entry{absent: true}
	c.entries[uid] = e
	c.absent[uid] = struct{}{}
	return e
}

// recordWrite records a write to e at t, and wakes the waiters that are now satisfied. It
// ends the exclusion of e if excludedAt is t or earlier.
func (c *Cache) recordWrite(uid types.UID, e *entry, t time.Time) {
	e.fresh, e.known = t, true
	if e.excluded && !t.Before(e.excludedAt) {
		e.excluded = false
	}
	c.wake(uid)
}

// exclude excludes the pod from t, the next global time. It copies the previous global
// time, which still applies to the pod, into the entry.
func (c *Cache) exclude(uid types.UID, t time.Time) {
	e := c.entries[uid]
	if e == nil {
		e = c.addAbsent(uid)
	}
	if !e.excluded {
		if c.globalSet && (!e.known || e.fresh.Before(c.global)) {
			e.fresh, e.known = c.global, true
		}
		if e.known && !e.fresh.Before(t) {
			return // the pod is already as new as t
		}
		e.excluded = true
		c.excluded[uid] = struct{}{}
	}
	e.excludedAt, e.round = t, c.round
}

// endExclusions ends the exclusions that this round did not renew.
func (c *Cache) endExclusions() {
	for uid := range c.excluded {
		e := c.entries[uid]
		if e.excluded && e.round == c.round {
			continue
		}
		delete(c.excluded, uid)
		if e.excluded {
			e.excluded = false
			c.wake(uid)
		}
	}
}

// deleteAbsent deletes the entries of absent pods that are not newer than the global time.
func (c *Cache) deleteAbsent() {
	for uid := range c.absent {
		switch e := c.entries[uid]; {
		case !e.absent:
			delete(c.absent, uid)
		case !e.excluded && (!e.known || !c.global.Before(e.fresh)):
			delete(c.absent, uid)
			delete(c.entries, uid)
		}
	}
}
