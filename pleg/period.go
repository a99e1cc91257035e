package pleg

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxPodRelists is the maximum number of pods that Run relists one by one, unless the
	// last global relist failed. For more pods, a global relist costs the runtime less. With
	// a [Config].Lister, which decodes only changed items, a global relist costs less than
	// the relists of two pods.
	maxPodRelists = 8
	// pauseFactor is the length of the pause after relists for hints or requests, in
	// multiples of the duration of these relists. During the pause hints and requests
	// accumulate, so that one global relist can serve them. maxPause is the longest pause,
	// so that with a slow runtime a request does not wait for several times the duration of
	// a list.
	pauseFactor = 3
	maxPause    = 100 * time.Millisecond
)

// plan returns whether a global relist is due, the pods whose relists are due, and the time
// until Run must call plan again. It deletes hints whose changes are already listed. The
// caller holds step.
func (g *Generator) plan(now time.Time) (relist bool, pods []types.UID, wait time.Duration) {
	hasWaiters := g.cfg.Cache.Waiting()
	g.mu.Lock()
	defer g.mu.Unlock()
	due := map[types.UID]bool{}
	wait = g.cfg.MaxPeriod
	add := func(uid types.UID, in time.Duration) {
		if wait = min(wait, max(0, in)); in <= 0 {
			due[uid] = true
		}
	}
	g.addDueHints(now, add)
	period := g.period(now)
	if hasWaiters || g.dueSoon {
		period = g.cfg.Period
	}
	if period > g.cfg.Period { // otherwise the global relists are frequent enough for retries
		for uid, r := range g.dirty {
			if r.failures > 0 && !r.busy {
				add(uid, r.retryAt.Sub(now))
			}
		}
	}
	relistIn := g.lastRelistEnd.Add(period).Sub(now)
	if s := g.stream; s != nil && s.resync.After(g.lastRelistEnd) {
		relistIn = min(relistIn, s.resync.Sub(now))
	}
	relist = relistIn <= 0 || len(due) > g.podRelistLimit && g.relistErr == nil
	return relist, slices.Sorted(maps.Keys(due)), min(wait, max(0, relistIn))
}

// addDueHints calls add for the pods of hints and requests, and deletes the due hints whose
// changes are already listed. If a due hint names no pod and its change is not listed yet, a
// request for a global relist within Period replaces the hint. The caller holds step and mu.
func (g *Generator) addDueHints(now time.Time, add func(uid types.UID, in time.Duration)) {
	for h, at := range g.hints {
		in := max(at.Sub(now), g.pausedUntil.Sub(now))
		if in > 0 || h.pod != "" && g.isUnseen(h) {
			add(h.pod, in)
			continue
		}
		delete(g.hints, h)
		g.dueSoon = g.dueSoon || g.isUnseen(h)
	}
}

// period returns the time between two global relists: MaxPeriod while the event stream can
// be relied on, and Period otherwise. The caller holds mu.
func (g *Generator) period(now time.Time) time.Duration {
	s := g.stream
	if s == nil || !s.proven || !s.synced || len(s.unannounced) > 0 || now.Before(g.distrustedUntil) || g.relistErr != nil {
		return g.cfg.Period
	}
	return g.cfg.MaxPeriod
}

// requestedPods returns the pods with requests or hints. The result contains the empty UID
// if any other pod may have changed as well. The caller holds mu.
func (g *Generator) requestedPods() map[types.UID]bool {
	pods := map[types.UID]bool{}
	for h := range g.hints {
		pods[h.pod] = true
	}
	if g.dueSoon {
		pods[""] = true
	}
	return pods
}

// drainRequests returns the result of requestedPods and deletes all requests and hints,
// because a global relist serves all of them. The caller holds mu.
func (g *Generator) drainRequests() map[types.UID]bool {
	pods := g.requestedPods()
	clear(g.hints)
	g.dueSoon = false
	return pods
}

// requestAt requests relists of the pods at the given time. It ignores the empty UID. The caller
// holds mu.
func (g *Generator) requestAt(at time.Time, pods map[types.UID]bool) {
	for uid := range pods {
		if uid != "" {
			g.hints[hint{pod: uid, kind: requested}] = at
		}
	}
}

// retryTime returns when the request of a pod is served again after a list has failed: after the
// next global relist, which serves the request if it succeeds.
func (g *Generator) retryTime() time.Time { return g.cfg.Clock.Now().Add(2 * g.cfg.Period) }

// requestRelistSoon requests a global relist within Period after the last global relist.
func (g *Generator) requestRelistSoon() {
	g.locked(func() { g.dueSoon = true })
	g.loop.Trigger()
}

// pauseSince pauses relists for hints and requests, so that the runtime has time for other
// calls. The previous relists took from began until now.
func (g *Generator) pauseSince(began time.Time) {
	now := g.cfg.Clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if until := now.Add(min(pauseFactor*now.Sub(began), maxPause)); until.After(g.pausedUntil) {
		g.pausedUntil = until
	}
}

// checkMissedHints checks whether the stream announced the changes that a global relist
// found. The set changed contains the pods with such changes; checkMissedHints modifies this
// set. The relist began at the time at, when s was the open stream (nil: no stream was open).
// The set served contains the pods whose requests and hints the relist served.
func (g *Generator) checkMissedHints(at time.Time, s *stream, served, changed map[types.UID]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s == nil || s != g.stream {
		return
	}
	if missed := len(s.unannounced); missed > 0 {
		g.stats.MissedHints += uint64(missed)
		g.distrustedUntil = at.Add(distrustPeriod)
	}
	late := g.requestedPods() // pods of events that arrived during the list
	maps.DeleteFunc(changed, func(uid types.UID, _ bool) bool {
		return !s.synced || served[uid] || served[""] || late[uid] || late[""]
	})
	s.unannounced = changed
	s.synced = s.synced || !at.Before(s.resync)
}
