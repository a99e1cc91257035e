package eviction

import "time"

// A pace is how fast the node's figures have been seen to shrink, and follows
// from that how soon to look again. It belongs to the goroutine of the step.
type pace struct {
	last  [numSignals]Observation
	worst [numSignals]float64 // per second, remembered for minutes
	falls [numSignals]float64 // the same, for a second
}

const (
	// settled is how often to look where only time can change something.
	settled = time.Second
	// alert is how often to look after a wake-up, and alertFor how long.
	alert    = 50 * time.Millisecond
	alertFor = 3 * time.Second
	// rush is by how much the least interval is shorter while a figure falls towards
	// a hard threshold.
	rush = 10
	// forget is how long it takes for the worst rate to count half, and calm the same
	// for that of a fall.
	forget = time.Minute
	calm   = time.Second
)

// assumed is how fast a signal shrinks at the least, for as long as nothing worse
// was seen: about what one busy machine can do, because a hog is not announced. A
// look costs microseconds.
func (s Signal) assumed() float64 {
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

// see notes how fast each signal shrank since the last look.
func (p *pace) see(all []Observation, now time.Time) {
	for _, o := range all {
		i := o.Signal.index()
		if i < 0 {
			continue
		}
		if o.Time.IsZero() {
			o.Time = now
		}
		last := p.last[i]
		took := o.Time.Sub(last.Time)
		if took <= 0 {
			continue
		}
		p.last[i] = o
		if last.Time.IsZero() {
			continue
		}
		rate := float64(last.Available-o.Available) / took.Seconds()
		p.worst[i] = max(rate, p.worst[i]*halved(took, forget))
		p.falls[i] = max(rate, p.falls[i]*halved(took, calm))
	}
}

// halved is a cheap curve that is 1 at once and a half after so long.
func halved(d, half time.Duration) float64 { return float64(half) / float64(half+d) }

// next returns how soon to look again: in a quarter of the time that the nearest
// threshold is away. That is not less than least, or a tenth of it while something
// is seen to fall so fast that it would pass a hard threshold between two looks.
func (p *pace) next(d *Decision, least, most time.Duration) time.Duration {
	next, fall := most, most
	for i := range d.Thresholds {
		r := &d.Thresholds[i]
		next = min(next, p.until(r, d.At, least, most))
		fall = min(fall, p.fall(r, d.At, most))
	}
	return min(max(next, least), max(fall, least/rush))
}

// fall is until for what the figure has done in the last moments alone, of which
// nothing is assumed.
func (p *pace) fall(r *Report, now time.Time, most time.Duration) time.Duration {
	if r.State != Fine || !r.Threshold.Hard() {
		return most
	}
	i := r.Threshold.Signal.index()
	rate := p.falls[i] * halved(now.Sub(p.last[i].Time), calm)
	return quarter(r, rate, most)
}

// quarter is a quarter of the time that a figure which shrinks at a rate takes to
// its threshold, or most if it does not.
func quarter(r *Report, rate float64, most time.Duration) time.Duration {
	if rate <= 0 {
		return most
	}
	seconds := float64(r.Observation.Available-r.Quantity) / rate / 4
	return time.Duration(min(seconds, most.Seconds()) * float64(time.Second))
}

func (p *pace) until(r *Report, now time.Time, least, most time.Duration) time.Duration {
	switch {
	case r.unmeasured() && p.last[r.Threshold.Signal.index()].Time.IsZero():
		return most
	case r.unmeasured(): // it was there, and may be near its threshold when it is again
		return settled
	case r.State == Fine:
		s := r.Threshold.Signal
		rate := max(s.assumed(), p.worst[s.index()])
		if !r.Since.IsZero() { // met until a moment ago
			most = settled
		}
		return quarter(r, rate, most)
	case !r.Due:
		return min(settled, r.Threshold.GracePeriod-now.Sub(r.Since))
	case r.Why == whyNobody:
		return settled
	default:
		return least
	}
}
