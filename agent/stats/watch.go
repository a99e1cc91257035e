package stats

import (
	"time"

	"github.com/kubeparts/kubeparts/eviction"
)

// rearm is the time without an event after which Watch adds the event sources that have become
// available. On cgroup version 1, Watch then also sets the memory thresholds again, because the
// reclaimable part of the used memory changes all the time.
const rearm = 10 * time.Second

// pressureTrigger requests a wake-up when processes have waited for memory for a total of
// stall within window.
type pressureTrigger struct {
	stall, window time.Duration
}

// unprivileged returns the trigger for a process without CAP_SYS_RESOURCE. From such a
// process the kernel only accepts windows of multiples of 2 s up to 10 s. The ratio of stall
// and window stays the same.
func (t pressureTrigger) unprivileged() pressureTrigger {
	const step = 2 * time.Second
	window := min((t.window+step-1)/step*step, maxWindow)
	return pressureTrigger{stall: time.Duration(float64(t.stall) / float64(t.window) * float64(window)), window: window}
}

// usageLevel returns the memory usage of a cgroup at which a signal reaches its threshold. It
// assumes that the reclaimable part of the usage does not change. The result is unknown if the
// signal has already reached the threshold.
func usageLevel(usage, available value, threshold int64) value {
	left := available.minus(known(uint64(max(threshold, 0))))
	if !left.ok || left.n == 0 {
		return value{}
	}
	return usage.plus(left)
}

// first returns the highest threshold of a signal, which is reached first when the available
// amount falls. ok is false if the signal has no threshold.
func first(levels []eviction.Level, signal eviction.Signal) (threshold int64, ok bool) {
	for _, l := range levels {
		if l.Signal == signal && (!ok || l.Available > threshold) {
			threshold, ok = l.Available, true
		}
	}
	return threshold, ok
}
