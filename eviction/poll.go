package eviction

import "time"

const (
	// settled is how often to look where only time can change something.
	settled = time.Second
	// alert is how often to look after a wake-up, and alertFor how long.
	alert    = 50 * time.Millisecond
	alertFor = 3 * time.Second
)

// fastest is how fast a signal shrinks at most, per second: about what one busy machine
// can do. A hog is not announced: while there is memory left, the kernel reports no
// pressure, however near a threshold is.
func (s Signal) fastest() float64 {
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

// interval returns how soon to look again after d: in a quarter of the time in which the
// nearest threshold could be met, and soon for a while after a wake-up.
func (m *Manager) interval(d *Decision) time.Duration {
	m.step.Lock()
	defer m.step.Unlock()
	next := m.cfg.MaxInterval
	for i := range d.Thresholds {
		next = min(next, m.until(d, &d.Thresholds[i]))
	}
	if m.cfg.Mode != Act { // nothing will change so soon, and each look measures all pods
		next = max(next, min(settled, m.cfg.MaxInterval))
	}
	if !m.cfg.Policy.IgnoreLocalStorageLimits {
		next = min(next, m.limitsAt.Sub(d.At))
	}
	next = max(next, m.cfg.MinInterval)
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.At.Before(m.alertUntil) {
		next = min(next, alert)
	}
	return next
}

// until returns how soon to look for one threshold.
func (m *Manager) until(d *Decision, r *Report) time.Duration {
	switch {
	case r.unmeasured():
		if _, ok := find(d.Next.LastObservations, r.Threshold.Signal); !ok {
			return m.cfg.MaxInterval
		}
		return settled // it was there, and may be near its threshold when it is again
	case r.State == Fine:
		seconds := float64(r.Observation.Available-r.Quantity) / r.Threshold.Signal.fastest() / 4
		most := m.cfg.MaxInterval
		if !r.Since.IsZero() { // met until a moment ago
			most = settled
		}
		return time.Duration(min(seconds, most.Seconds()) * float64(time.Second))
	case !r.Due:
		return min(settled, r.Threshold.GracePeriod-d.At.Sub(r.Since))
	case r.Why == whyNobody:
		return settled
	default:
		return m.cfg.MinInterval
	}
}
