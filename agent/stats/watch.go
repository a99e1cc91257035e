package stats

import (
	"time"

	"github.com/kubeparts/kubeparts/eviction"
)

// rearm is how often Watch looks whether there is something new to watch, and
// sets a threshold of memory anew: how much of what is used can be reclaimed
// changes all the time.
const rearm = 10 * time.Second

// A pressureTrigger is a request for a wake-up when processes have waited for
// memory.
type pressureTrigger struct {
	stall, window time.Duration
}

// unprivileged is the trigger for somebody whom the kernel allows none but windows
// of multiples of 2 s, of which it takes those up to 10 s: the share of the
// time is the same.
func (t pressureTrigger) unprivileged() pressureTrigger {
	const step = 2 * time.Second
	window := min((t.window+step-1)/step*step, maxWindow)
	return pressureTrigger{stall: time.Duration(float64(t.stall) / float64(t.window) * float64(window)), window: window}
}

// usageLevel is how much a cgroup may use until a signal falls below a threshold,
// if what can be reclaimed stays what it is. It is unknown if that is so already.
func usageLevel(usage, available value, threshold int64) value {
	left := available.minus(known(uint64(max(threshold, 0))))
	if !left.ok || left.n == 0 {
		return value{}
	}
	return usage.plus(left)
}

// first returns the threshold of a signal that is reached first, if there is one.
func first(levels []eviction.Level, signal eviction.Signal) (threshold int64, ok bool) {
	for _, l := range levels {
		if l.Signal == signal && (!ok || l.Available > threshold) {
			threshold, ok = l.Available, true
		}
	}
	return threshold, ok
}
