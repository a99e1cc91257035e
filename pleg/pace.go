package pleg

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// standing is what a global relist says of the stream of hints.
type standing struct {
	// steady: the stream was open at this relist and at the one before, without a
	// break. trusted: this stream has sent an event, and no hint was missed since one
	// last proved true. surprised: the relist found a change that no hint has announced
	// so far.
	steady, trusted, surprised bool
}

// nextPeriod returns the time until the next global relist. It doubles as long as
// the stream leaves nothing to be found, and falls back to the shortest as soon as
// there is any doubt.
func nextPeriod(last, shortest, longest time.Duration, s standing) time.Duration {
	switch {
	case !s.steady || !s.trusted || s.surprised:
		return shortest
	case last > longest/2:
		return max(shortest, longest)
	default:
		return max(shortest, 2*last)
	}
}

// pace is the period of the global relists, and why. It belongs to the generator's mu.
type pace struct {
	shortest, longest time.Duration
	period            time.Duration
	// opened counts the streams opened, up says that the last one is still open, and
	// known is the one that was open when the last relist began, or 0.
	opened, known int
	up            bool
	// proven means that the open stream has sent an event. A stream of containerd 1.7
	// may stay silent although it is open: all streams share one channel there, and one
	// whose client has gone takes an event before it ends.
	proven bool
	// trusted is lost by a hint that was missed and regained by one that came. A new
	// stream has the benefit of the doubt, once in the life of a generator.
	trusted bool
	// suspects are the pods of surprises. The list may just have been faster than
	// the event, so there is time until the next relist for that to come.
	suspects map[types.UID]struct{}
	// soon asks for a relist after the shortest period.
	soon bool
}

func newPace(shortest, longest time.Duration) pace {
	return pace{
		shortest: shortest, longest: max(shortest, longest), period: shortest,
		trusted: true, suspects: map[types.UID]struct{}{},
	}
}

// open notes that the stream is open, and reports whether that is news.
func (p *pace) open() bool {
	if p.up {
		return false
	}
	p.up = true
	p.opened++
	return true
}

// down notes that there is no stream: only lists are left.
func (p *pace) down() {
	p.up, p.proven = false, false
	p.period = p.shortest
	clear(p.suspects)
}

// heard notes a hint of the pod.
func (p *pace) heard(uid types.UID) {
	p.proven = true
	if _, late := p.suspects[uid]; late {
		delete(p.suspects, uid)
		p.trusted = true
	}
}

// heardVaguely notes an event of whatever pod.
func (p *pace) heardVaguely() {
	p.proven = true
	clear(p.suspects)
}

// stream returns which stream is open, or 0.
func (p *pace) stream() int {
	if !p.up {
		return 0
	}
	return p.opened
}

// failed notes a relist that failed.
func (p *pace) failed() {
	p.known, p.period, p.soon = 0, p.shortest, true
	clear(p.suspects)
}

// judge takes what a relist found: the pods with changes that nobody had seen, what
// was asked for when it began or since, and the stream that was open then. It sets
// the period and returns how many hints were missed.
func (p *pace) judge(surprises map[types.UID]struct{}, by asked, stream int) (missed int) {
	s := standing{steady: stream != 0 && stream == p.known && stream == p.stream()}
	p.known = stream
	if s.steady {
		missed = len(p.suspects)
	}
	clear(p.suspects)
	if s.steady {
		maps.Copy(p.suspects, surprises)
	}
	for uid := range surprises {
		if _, hinted := by.hinted[uid]; hinted {
			p.trusted = true
			delete(p.suspects, uid)
		}
		if _, own := by.own[uid]; own || by.vague {
			delete(p.suspects, uid)
		}
	}
	if missed > 0 {
		p.trusted = false
	}
	s.trusted, s.surprised = p.trusted && p.proven, len(p.suspects) > 0
	p.period = nextPeriod(p.period, p.shortest, p.longest, s)
	return missed
}

// now returns the period that holds while somebody waits, or nobody does.
func (p *pace) now(awaited bool) time.Duration {
	if awaited || p.soon {
		return p.shortest
	}
	return p.period
}
