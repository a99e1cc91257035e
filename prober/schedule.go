package prober

import (
	"cmp"
	"hash/maphash"
	"time"

	"github.com/kubeparts/kubeparts/internal/priority"
)

// timing contains the periods, delays and thresholds of a probe.
type timing struct {
	period, timeout, delay, start, edge time.Duration
	thresholds
}

// timing returns the timing of p according to its newest spec. Values that the API server
// would reject or default are replaced with the defaults.
func (p *probe) timing() timing {
	spec := p.spec()
	seconds := func(n, standard int32) time.Duration {
		if n <= 0 {
			n = standard
		}
		return time.Duration(n) * time.Second
	}
	t := timing{
		period:     seconds(spec.PeriodSeconds, 10),
		timeout:    seconds(spec.TimeoutSeconds, 1),
		delay:      seconds(spec.InitialDelaySeconds, 0),
		thresholds: thresholds{success: spec.SuccessThreshold, failure: spec.FailureThreshold},
	}
	if t.failure <= 0 {
		t.failure = 3
	}
	t.period = cmp.Or(p.opts.Period, t.period)
	t.timeout = cmp.Or(p.opts.Timeout, t.timeout)
	t.delay = max(cmp.Or(p.opts.InitialDelay, t.delay), 0)
	t.start, t.edge = p.opts.StartPeriod, p.opts.EdgePeriod
	return t
}

// interval returns the time from a run to the next run. c is the state after the run.
func (t timing) interval(k Kind, c count, succeeded bool) time.Duration {
	switch {
	case t.start > 0 && !succeeded && c.result != Success && k != Liveness:
		return min(t.period, t.start)
	case t.edge > 0 && c.streak > 0 && c.last != c.result:
		return min(t.period, t.edge)
	default:
		return t.period
	}
}

// spread returns a time below limit that is determined by the seed and the key, so that
// different keys get different times.
func spread(seed maphash.Seed, key Key, limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	return time.Duration(maphash.Comparable(seed, key) % uint64(limit))
}

// The maximum times over which probes are spread.
const (
	// adoptSpread applies to the first run on a container that was started before the
	// Manager, so that an agent that starts does not run all probes at once.
	adoptSpread = 10 * time.Second
	// skew applies to the second run on a new container, so that probes of containers that
	// were started together do not run together. It shortens the first interval and does
	// not extend it, so that the Manager detects no failure later than documented.
	skew = time.Second
)

// schedule contains the probes, ordered by the time at which they are due.
type schedule struct{ priority.Queue[probe] }

func newSchedule() schedule {
	return schedule{priority.Queue[probe]{
		Before: func(a, b *probe) bool { return a.due.Before(b.due) },
		Place:  func(p *probe) *int { return &p.scheduleIndex },
	}}
}

// put schedules p for the given time, instead of any time for which p was scheduled
// before.
func (s *schedule) put(p *probe, due time.Time) {
	p.due = due
	s.Put(p)
}
