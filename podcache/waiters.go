package podcache

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// waiter is one blocked GetNewerThan.
type waiter struct {
	uid   types.UID
	min   time.Time
	woken chan struct{}
}

// addWaiter needs mu, like the functions below.
func (c *Cache) addWaiter(w *waiter) { c.waiting[w.uid] = append(c.waiting[w.uid], w) }

// removeWaiter removes w, if it was not woken in the meantime.
func (c *Cache) removeWaiter(w *waiter) {
	c.keepWaiters(w.uid, func(other *waiter) bool { return other != w })
}

// wake releases the pod's waiters that are satisfied now.
func (c *Cache) wake(uid types.UID) {
	c.keepWaiters(uid, func(w *waiter) bool {
		if !c.isFresh(uid, w.min) {
			return true
		}
		close(w.woken)
		return false
	})
}

func (c *Cache) keepWaiters(uid types.UID, keep func(*waiter) bool) {
	left := slices.DeleteFunc(c.waiting[uid], func(w *waiter) bool { return !keep(w) })
	if len(left) == 0 {
		delete(c.waiting, uid)
		return
	}
	c.waiting[uid] = left
}
