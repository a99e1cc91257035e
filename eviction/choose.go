package eviction

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// whyNobody is [Report.Why] of a threshold that nothing can be done about.
const whyNobody = "there is no pod to evict"

// choose goes through the thresholds that are due, the most urgent first. What
// each needs is begun, but pods are chosen for one of them only: what that frees
// is not known before it has. Nothing is begun beside evictions for limits, which
// may free enough.
func (e *evaluation) choose() {
	due, limits := e.due(), e.evictsForLimits()
	for i := range due {
		r := due[i]
		if limits {
			r.Why = "pods are evicted for their limits first"
			continue
		}
		if i == 0 {
			e.d.urgent = r
		}
		e.escalate(r)
		r.InFlight, r.Pending = e.expected(r)
		switch wait := e.reclaim(r); {
		case r.Pending:
			r.Why = "an eviction is under way that may free an unknown amount"
		case r.InFlight >= r.Shortfall:
			r.Why = "what is being evicted frees enough"
		case wait != "":
			r.Why = wait
		case e.d.Signal != "":
			r.Why = "after " + string(e.d.Signal)
		case e.places(r.Threshold.Hard()) <= 0:
			r.Why = "as many pods are being evicted as may be at a time"
		case e.obs.PodStats == nil:
			e.d.NeedPods = true
			r.Why = "a pod has to go"
		default:
			e.victims(r)
		}
	}
}

// evictsForLimits reports whether a pod is evicted for a limit for the first time. One
// that could not be killed before holds up nothing.
func (e *evaluation) evictsForLimits() bool {
	return slices.ContainsFunc(e.d.Limits, func(b Breach) bool {
		_, again := e.s.NotBefore[b.Pod.UID]
		return !again
	})
}

// due returns the thresholds to act upon in the order of urgency.
func (e *evaluation) due() (due []*Report) {
	for i := range e.d.Thresholds {
		r := &e.d.Thresholds[i]
		switch {
		case r.Due && r.Old:
			r.Why = "not measured since the last look"
		case r.Due:
			due = append(due, r)
		}
	}
	slices.SortStableFunc(due, func(a, b *Report) int {
		return cmp.Or(
			first(a.Threshold.Hard(), b.Threshold.Hard()),
			cmp.Compare(a.Threshold.Signal.urgency(), b.Threshold.Signal.urgency()),
			cmp.Compare(a.ratio(), b.ratio()),
		)
	})
	return due
}

// escalate has pods end at once that are ending slowly for a soft threshold, as
// far as the hard threshold r needs them.
func (e *evaluation) escalate(r *Report) {
	if !r.Threshold.Hard() {
		return
	}
	s := r.Threshold.Signal
	free, _ := e.expected(r)
	for i := range e.s.InFlight {
		f := &e.s.InFlight[i]
		frees, known := f.Frees[s]
		if f.Hard || f.Ended || free >= r.Shortfall || known && frees <= 0 || slices.Contains(e.d.Escalate, f.UID) {
			continue
		}
		e.d.Escalate = append(e.d.Escalate, f.UID)
		free = plus(free, frees)
	}
}

// expected returns what the evictions under way free of r's signal, and whether
// one of them frees an amount that nobody knows. For a hard threshold only those
// count that end at once.
func (e *evaluation) expected(r *Report) (sum int64, unknown bool) {
	for i := range e.s.InFlight {
		f := &e.s.InFlight[i]
		if !f.counts(r.Threshold.Signal, e.now) {
			// The deadline of a slow end is no longer its own once it is escalated.
			if f.Hard || f.Ended || !slices.Contains(e.d.Escalate, f.UID) {
				continue
			}
		}
		if r.Threshold.Hard() && !f.Hard && !f.Ended && !slices.Contains(e.d.Escalate, f.UID) {
			continue
		}
		frees, known := f.Frees[r.Threshold.Signal]
		unknown = unknown || !known
		sum = plus(sum, frees)
	}
	return sum, unknown
}

// reclaim plans the next step of the node-level reclaim for r, and returns why pods
// have to wait for it; empty if they don't. Each step is followed by a new figure, and
// a round of them by evictions, however long the round and the figures took.
func (e *evaluation) reclaim(r *Report) (wait string) {
	actions := e.actions(r.Threshold.Signal)
	var ended time.Time
	for _, a := range actions {
		last := e.s.Reclaims[a]
		if last.running() {
			if e.now.Sub(last.Began) < e.p.ReclaimTimeout {
				return "disk is being reclaimed"
			}
			return ""
		}
		ended = later(ended, last.Ended)
	}
	for i, a := range actions {
		again := ended.IsZero() || e.now.Sub(ended) >= e.p.ReclaimInterval && e.isAnswered(r.Threshold, ended)
		if i > 0 {
			again = e.s.Reclaims[a].Ended.Before(e.s.Reclaims[actions[i-1]].Ended)
		}
		if again {
			if !slices.ContainsFunc(e.d.Reclaim, func(p ReclaimPlan) bool { return p.Action == a }) {
				e.d.Reclaim = append(e.d.Reclaim, ReclaimPlan{Action: a, Signal: r.Threshold.Signal, Amount: r.Shortfall})
			}
			return "disk is reclaimed first"
		}
	}
	return ""
}

// isAnswered reports whether a round of reclaims for th that ended at a time was followed
// by a figure, with which pods could go, or by the end of the shortage.
func (e *evaluation) isAnswered(th Threshold, ended time.Time) bool {
	if !e.wasDue(th) {
		return true
	}
	last, _ := find(e.s.LastObservations, th.Signal)
	if last.Time.IsZero() {
		return e.s.EvaluatedAt.After(ended)
	}
	return last.Time.After(ended)
}

// actions returns what frees the disk of s and can be done.
func (e *evaluation) actions(s Signal) (all []ReclaimAction) {
	containers, images := s.reclaims(e.s.Layout)
	if containers && slices.Contains(e.p.Reclaimers, DeleteContainers) {
		all = append(all, DeleteContainers)
	}
	if images && slices.Contains(e.p.Reclaimers, DeleteImages) {
		all = append(all, DeleteImages)
	}
	return all
}

// victims chooses the pods to evict for r: the shortest part of the order that is
// expected to free enough.
func (e *evaluation) victims(r *Report) {
	candidates := Rank(r.Threshold.Signal, e.s, e.obs, e.p, e.now)
	e.noteMissing(candidates)
	free, places := r.InFlight, e.places(r.Threshold.Hard())
	for i := range candidates {
		c := &candidates[i]
		if c.Kept != "" || e.breaches(c.Pod.UID) {
			continue
		}
		if places <= 0 || free >= r.Shortfall {
			break
		}
		places--
		free = plus(free, c.Usage.Value)
		e.d.Victims = append(e.d.Victims, Victim{
			Candidate: *c, Place: i, GracePeriodSeconds: e.p.grace(c.Pod, r.Threshold.Hard()),
		})
		if !c.Usage.Known() {
			break // nobody knows what is still missing after it
		}
	}
	if len(e.d.Victims) == 0 {
		r.Why = whyNobody
		if e.d.Candidates == nil {
			e.d.Candidates = candidates
		}
		return
	}
	r.Why = "pods are evicted"
	e.d.Signal, e.d.Threshold, e.d.Candidates = r.Threshold.Signal, r, candidates
}

// noteMissing notes which pods have no figures, and since when.
func (e *evaluation) noteMissing(candidates []Candidate) {
	e.missing = map[types.UID]time.Time{}
	for i := range candidates {
		if uid := candidates[i].Pod.UID; candidates[i].Missing {
			if e.missing[uid] = e.now; !e.s.StatsMissingSince[uid].IsZero() {
				e.missing[uid] = e.s.StatsMissingSince[uid]
			}
		}
	}
}

// places returns how many more pods may end at a time. One that could not be killed
// keeps its place for as long as it is left alone: a runtime that is down for a second
// must not cost the node all its pods, one failure after the other.
func (e *evaluation) places(hard bool) int {
	n := e.p.MaxParallelEvictions
	for _, again := range e.s.NotBefore {
		if again.After(e.now) {
			n--
		}
	}
	for i := range e.s.InFlight {
		f := &e.s.InFlight[i]
		if !f.Ended && e.now.Before(f.Deadline) && (!hard || f.Hard || slices.Contains(e.d.Escalate, f.UID)) {
			n--
		}
	}
	return n
}

// breaches says whether the pod is evicted for a limit in this evaluation.
func (e *evaluation) breaches(uid types.UID) bool {
	return slices.ContainsFunc(e.d.Limits, func(b Breach) bool { return b.Pod.UID == uid })
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
