package podcache

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// waiter is one blocked call of GetNewerThan.
type waiter struct {
	uid   types.UID
	min   time.Time
	woken chan struct{}
}

// addWaiter adds w. The callers of this and all functions below hold mu.
func (c *Cache) addWaiter(w *waiter) { c.waiting[w.uid] = append(c.waiting[w.uid], w) }

// removeWaiter removes w, unless wake has removed it already.
func (c *Cache) removeWaiter(w *waiter) {
	c.filterWaiters(w.uid, func(other *waiter) bool { return other != w })
}

// wake wakes and removes the pod's waiters that are now satisfied.
func (c *Cache) wake(uid types.UID) {
	c.filterWaiters(uid, func(w *waiter) bool {
		if !c.isFresh(uid, w.min) {
			return true
		}
		close(w.woken)
		return false
	})
}

func (c *Cache) filterWaiters(uid types.UID, keep func(*waiter) bool) {
	left := slices.DeleteFunc(c.waiting[uid], func(w *waiter) bool { return !keep(w) })
	if len(left) == 0 {
		delete(c.waiting, uid)
		return
	}
	c.waiting[uid] = left
}
