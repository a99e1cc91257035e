package eviction

import "time"

const (
	// slowInterval is the evaluation interval near a threshold while no action is
	// possible, for example during a grace period.
	slowInterval = time.Second
	// alertInterval is the evaluation interval for the time alertFor after a wake-up.
	alertInterval = 50 * time.Millisecond
	alertFor      = 3 * time.Second
)

// maxShrinkRate returns the assumed maximum rate at which the available amount shrinks,
// per second: about what the processes of one machine can consume. Polling must be fast
// enough for this rate, because the Waker cannot warn of a fast consumer: as long as memory
// is free, the kernel reports no pressure, however near a threshold is.
func (s Signal) maxShrinkRate() float64 {
	switch {
	case s.condition() == "MemoryPressure":
		return 8 << 30
	case s.inBytes():
		return 2 << 30
	case s == PIDAvailable:
		return 20_000
	default:
		return 200_000
	}
}

// interval returns the time from d to the next evaluation: a quarter of the time in which
// the nearest threshold could be met, and at most alertInterval after a wake-up.
func (m *Manager) interval(d *Decision) time.Duration {
	m.step.Lock()
	defer m.step.Unlock()
	next := m.cfg.MaxInterval
	for i := range d.Thresholds {
		next = min(next, m.intervalFor(d, &d.Thresholds[i]))
	}
	if m.cfg.Mode != Act { // no action ends the shortage, and each evaluation that needs victims would measure all pods
		next = max(next, min(slowInterval, m.cfg.MaxInterval))
	}
	if !m.cfg.Policy.IgnoreLocalStorageLimits {
		next = min(next, m.limitsAt.Sub(d.At))
	}
	next = max(next, m.cfg.MinInterval)
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.At.Before(m.alertUntil) {
		next = min(next, alertInterval)
	}
	return next
}

// intervalFor returns the interval for one threshold.
func (m *Manager) intervalFor(d *Decision, r *Report) time.Duration {
	switch {
	case r.unmeasured():
		if _, ok := find(d.Next.LastObservations, r.Threshold.Signal); !ok {
			return m.cfg.MaxInterval
		}
		return slowInterval // the signal was known before, and may be near its threshold when it is known again
	case r.State == Fine:
		seconds := float64(r.Observation.Available-r.Quantity) / r.Threshold.Signal.maxShrinkRate() / 4
		most := m.cfg.MaxInterval
		if !r.Since.IsZero() { // met recently
			most = slowInterval
		}
		return time.Duration(min(seconds, most.Seconds()) * float64(time.Second))
	case !r.Due:
		return min(slowInterval, r.Threshold.GracePeriod-d.At.Sub(r.Since))
	case r.Why == whyNoVictim:
		return slowInterval
	default:
		return m.cfg.MinInterval
	}
}
