package pleg

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// maxSingle is how many pods are relisted one by one. For more, a list of all costs
// the runtime less. With a [Lister] of its own, which decodes only what has changed, a
// list of all is less for the agent too than the lists of two.
const maxSingle = 8

// asked is what a relist has to serve: requests, and hints, of which vague ones
// name no pod.
type asked struct {
	own, hinted map[types.UID]struct{}
	vague       bool
}

// uids returns the pods in order, which makes runs repeatable.
func (a asked) uids() []types.UID {
	if len(a.own)+len(a.hinted) == 0 {
		return nil
	}
	all := maps.Clone(a.own)
	if all == nil {
		all = map[types.UID]struct{}{}
	}
	maps.Copy(all, a.hinted)
	return slices.Sorted(maps.Keys(all))
}

// beginRelist takes everything that was asked for: a global relist serves it all, or
// if it fails, the next one does. It returns the stream that is open as well.
func (g *Generator) beginRelist(now time.Time) (by asked, stream int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.began = now
	by = asked{own: take(&g.relists), hinted: take(&g.hints.pods), vague: g.hints.vague}
	g.hints.vague, g.pace.soon = false, false
	if !now.Before(g.hints.resync) {
		g.hints.resync = time.Time{}
	}
	return by, g.pace.stream()
}

// takeSingle takes what is to be relisted pod by pod now.
func (g *Generator) takeSingle(now time.Time) asked {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resting(now) > 0 {
		return asked{}
	}
	by := asked{own: take(&g.relists)}
	if wait, ok := g.hints.wait(now); ok && wait <= 0 {
		by.hinted = take(&g.hints.pods)
		return by
	}
	for uid := range by.own { // whose hints that serves as well
		if _, hinted := g.hints.pods[uid]; hinted {
			if by.hinted == nil {
				by.hinted = map[types.UID]struct{}{}
			}
			by.hinted[uid] = struct{}{}
			delete(g.hints.pods, uid)
		}
	}
	return by
}

// resting returns how long no single pod is relisted. Longer than any rest means that
// the clock has stepped back. It needs mu.
func (g *Generator) resting(now time.Time) time.Duration {
	rest := g.rest.Sub(now)
	if rest > max(maxRest, resyncDelay) {
		return 0
	}
	return rest
}

// untilSingle returns the time until single pods are relisted; ok says that any are to
// be. It needs mu.
func (g *Generator) untilSingle(now time.Time) (wait time.Duration, ok bool) {
	wait, ok = g.hints.wait(now)
	if len(g.relists) > 0 {
		wait, ok = 0, true
	}
	return max(wait, g.resting(now)), ok
}

// take empties a set, without making a new one if it is empty already.
func take(set *map[types.UID]struct{}) map[types.UID]struct{} {
	if len(*set) == 0 {
		return nil
	}
	taken := *set
	*set = map[types.UID]struct{}{}
	return taken
}

// giveBack returns requests to the queue.
func (g *Generator) giveBack(by asked) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.Copy(g.relists, by.own)
	maps.Copy(g.relists, by.hinted)
}

// hurry asks for a global relist no later than the shortest period after the last,
// because something is left over that only that one will find.
func (g *Generator) hurry() {
	g.mu.Lock()
	g.pace.soon = true
	g.mu.Unlock()
	g.loop.Trigger()
}

// relistDue says whether it is time for a global relist. It needs step.
func (g *Generator) relistDue(now time.Time) bool {
	if g.untilRelist(now) <= 0 {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	many := len(g.relists)
	if wait, ok := g.hints.wait(now); ok && wait <= 0 {
		many += len(g.hints.pods)
	}
	return many > g.singles && g.resting(now) <= 0 && g.relistErr == nil
}

// untilRelist returns the time until the next global relist. If the last one is yet
// to come, the clock has stepped back. It needs step.
func (g *Generator) untilRelist(now time.Time) time.Duration {
	awaited := g.cfg.Cache.Waiting()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended.After(now) {
		return 0
	}
	due := g.ended.Add(g.pace.now(awaited || len(g.reinspects) > 0))
	if resync := g.hints.resync; !resync.IsZero() && resync.Before(due) {
		due = resync
	}
	return due.Sub(now)
}

// untilNext returns the time until there is anything to do. It needs step.
func (g *Generator) untilNext(now time.Time) time.Duration {
	wait := g.untilRelist(now)
	for _, r := range g.aside() {
		wait = min(wait, max(0, r.untilRetry(now)))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if single, ok := g.untilSingle(now); ok {
		wait = min(wait, max(0, single))
	}
	return wait
}

// retries returns the pods set aside whose time has come. It needs step.
func (g *Generator) retries(now time.Time) (uids []types.UID) {
	for _, r := range g.aside() {
		if r.untilRetry(now) <= 0 {
			uids = append(uids, r.uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// aside returns the pods that were set aside, as long as the global relists come
// too rarely to try them again. It needs step.
func (g *Generator) aside() (all []*record) {
	g.mu.Lock()
	few := g.stats.SetAside == 0 || g.pace.now(false) == g.pace.shortest
	g.mu.Unlock()
	if few {
		return nil
	}
	for _, r := range g.dirty {
		if r.failures > 0 && !r.busy {
			all = append(all, r)
		}
	}
	return all
}
