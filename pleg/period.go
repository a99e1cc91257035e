package pleg

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxSingle is how many pods are relisted one by one. For more, a list of all costs
	// the runtime less. With a [Lister] of its own, which decodes only what has changed, a
	// list of all is less for the agent too than the lists of two.
	maxSingle = 8
	// restFactor is how long no single pod is relisted after some were, in multiples
	// of the time that took: a flood of hints or requests takes a quarter of one core
	// at most, and becomes one relist of all. maxRest is the longest, so that a request
	// to a slow runtime does not wait for several of its answers.
	restFactor = 3
	maxRest    = 100 * time.Millisecond
)

// plan returns what Run has to do now: to relist everything, or else the given pods, and
// otherwise to wait. It needs step.
func (g *Generator) plan(now time.Time) (relist bool, pods []types.UID, wait time.Duration) {
	isAwaited := g.cfg.Cache.Waiting()
	g.mu.Lock()
	defer g.mu.Unlock()
	due := map[types.UID]bool{}
	next := now.Add(g.cfg.MaxPeriod)
	add := func(uid types.UID, at time.Time) {
		if at.After(now) {
			next = earlier(next, at)
		} else {
			due[uid] = true
		}
	}
	g.addHints(now, add)
	period := g.period(now)
	if isAwaited || g.soon {
		period = g.cfg.Period
	}
	if period > g.cfg.Period { // else the global relists retry the pods set aside in time
		for uid, r := range g.dirty {
			if r.failures > 0 && !r.busy {
				add(uid, r.retryAt)
			}
		}
	}
	relistAt := g.ended.Add(period)
	if s := g.stream; s != nil && s.resync.After(g.ended) {
		relistAt = earlier(relistAt, s.resync)
	}
	relist = !relistAt.After(now) || len(due) > g.singles && g.relistErr == nil
	if !relist && len(due) == 0 {
		wait = earlier(next, relistAt).Sub(now)
	}
	return relist, slices.Sorted(maps.Keys(due)), wait
}

// addHints adds the pods of hints and requests, and drops the due hints that are no news
// any more. It needs step and mu.
func (g *Generator) addHints(now time.Time, add func(uid types.UID, at time.Time)) {
	for h, at := range g.hints {
		at = later(at, g.rest)
		if at.After(now) || h.pod != "" && g.isNews(h) {
			add(h.pod, at)
			continue
		}
		delete(g.hints, h)
		g.soon = g.soon || g.isNews(h)
	}
}

// period returns the time between two global relists: MaxPeriod while the stream of
// events can be relied on, and Period otherwise. It needs mu.
func (g *Generator) period(now time.Time) time.Duration {
	s := g.stream
	if s == nil || !s.proven || !s.synced || len(s.suspects) > 0 || now.Before(g.doubted) || g.relistErr != nil {
		return g.cfg.Period
	}
	return g.cfg.MaxPeriod
}

// asked returns the pods with requests or hints. An empty UID is among them if any other
// pod may have changed as well. It needs mu.
func (g *Generator) asked() map[types.UID]bool {
	pods := map[types.UID]bool{}
	for h := range g.hints {
		pods[h.pod] = true
	}
	if g.soon {
		pods[""] = true
	}
	return pods
}

// takeAsked returns the same and clears it: a global relist serves it all. It needs mu.
func (g *Generator) takeAsked() map[types.UID]bool {
	pods := g.asked()
	clear(g.hints)
	g.soon = false
	return pods
}

// hurry asks for a global relist no later than Period after the last, because
// something is left over that only that one will find.
func (g *Generator) hurry() {
	g.locked(func() { g.soon = true })
	g.loop.Trigger()
}

// restSince leaves the runtime time for others after hints and requests were served.
func (g *Generator) restSince(began time.Time) {
	now := g.cfg.Clock.Now()
	g.locked(func() { g.rest = later(g.rest, now.Add(min(restFactor*now.Sub(began), maxRest))) })
}

// judge compares the pods that a relist has found changed with what the stream had
// announced. The relist began at the given time, with the given stream, and served asked.
func (g *Generator) judge(at time.Time, s *stream, asked, changed map[types.UID]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s == nil || s != g.stream {
		return
	}
	if missed := len(s.suspects); missed > 0 {
		g.stats.MissedHints += uint64(missed)
		g.doubted = at.Add(doubt)
	}
	late := g.asked() // events may have come during the list
	maps.DeleteFunc(changed, func(uid types.UID, _ bool) bool {
		return !s.synced || asked[uid] || asked[""] || late[uid] || late[""]
	})
	s.suspects = changed
	s.synced = s.synced || !at.Before(s.resync)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
