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

// maxRoundRobin is the number of pods that Run relists one by one after a global relist has
// failed with [ErrTooLarge].
const maxRoundRobin = 16

// relist lists everything, finds the changed pods and processes them. The callers of all
// functions in this file hold step.
func (g *Generator) relist(p *pass) (Result, error) {
	g.cfg.Observer.RelistStart()
	at := g.cfg.Clock.Now() // read before the lists, so that their contents are not older than this time
	var served map[types.UID]bool
	var open *stream
	g.locked(func() { g.relistBegan, served, open = at, g.drainRequests(), g.stream })
	objects, err := g.list(p.ctx, g.cfg.Lister, g.cfg.LabelSelector)
	g.recordRelist(p.ctx, at, err)
	var res Result
	if err == nil {
		g.checkMissedHints(at, open, served, g.compare(objects, at))
		res = count(objects)
		_, res.FailedPods = g.countDirty()
		uids := slices.Sorted(maps.Keys(g.dirty)) // sorted, so that the order of events is deterministic
		g.cfg.Cache.UpdateTime(at, uids...)
		for _, uid := range uids {
			g.processPod(p, g.dirty[uid])
		}
		res.Inspecting, _ = g.countDirty()
	}
	delete(served, "")
	switch {
	case errors.Is(err, ErrTooLarge): // the next global relist will fail as well
		g.locked(func() { g.requestAt(g.cfg.Clock.Now(), served) })
	case err != nil:
		g.locked(func() { g.requestAt(g.retryTime(), served) })
	}
	res.At, res.Took = at, g.cfg.Clock.Since(at)
	if len(served) > 0 {
		g.pauseSince(at)
	}
	g.locked(func() { g.relistBegan = time.Time{} })
	g.cfg.Observer.RelistEnd(res, err)
	return res, err
}

// recordRelist records the result of a global relist for Healthy. It logs the first failure
// and the first success after it, not each failure.
func (g *Generator) recordRelist(ctx context.Context, at time.Time, err error) {
	if err != nil && ctx.Err() != nil {
		return // the caller has cancelled the relist
	}
	g.mu.Lock()
	before := g.relistErr
	g.relistErr = err
	if err == nil {
		g.relistedAt = at
		g.stats.Relists++
	} else {
		g.stats.FailedRelists++
		g.dueSoon = true
	}
	g.mu.Unlock()
	switch {
	case err != nil && before == nil:
		g.cfg.Logger.ErrorContext(ctx, "relist of all pods failed, will retry", "period", g.cfg.Period, "err", err)
	case err == nil && before != nil:
		g.cfg.Logger.InfoContext(ctx, "relist of all pods succeeded again")
	}
}

// compare replaces the newest listing with the given objects, marks the changed pods as dirty,
// and returns the changed pods. The lists began at the time at.
func (g *Generator) compare(objects []object, at time.Time) map[types.UID]bool {
	changed := map[types.UID]bool{}
	for _, c := range diff(g.listed, objects) {
		r := g.record(c.object.pod)
		g.dirty[r.uid], changed[r.uid] = r, true
	}
	g.listed = objects
	g.assignReinspects()
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

// record returns the record of a pod and creates it if necessary.
func (g *Generator) record(uid types.UID) *record {
	r := g.records[uid]
	if r == nil {
		r = &record{uid: uid}
		g.records[uid] = r
	}
	return r
}

// assignReinspects moves the requested reinspections to the records of their pods. It drops a
// request if the pod has no record, because the global listing did not contain the pod.
func (g *Generator) assignReinspects() {
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

// countDirty returns the number of pods that are being inspected, and the number of pods
// whose last inspection failed.
func (g *Generator) countDirty() (inspecting, backedOff int) {
	for _, r := range g.dirty {
		if r.busy {
			inspecting++
		}
		if r.failures > 0 {
			backedOff++
		}
	}
	return inspecting, backedOff
}

// relistPod relists one pod. This serves all previous requests and hints of the pod.
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
	g.processPod(p, r)
	return nil
}

// relistNextPods relists the next few known pods in round-robin order. Run calls it while the
// list of all pods is too large. It does not find new pods, and does not update the global
// time of the cache. It stops at the first failure.
func (g *Generator) relistNextPods(p *pass) {
	uids := slices.Sorted(maps.Keys(g.records))
	at, found := slices.BinarySearch(uids, g.lastVisited)
	if found {
		at++
	}
	for i := range min(maxRoundRobin, len(uids)) {
		uid := uids[(at+i)%len(uids)]
		if err := g.relistPod(p, uid); err != nil {
			return // the failure of the global relist is logged already
		}
		g.lastVisited = uid
	}
}

// processPod processes the newest listing of a pod: it deletes the pod, starts an
// inspection, or updates the cache and delivers events. It updates the cache before it
// delivers events. If an inspection of the pod is in progress, it does nothing.
func (g *Generator) processPod(p *pass, r *record) {
	isBackedOff := r.failures > 0 && g.cfg.Clock.Now().Before(r.retryAt)
	changed := len(diff(r.delivered, r.seen)) > 0
	switch {
	case r.busy: // finish calls processPod after the inspection
	case len(r.seen) == 0:
		g.cfg.Cache.Delete(r.uid, r.seenAt)
		// If the pass is cancelled, the cache is newer than the delivered events. If the pod
		// then returns to the state of the last delivered event, diff finds no change.
		// The field reinspect ensures that the pod is still inspected and an event delivered.
		switch r.reinspect = !g.deliver(p.ctx, r, nil, r.reinspect); {
		case r.reinspect:
		case r.complete:
			delete(g.records, r.uid)
			delete(g.dirty, r.uid)
		default: // keep the record for reinspect requests until a global relist confirms the removal
			*r = record{uid: r.uid}
		}
		g.locked(func() { _, g.stats.FailedPods = g.countDirty() })
	case isBackedOff && changed:
		g.cfg.Cache.Set(r.uid, r.stale(), r.err, r.seenAt)
		g.deliver(p.ctx, r, r.seen, false)
	case !isBackedOff && (r.failures > 0 || r.reinspect || changed || r.needsConfirmation()):
		g.submit(p, r)
	default:
		g.cfg.Cache.SetObservedTime(r.uid, r.seenAt)
		if r.failures == 0 && r.contradictedAt.IsZero() {
			delete(g.dirty, r.uid)
		}
	}
}

// submit queues an inspection of the pod's newest listing.
func (g *Generator) submit(p *pass, r *record) {
	p.unfinished++
	j := &job{
		pass: p, record: r, objects: r.seen, at: r.seenAt, queued: g.cfg.Clock.Now(),
		before: r.good, all: r.reinspect,
		retry: r.failures > 0, podSync: r.reinspect || r.failures > 0,
	}
	r.busy, r.reinspect = true, false
	g.locked(func() {
		g.queue = append(g.queue, j)
		g.startJobs()
	})
}

// finish processes the result of an inspection. It updates the cache, delivers the events, and
// then processes the pod's newest listing.
func (g *Generator) finish(j *job) {
	r, p := j.record, j.pass
	r.busy = false
	p.unfinished--
	if j.err != nil && p.ctx.Err() != nil { // cancelled; r stays dirty
		r.reinspect = r.reinspect || j.all
		return
	}
	now := g.cfg.Clock.Now()
	g.cfg.Observer.PodInspected(r.uid, now.Sub(j.queued), j.err)
	status, podSync := j.found.status, j.podSync && j.err == nil
	if j.err == nil {
		agrees := j.found.agrees(j.objects)
		// A PodSync is also needed if the status in the cache was wrong although the list has
		// not changed.
		podSync = podSync || agrees && !r.contradictedAt.IsZero() && !j.before.agrees(j.objects) && len(diff(r.delivered, j.objects)) == 0
		r.good, r.failures, r.err, r.contradictedAt = j.found, 0, nil, time.Time{}
		if !agrees {
			r.contradictedAt = j.at
		}
	} else {
		r.fail(j.err, now)
		r.reinspect = r.reinspect || j.all
		status = r.stale()
		p.errs = append(p.errs, fmt.Errorf("inspect pod %s: %w", r.uid, j.err))
		g.cfg.Logger.WarnContext(p.ctx, "inspection of a pod failed, will retry", "podUID", r.uid, "failures", r.failures, "retryIn", r.retryAt.Sub(now), "err", j.err)
	}
	g.locked(func() {
		g.stats.Inspections++
		if j.err != nil {
			g.stats.FailedInspections++
		}
		_, g.stats.FailedPods = g.countDirty()
	})
	g.cfg.Cache.Set(r.uid, status, r.err, j.at)
	if !g.deliver(p.ctx, r, j.objects, podSync) {
		r.reinspect = true // see processPod
		return
	}
	g.processPod(p, r)
}

// deliver delivers the events of the changes since r.delivered. If no event results
// and podSync is set, it delivers a PodSync. It reports whether all events were delivered. If
// the pass is cancelled, the next pass delivers the remaining events.
func (g *Generator) deliver(ctx context.Context, r *record, objects []object, podSync bool) bool {
	changes := diff(r.delivered, objects)
	r.delivered = slices.Clone(r.delivered) // advance modifies it
	for _, c := range changes {
		first, second := transition(c.from, c.to)
		for _, kind := range []EventType{first, second} {
			e := Event{PodUID: r.uid, Type: kind, ContainerID: c.object.id}
			switch {
			case kind == "":
			case kind == ContainerChanged:
				g.cfg.Observer.Event(e)
			case !g.deliverEvent(ctx, e):
				return false
			default:
				podSync = false
				r.advance(c, kind)
			}
		}
	}
	r.delivered = objects
	return !podSync || g.deliverEvent(ctx, Event{PodUID: r.uid, Type: PodSync})
}

// deliverEvent delivers one event unless ctx is done. It reports whether it delivered the
// event.
func (g *Generator) deliverEvent(ctx context.Context, e Event) bool {
	if ctx.Err() != nil {
		return false
	}
	g.cfg.Handler(ctx, e)
	g.notifyWatchers(e)
	g.cfg.Observer.Event(e)
	return true
}
