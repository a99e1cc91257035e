package stats

import (
	"time"

	"github.com/kubeparts/kubeparts/eviction"
)

// rearm is the time between two checks of Watch for new sources. It also resets memory
// thresholds then, because the reclaimable part of the used memory changes all the time.
const rearm = 10 * time.Second

// pressureTrigger requests a wake-up when processes have waited for memory for stall within
// window.
type pressureTrigger struct {
	stall, window time.Duration
}

// unprivileged returns the trigger for a process without privileges. For such processes the
// kernel only accepts windows of multiples of 2 s up to 10 s. The ratio of stall and window
// stays the same.
func (t pressureTrigger) unprivileged() pressureTrigger {
	const step = 2 * time.Second
	window := min((t.window+step-1)/step*step, maxWindow)
	return pressureTrigger{stall: time.Duration(float64(t.stall) / float64(t.window) * float64(window)), window: window}
}

// usageLevel returns the memory usage of a cgroup at which a signal reaches its threshold, if
// the reclaimable part does not change. It is unknown if the signal is already below the
// threshold.
func usageLevel(usage, available value, threshold int64) value {
	left := available.minus(known(uint64(max(threshold, 0))))
	if !left.ok || left.n == 0 {
		return value{}
	}
	return usage.plus(left)
}

// first returns the threshold of a signal that is reached first, and false if the signal has
// none.
func first(levels []eviction.Level, signal eviction.Signal) (threshold int64, ok bool) {
	for _, l := range levels {
		if l.Signal == signal && (!ok || l.Available > threshold) {
			threshold, ok = l.Available, true
		}
	}
	return threshold, ok
}
