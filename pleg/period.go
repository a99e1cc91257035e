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
	// of the time that took, so that a flood of hints or requests becomes one relist of
	// all. maxRest is the longest, so that a request to a slow runtime does not wait for
	// several of its answers.
	restFactor = 3
	maxRest    = 100 * time.Millisecond
)

// plan returns what Run has to do now: to relist everything, or else the given pods, and
// otherwise to wait. It deletes hints whose effect is listed already. The caller holds
// step.
func (g *Generator) plan(now time.Time) (relist bool, pods []types.UID, wait time.Duration) {
	isAwaited := g.cfg.Cache.Waiting()
	g.mu.Lock()
	defer g.mu.Unlock()
	due := map[types.UID]bool{}
	wait = g.cfg.MaxPeriod
	add := func(uid types.UID, in time.Duration) {
		if wait = min(wait, max(0, in)); in <= 0 {
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
				add(uid, r.retryAt.Sub(now))
			}
		}
	}
	relistIn := g.ended.Add(period).Sub(now)
	if s := g.stream; s != nil && s.resync.After(g.ended) {
		relistIn = min(relistIn, s.resync.Sub(now))
	}
	relist = relistIn <= 0 || len(due) > g.singles && g.relistErr == nil
	return relist, slices.Sorted(maps.Keys(due)), min(wait, max(0, relistIn))
}

// addHints adds the pods of hints and requests, and drops the due hints that are no news
// any more. The caller holds step and mu.
func (g *Generator) addHints(now time.Time, add func(uid types.UID, in time.Duration)) {
	for h, at := range g.hints {
		in := max(at.Sub(now), g.rest.Sub(now))
		if in > 0 || h.pod != "" && g.isNews(h) {
			add(h.pod, in)
			continue
		}
		delete(g.hints, h)
		g.soon = g.soon || g.isNews(h)
	}
}

// period returns the time between two global relists: MaxPeriod while the stream of
// events can be relied on, and Period otherwise. The caller holds mu.
func (g *Generator) period(now time.Time) time.Duration {
	s := g.stream
	if s == nil || !s.proven || !s.synced || len(s.suspects) > 0 || now.Before(g.doubted) || g.relistErr != nil {
		return g.cfg.Period
	}
	return g.cfg.MaxPeriod
}

// asked returns the pods with requests or hints. An empty UID is among them if any other
// pod may have changed as well. The caller holds mu.
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

// takeAsked returns the same and clears it: a global relist serves it all. The caller holds mu.
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
	g.mu.Lock()
	defer g.mu.Unlock()
	if rest := now.Add(min(restFactor*now.Sub(began), maxRest)); rest.After(g.rest) {
		g.rest = rest
	}
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
