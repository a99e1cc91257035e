package prober

import (
	"cmp"
	"hash/maphash"
	"time"

	"github.com/kubeparts/kubeparts/internal/priority"
)

// timing is what a probe's schedule is made of.
type timing struct {
	period, timeout, delay, start, edge time.Duration
	thresholds
}

// timing returns p's, from its spec as it is now. Values that the API server would
// have refused or defaulted are put right.
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

// interval returns the time from a run to the next, by what is known after it.
func (t timing) interval(k Kind, c count, succeeded bool) time.Duration {
	switch {
	case t.start > 0 && !succeeded && c.result != Success && k != Liveness:
		return min(t.period, t.start)
	case t.edge > 0 && c.run > 0 && c.last != c.result:
		return min(t.period, t.edge)
	default:
		return t.period
	}
}

// spread returns a fraction of limit that is always the same for the same key and
// seed, and different ones for different keys.
func spread(seed maphash.Seed, key Key, limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	return time.Duration(maphash.Comparable(seed, key) % uint64(limit))
}

// The longest that probes are spread over.
const (
	// adoptSpread is for the first run on a container that was there before the
	// Manager: an agent that starts shall not run all probes at once.
	adoptSpread = 10 * time.Second
	// skew is for the second run on a new container: containers that started
	// together part. It is taken off the first interval, so that nothing is
	// noticed later than promised.
	skew = time.Second
)

// agenda is the probes by the time that they are due.
type agenda struct{ priority.Queue[probe] }

func newAgenda() agenda {
	return agenda{priority.Queue[probe]{
		Before: func(a, b *probe) bool { return a.due.Before(b.due) },
		Place:  func(p *probe) *int { return &p.place },
	}}
}

// put makes p due at the given time, wherever it was before.
func (a *agenda) put(p *probe, due time.Time) {
	p.due = due
	a.Put(p)
}
