package pleg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/crilabels"
)

// relist lists everything, finds out what has changed, and sets off what has to
// be done about that. All of this file needs step.
func (g *Generator) relist(p *pass) (Result, error) {
	g.cfg.Observer.RelistStart()
	res := Result{At: g.cfg.Clock.Now()}
	at := g.look(res.At) // before the first call: nothing is older
	by, stream := g.beginRelist(res.At)
	err := g.spare.list(p.ctx, g.cfg.ListTimeout, g.cfg.Lister, g.cfg.LabelSelector, g.listed)
	g.noteRelist(p.ctx, res.At, err)
	if err == nil {
		surprises := g.compare(at)
		g.judge(surprises, by, stream)
		later := g.reconcileDirty(p, at)
		g.report(&res)
		for _, r := range later {
			g.settle(p, r)
		}
	} else if errors.Is(err, ErrTooLarge) {
		g.giveBack(by) // no other global relist will do better
	}
	res.Took = g.cfg.Clock.Since(res.At)
	if len(by.own)+len(by.hinted) > 0 {
		g.restSince(res.At)
	}
	g.note(func(*Stats) { g.began = time.Time{} })
	g.cfg.Observer.RelistEnd(res, err)
	return res, err
}

// look returns the time of a look at the runtime that begins now. It never goes
// back, because the cache keeps what is newer.
func (g *Generator) look(now time.Time) time.Time {
	if now.After(g.looked) {
		g.looked = now
	}
	return g.looked
}

// judge sets the pace by what a relist found.
func (g *Generator) judge(surprises map[types.UID]struct{}, by asked, stream int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.hints.pods) > 0 { // they came during the list
		by.hinted = maps.Clone(by.hinted)
		if by.hinted == nil {
			by.hinted = map[types.UID]struct{}{}
		}
		maps.Copy(by.hinted, g.hints.pods)
	}
	by.vague = by.vague || g.hints.vague
	g.stats.MissedHints += uint64(g.pace.judge(surprises, by, stream))
}

// noteRelist keeps what Healthy tells, and logs the beginning and the end of an
// outage, not every second of it.
func (g *Generator) noteRelist(ctx context.Context, at time.Time, err error) {
	if err != nil && ctx.Err() != nil {
		return // our caller's doing
	}
	g.mu.Lock()
	before := g.relistErr
	g.relistErr = err
	if err == nil {
		g.relistedAt = at
		g.stats.Relists++
	} else {
		g.stats.FailedRelists++
		g.pace.failed()
	}
	g.mu.Unlock()
	switch {
	case err != nil && before == nil:
		g.cfg.Logger.ErrorContext(ctx, "relist failed", "err", err)
	case err == nil && before != nil:
		g.cfg.Logger.InfoContext(ctx, "relist succeeded again")
	}
}

// compare takes the spare listing, begun at the given time, as the newest, and
// marks as dirty whom it shows changed. It returns the pods with a change that no
// relist of their own has shown before, as far as that matters.
func (g *Generator) compare(at time.Time) (surprises map[types.UID]struct{}) {
	g.changes = diff(g.changes[:0], g.listed, g.spare)
	for _, c := range g.changes {
		r := g.records[c.object.pod]
		if r == nil {
			r = &record{uid: c.object.pod}
			g.records[r.uid] = r
		}
		g.dirty[r.uid] = r
		if g.cfg.Events != nil && !r.knows(c) {
			if surprises == nil {
				surprises = map[types.UID]struct{}{}
			}
			surprises[r.uid] = struct{}{}
		}
	}
	clear(g.changes)
	if len(g.changes) > 0 { // else the old one says the same, and has its index
		g.listed, g.spare = g.spare, g.listed
		g.counts = count(g.listed)
	}
	g.takeReinspects()
	if len(g.dirty) == 0 {
		return surprises
	}
	for _, r := range g.dirty {
		r.seen, r.seenAt, r.complete = nil, at, true
	}
	for i := range g.listed.objects {
		o := &g.listed.objects[i]
		if r := g.dirty[o.pod]; r != nil {
			r.seen = append(r.seen, *o)
		}
	}
	return surprises
}

// takeReinspects moves the requests to their records. After a global listing, one
// without a record is for nobody.
func (g *Generator) takeReinspects() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for uid := range g.reinspects {
		if r := g.records[uid]; r != nil {
			r.reinspect = true
			g.dirty[uid] = r
		}
	}
	clear(g.reinspects)
}

// reconcileDirty acts on all dirty records and makes the cache as new as at, but
// for those whose inspection is under way. It returns those who have events to
// deliver: that waits until the cache has been told everything.
func (g *Generator) reconcileDirty(p *pass, at time.Time) (later []*record) {
	g.pending = g.pending[:0]
	for _, uid := range g.dirtyInOrder() {
		r := g.dirty[uid]
		switch g.reconcile(p, r) {
		case inspect, wait:
			g.pending = append(g.pending, uid)
		case announce, forget:
			later = append(later, r)
		case rest:
		}
	}
	g.cfg.Cache.UpdateTime(at, g.pending...)
	return later
}

// dirtyInOrder makes runs repeatable.
func (g *Generator) dirtyInOrder() []types.UID {
	if len(g.dirty) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(g.dirty))
}

// report fills in what the relist found.
func (g *Generator) report(res *Result) {
	at := res.At
	*res = g.counts
	res.At, res.Inspecting = at, len(g.pending)
	for _, r := range g.dirty {
		if r.failures > 0 {
			res.SetAside++
		}
	}
}

// count returns what a listing shows.
func count(l *listing) (res Result) {
	ready := map[types.UID]bool{} // by pod
	for i := range l.objects {
		o := &l.objects[i]
		ready[o.pod] = ready[o.pod] || o.sandbox && o.state == running
		switch {
		case o.sandbox:
		case o.state == running:
			res.RunningContainers++
		case o.state == exited:
			res.ExitedContainers++
		default:
			res.OtherContainers++
		}
	}
	res.Pods = len(ready)
	for _, r := range ready {
		if r {
			res.RunningPods++
		}
	}
	return res
}

// relistPod is relist for one pod.
func (g *Generator) relistPod(p *pass, uid types.UID) error {
	at := g.look(g.cfg.Clock.Now())
	g.note(func(s *Stats) { s.PodRelists++ })
	labels := map[string]string{crilabels.PodUID: string(uid)}
	maps.Copy(labels, g.cfg.LabelSelector)
	l := &listing{}
	if err := l.list(p.ctx, g.cfg.ListTimeout, g.cfg.Runtime, labels, nil); err != nil {
		return fmt.Errorf("relist pod %s: %w", uid, err)
	}
	r := g.records[uid]
	if r == nil && len(l.objects) == 0 {
		g.cfg.Cache.SetObservedTime(uid, at)
		return nil
	}
	if r == nil {
		r = &record{uid: uid}
		g.records[uid] = r
	}
	for _, o := range r.seen {
		if o.unlabelled {
			l.objects = append(l.objects, o)
		}
	}
	// The next global relist compares with the one before it, not with this.
	r.seen, r.seenAt, r.complete = l.objects, at, false
	g.dirty[uid] = r
	g.mu.Lock()
	if _, asked := g.reinspects[uid]; asked {
		r.reinspect = true
		delete(g.reinspects, uid)
	}
	g.mu.Unlock()
	g.proceed(p, r)
	return nil
}

// reconcile does what the record calls for, except to deliver events, and returns
// what that was.
func (g *Generator) reconcile(p *pass, r *record) action {
	act := r.next(g.cfg.Clock.Now())
	switch act {
	case inspect:
		g.submit(p, r)
	case announce:
		g.cfg.Cache.Set(r.uid, r.stale(), r.err, r.seenAt)
	case forget:
		g.cfg.Cache.Delete(r.uid, r.seenAt)
	case rest:
		if r.failures == 0 && r.complete {
			delete(g.dirty, r.uid)
		}
	case wait:
	}
	return act
}

// proceed is reconcile for one record on its own: it delivers as well, and where
// there was nothing to do it says so to the cache.
func (g *Generator) proceed(p *pass, r *record) {
	switch g.reconcile(p, r) {
	case announce, forget:
		g.settle(p, r)
	case rest:
		g.cfg.Cache.SetObservedTime(r.uid, r.seenAt)
	case inspect, wait:
	}
}

// settle delivers the events of a record that is announced or forgotten.
func (g *Generator) settle(p *pass, r *record) {
	if len(r.seen) > 0 {
		g.deliver(p.ctx, r, r.seen, false)
		return
	}
	if !g.deliver(p.ctx, r, nil, r.reinspect) {
		// The cache is ahead of the handler now. Should the pod return to what the
		// handler knows, that is no change, but still to be looked at and told.
		r.reinspect = true
		return
	}
	g.leave(r)
	if r.complete {
		delete(g.records, r.uid)
		delete(g.dirty, r.uid)
		return
	}
	// Only a global relist settles that a pod is gone: it compares with the one
	// before, so a pod that this one still lists would else stay unnoticed.
	*r = record{uid: r.uid}
}

// submit sets off the inspection of r's newest listing.
func (g *Generator) submit(p *pass, r *record) {
	p.left++
	g.pool.submit(&job{
		pass: p, record: r, objects: r.seen, at: r.seenAt, queued: g.cfg.Clock.Now(),
		with:  inspector{runtime: g.cfg.Runtime, before: r.good, all: r.reinspect},
		again: r.failures > 0, podSync: r.reinspect || r.failures > 0,
	})
	r.busy, r.reinspect = true, false
}

// finish takes the result of an inspection: cache first, then the events, then
// what newer listings showed while it ran.
func (g *Generator) finish(j *job) {
	r, p := j.record, j.pass
	r.busy = false
	defer func() {
		if p.left--; p.left == 0 {
			notify(p.idle)
		}
	}()
	if j.err != nil && p.ctx.Err() != nil { // cut short; r stays dirty
		r.reinspect = r.reinspect || j.with.all
		return
	}
	now := g.cfg.Clock.Now()
	g.cfg.Observer.PodInspected(r.uid, now.Sub(j.queued), j.err)
	status := j.found.status
	g.noteInspection(r, j.err)
	if j.err == nil {
		r.succeed(j.found)
	} else {
		r.fail(j.err, now)
		r.reinspect = r.reinspect || j.with.all
		status = r.stale()
		p.errs = append(p.errs, fmt.Errorf("inspect pod %s: %w", r.uid, j.err))
		g.cfg.Logger.WarnContext(p.ctx, "pod inspection failed", "podUID", r.uid, "failures", r.failures, "err", j.err)
	}
	g.cfg.Cache.Set(r.uid, status, r.err, j.at)
	if !g.deliver(p.ctx, r, j.objects, j.podSync && j.err == nil) {
		r.reinspect = true // see settle
		return
	}
	g.proceed(p, r)
}

// deliver tells the handler how objects differ from what it was told last, or, if
// podSync is set and they do not, that the pod was inspected. It reports whether it
// got to the end: a pass cut short leaves the rest to the next.
func (g *Generator) deliver(ctx context.Context, r *record, objects []object, podSync bool) bool {
	changes := r.changesTo(objects)
	for i := range changes {
		c := &changes[i]
		first, second := transition(c.from, c.to)
		for _, event := range [...]EventType{first, second} {
			switch {
			case event == "":
			case event == ContainerChanged:
				g.cfg.Observer.Event(Event{PodUID: r.uid, Type: event, ContainerID: c.object.id})
			case g.hand(ctx, Event{PodUID: r.uid, Type: event, ContainerID: c.object.id}):
				podSync = false
			case event == second: // the first one was delivered
				c.to = exited
				r.advance(changes[:i+1])
				return false
			default:
				r.advance(changes[:i])
				return false
			}
		}
	}
	r.delivered = objects
	return !podSync || g.hand(ctx, Event{PodUID: r.uid, Type: PodSync})
}

// hand delivers one event, unless ctx is done.
func (g *Generator) hand(ctx context.Context, e Event) bool {
	if ctx.Err() != nil {
		return false
	}
	g.cfg.Handler(ctx, e)
	g.offer(e)
	g.cfg.Observer.Event(e)
	return true
}
