package podworker

import "time"

// Delay returns the time until the next sync with the kubelet's periods.
func Delay(err error, now time.Time, jitter float64) time.Duration {
	return Config{}.Delay(err, now, jitter)
}

// Delay returns the time until the next sync with the periods of c.
func (c Config) Delay(err error, now time.Time, jitter float64) time.Duration {
	return c.withDefaults().periods().delay(err, now, jitter)
}

// Grace is the computation of grace periods.
var Grace = grace

// Pods returns how many pods, static pod queue entries and due times are stored.
func (w *Workers) Pods() (pods, lines, due int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pods), len(w.static.queues), w.queue.Len()
}

// Past returns for how many forgotten pods the end time is stored.
func (w *Workers) Past() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.forgotten)
}
