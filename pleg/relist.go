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

// roamed is how many pods are relisted after a global relist that failed with
// [ErrTooLarge].
const roamed = 16

// relist lists everything, finds out what has changed, and starts what has to be done
// about that. The caller of every function here holds step.
func (g *Generator) relist(p *pass) (Result, error) {
	g.cfg.Observer.RelistStart()
	at := g.cfg.Clock.Now() // before the first call: nothing in the lists is older
	var asked map[types.UID]bool
	var open *stream
	g.locked(func() { g.began, asked, open = at, g.takeAsked(), g.stream })
	objects, err := g.list(p.ctx, g.cfg.Lister, g.cfg.LabelSelector)
	g.noteRelist(p.ctx, at, err)
	var res Result
	if err == nil {
		g.judge(at, open, asked, g.compare(objects, at))
		res = count(objects)
		_, res.SetAside = g.troubles()
		uids := slices.Sorted(maps.Keys(g.dirty)) // in order, to make runs repeatable
		g.cfg.Cache.UpdateTime(at, uids...)
		for _, uid := range uids {
			g.proceed(p, g.dirty[uid])
		}
		res.Inspecting, _ = g.troubles()
	}
	delete(asked, "")
	if errors.Is(err, ErrTooLarge) { // no other global relist will do better
		for uid := range asked {
			g.RequestRelist(uid)
		}
	}
	res.At, res.Took = at, g.cfg.Clock.Since(at)
	if len(asked) > 0 {
		g.restSince(at)
	}
	g.locked(func() { g.began = time.Time{} })
	g.cfg.Observer.RelistEnd(res, err)
	return res, err
}

// noteRelist records the result of a relist for Healthy, and logs the beginning and the
// end of an outage, not every second of it.
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
		g.soon = true
	}
	g.mu.Unlock()
	switch {
	case err != nil && before == nil:
		g.cfg.Logger.ErrorContext(ctx, "relist failed", "err", err)
	case err == nil && before != nil:
		g.cfg.Logger.InfoContext(ctx, "relist succeeded again")
	}
}

// compare makes objects, listed at the given time, the newest listing and marks the
// pods that it shows changed as dirty. It returns the changed pods.
func (g *Generator) compare(objects []object, at time.Time) map[types.UID]bool {
	changed := map[types.UID]bool{}
	for _, c := range diff(g.listed, objects) {
		r := g.record(c.object.pod)
		g.dirty[r.uid], changed[r.uid] = r, true
	}
	g.listed = objects
	g.takeReinspects()
	for _, r := range g.dirty {
		r.seen, r.seenAt, r.complete = nil, at, true
	}
	for _, o := range objects {
		if r := g.dirty[o.pod]; r != nil {
			r.seen = append(r.seen, o)
		}
	}
	return changed
}

// record returns the record of a pod, made if needed.
func (g *Generator) record(uid types.UID) *record {
	r := g.records[uid]
	if r == nil {
		r = &record{uid: uid}
		g.records[uid] = r
	}
	return r
}

// takeReinspects moves the requests to their records. A request without a record is
// dropped: after a global listing, the pod does not exist.
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

// troubles returns how many pods are being inspected, and of how many the last
// inspection failed.
func (g *Generator) troubles() (inspecting, setAside int) {
	for _, r := range g.dirty {
		if r.busy {
			inspecting++
		}
		if r.failures > 0 {
			setAside++
		}
	}
	return inspecting, setAside
}

// relistPod is relist for one pod. It serves all requests and hints of the pod so far.
func (g *Generator) relistPod(p *pass, uid types.UID) error {
	at := g.cfg.Clock.Now()
	g.locked(func() {
		g.stats.PodRelists++
		maps.DeleteFunc(g.hints, func(h hint, _ time.Time) bool { return h.pod == uid })
	})
	labels := map[string]string{crilabels.PodUID: string(uid)}
	maps.Copy(labels, g.cfg.LabelSelector)
	objects, err := g.list(p.ctx, g.cfg.Runtime, labels)
	if err != nil {
		return fmt.Errorf("relist pod %s: %w", uid, err)
	}
	if g.records[uid] == nil && len(objects) == 0 {
		g.cfg.Cache.SetObservedTime(uid, at)
		return nil
	}
	r := g.record(uid)
	unlabelled := slices.DeleteFunc(slices.Clone(r.seen), func(o object) bool { return !o.unlabelled })
	objects = append(objects, unlabelled...)
	r.seen, r.seenAt, r.complete = objects, at, false
	g.dirty[uid] = r
	g.listed = append(slices.DeleteFunc(g.listed, func(o object) bool { return o.pod == uid }), objects...)
	g.mu.Lock()
	r.reinspect = r.reinspect || g.reinspects[uid]
	delete(g.reinspects, uid)
	g.mu.Unlock()
	g.proceed(p, r)
	return nil
}

// roam relists the next few of the known pods, for when the list of all is too large.
// It never learns of pods that no request or hint names, and does not make the cache
// fresh for any other pod. The first failure ends it.
func (g *Generator) roam(p *pass) {
	uids := slices.Sorted(maps.Keys(g.records))
	at, found := slices.BinarySearch(uids, g.visited)
	if found {
		at++
	}
	for i := range min(roamed, len(uids)) {
		uid := uids[(at+i)%len(uids)]
		if err := g.relistPod(p, uid); err != nil {
			return // the global relist has logged already that something is wrong
		}
		g.visited = uid
	}
}

// proceed does what is to be done about a pod after it was listed: the cache first, and
// then the events.
func (g *Generator) proceed(p *pass, r *record) {
	isSetAside := r.failures > 0 && g.cfg.Clock.Now().Before(r.retryAt)
	changed := len(diff(r.delivered, r.seen)) > 0
	switch {
	case r.busy: // the end of its inspection proceeds
	case len(r.seen) == 0:
		g.cfg.Cache.Delete(r.uid, r.seenAt)
		// If the pass is cut short, the cache is ahead of the handler. Should the pod return
		// to what the handler knows, it has to be inspected and delivered all the same.
		switch r.reinspect = !g.deliver(p.ctx, r, nil, r.reinspect); {
		case r.reinspect:
		case r.complete:
			delete(g.records, r.uid)
			delete(g.dirty, r.uid)
		default: // a reinspection may be requested until a global relist has shown the end
			*r = record{uid: r.uid}
		}
		g.locked(func() { _, g.stats.SetAside = g.troubles() })
	case isSetAside && changed:
		g.cfg.Cache.Set(r.uid, r.stale(), r.err, r.seenAt)
		g.deliver(p.ctx, r, r.seen, false)
	case !isSetAside && (r.failures > 0 || r.reinspect || changed || r.isDoubtful()):
		g.submit(p, r)
	default:
		g.cfg.Cache.SetObservedTime(r.uid, r.seenAt)
		if r.failures == 0 && r.contradicted.IsZero() {
			delete(g.dirty, r.uid)
		}
	}
}

// submit starts the inspection of r's newest listing.
func (g *Generator) submit(p *pass, r *record) {
	p.left++
	j := &job{
		pass: p, record: r, objects: r.seen, at: r.seenAt, queued: g.cfg.Clock.Now(),
		before: r.good, all: r.reinspect,
		again: r.failures > 0, podSync: r.reinspect || r.failures > 0,
	}
	r.busy, r.reinspect = true, false
	g.locked(func() {
		g.queue = append(g.queue, j)
		g.startJobs()
	})
}

// finish takes the result of an inspection: cache first, then the events, then
// what newer listings showed while it ran.
func (g *Generator) finish(j *job) {
	r, p := j.record, j.pass
	r.busy = false
	p.left--
	if j.err != nil && p.ctx.Err() != nil { // cut short; r stays dirty
		r.reinspect = r.reinspect || j.all
		return
	}
	now := g.cfg.Clock.Now()
	g.cfg.Observer.PodInspected(r.uid, now.Sub(j.queued), j.err)
	status, news := j.found.status, j.podSync && j.err == nil
	if j.err == nil {
		agrees := j.found.agrees(j.objects)
		// The cache was wrong although the list has not changed.
		news = news || agrees && !r.contradicted.IsZero() && !j.before.agrees(j.objects) && len(diff(r.delivered, j.objects)) == 0
		r.good, r.failures, r.err, r.contradicted = j.found, 0, nil, time.Time{}
		if !agrees {
			r.contradicted = j.at
		}
	} else {
		r.fail(j.err, now)
		r.reinspect = r.reinspect || j.all
		status = r.stale()
		p.errs = append(p.errs, fmt.Errorf("inspect pod %s: %w", r.uid, j.err))
		g.cfg.Logger.WarnContext(p.ctx, "pod inspection failed", "podUID", r.uid, "failures", r.failures, "err", j.err)
	}
	g.locked(func() {
		g.stats.Inspections++
		if j.err != nil {
			g.stats.FailedInspections++
		}
		_, g.stats.SetAside = g.troubles()
	})
	g.cfg.Cache.Set(r.uid, status, r.err, j.at)
	if !g.deliver(p.ctx, r, j.objects, news) {
		r.reinspect = true // see proceed
		return
	}
	g.proceed(p, r)
}

// deliver calls the handler with how objects differ from what it was told last, or, if
// podSync is set and they do not, with a PodSync. It reports whether it got to the end:
// a pass cut short leaves the rest to the next.
func (g *Generator) deliver(ctx context.Context, r *record, objects []object, podSync bool) bool {
	changes := diff(r.delivered, objects)
	r.delivered = slices.Clone(r.delivered) // for advance
	for _, c := range changes {
		first, second := transition(c.from, c.to)
		for _, kind := range []EventType{first, second} {
			e := Event{PodUID: r.uid, Type: kind, ContainerID: c.object.id}
			switch {
			case kind == "":
			case kind == ContainerChanged:
				g.cfg.Observer.Event(e)
			case !g.hand(ctx, e):
				return false
			default:
				podSync = false
				r.advance(c, kind)
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
