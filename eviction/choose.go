package eviction

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// whyNoVictim is the [Report.Why] of a due threshold for which no pod can be evicted.
const whyNoVictim = "no pod can be evicted"

// choose decides what to do about each due threshold, the most urgent first. It plans
// reclaims for each due threshold, but chooses victims for only one threshold, because
// these victims may also free enough for the other thresholds. If pods are evicted for
// limits, choose plans nothing, because these evictions may free enough for all thresholds.
func (e *evaluation) choose() {
	due, limits := e.due(), e.evictsForLimits()
	for i := range due {
		r := due[i]
		if limits {
			r.Why = "pods over their limits are evicted first"
			continue
		}
		if i == 0 {
			e.d.urgent = r
		}
		e.escalate(r)
		r.InFlight, r.Pending = e.expectedFree(r)
		switch wait := e.reclaim(r); {
		case r.Pending:
			r.Why = "an eviction in flight may free an unknown amount"
		case r.InFlight >= r.Shortfall:
			r.Why = "evictions in flight free enough"
		case wait != "":
			r.Why = wait
		case e.d.Signal != "":
			r.Why = "pods are evicted for " + string(e.d.Signal) + " first"
		case e.freeSlots(r.Threshold.Hard()) <= 0:
			r.Why = "the maximum number of pods is already terminating"
		case e.obs.PodStats == nil:
			e.d.NeedPods = true
			r.Why = "a pod must be evicted"
		default:
			e.victims(r)
		}
	}
}

// evictsForLimits reports whether a pod is evicted for a limit, not counting pods whose
// kill failed before: these pods do not block the actions for thresholds.
func (e *evaluation) evictsForLimits() bool {
	return slices.ContainsFunc(e.d.Limits, func(b Breach) bool {
		_, again := e.s.NotBefore[b.Pod.UID]
		return !again
	})
}

// due returns the due thresholds with a new observation, the most urgent first.
func (e *evaluation) due() (due []*Report) {
	for i := range e.d.Thresholds {
		r := &e.d.Thresholds[i]
		switch {
		case r.Due && r.Old:
			r.Why = "not measured since the last evaluation"
		case r.Due:
			due = append(due, r)
		}
	}
	slices.SortStableFunc(due, func(a, b *Report) int {
		return cmp.Or(
			trueFirst(a.Threshold.Hard(), b.Threshold.Hard()),
			cmp.Compare(a.Threshold.Signal.urgency(), b.Threshold.Signal.urgency()),
			cmp.Compare(a.ratio(), b.ratio()),
		)
	})
	return due
}

// escalate chooses pods that are terminating for a soft threshold and must terminate sooner,
// because the hard threshold r is due. It chooses as many pods as are needed for r. If r is soft,
// escalate does nothing.
func (e *evaluation) escalate(r *Report) {
	if !r.Threshold.Hard() {
		return
	}
	s := r.Threshold.Signal
	free, _ := e.expectedFree(r)
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

// expectedFree returns the amount of r's signal that the evictions in progress are
// expected to free, and whether one of them frees an unknown amount. For a hard threshold,
// only evictions with the short grace period and terminated pods count.
func (e *evaluation) expectedFree(r *Report) (sum int64, unknown bool) {
	for i := range e.s.InFlight {
		f := &e.s.InFlight[i]
		if !f.counts(r.Threshold.Signal, e.now) {
			// An escalated eviction gets a new deadline, so its old deadline does not
			// matter.
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

// reclaim plans the next action of the node-level reclaim for r. It returns why evictions
// must wait for the reclaim, or an empty string if they need not wait. After each action,
// the threshold waits for a new observation: see due. After each round of actions, an
// evaluation may evict pods before a new round starts, even if the round and the
// measurements took longer than ReclaimInterval.
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
		again := ended.IsZero() || e.now.Sub(ended) >= e.p.ReclaimInterval && e.hasResult(r.Threshold, ended)
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

// hasResult reports whether an earlier evaluation has used an observation that was made after
// the end of the last round of reclaims. That evaluation could evict pods, so a new round may
// start. hasResult also returns true if th was not due in the last evaluation.
func (e *evaluation) hasResult(th Threshold, ended time.Time) bool {
	if !e.wasDue(th) {
		return true
	}
	last, _ := find(e.s.LastObservations, th.Signal)
	if last.Time.IsZero() {
		return e.s.EvaluatedAt.After(ended)
	}
	return last.Time.After(ended)
}

// actions returns the available reclaims that free the disk of s.
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

// victims chooses the pods to evict for r: as many from the start of the order as are
// expected to free enough.
func (e *evaluation) victims(r *Report) {
	candidates := Rank(r.Threshold.Signal, e.s, e.obs, e.p, e.now)
	e.recordMissing(candidates)
	free, slots := r.InFlight, e.freeSlots(r.Threshold.Hard())
	for i := range candidates {
		c := &candidates[i]
		if c.Kept != "" || e.exceedsLimit(c.Pod.UID) {
			continue
		}
		if slots <= 0 || free >= r.Shortfall {
			break
		}
		slots--
		free = plus(free, c.Usage.Value)
		e.d.Victims = append(e.d.Victims, Victim{
			Candidate: *c, Index: i, GracePeriodSeconds: e.p.grace(c.Pod, r.Threshold.Hard()),
		})
		if !c.Usage.Known() {
			break // the amount that is still missing after this eviction is unknown
		}
	}
	if len(e.d.Victims) == 0 {
		r.Why = whyNoVictim
		if e.d.Candidates == nil {
			e.d.Candidates, e.d.rankedFor = candidates, r.Threshold.Signal
		}
		return
	}
	r.Why = "pods are evicted"
	e.d.Signal, e.d.Threshold, e.d.Candidates, e.d.rankedFor = r.Threshold.Signal, r, candidates, r.Threshold.Signal
}

// recordMissing records which pods have no stats, and since when. It adds to the records of other
// thresholds for which pods were ranked in this evaluation.
func (e *evaluation) recordMissing(candidates []Candidate) {
	if e.missing == nil {
		e.missing = map[types.UID]time.Time{}
	}
	for i := range candidates {
		if uid := candidates[i].Pod.UID; candidates[i].Missing {
			if e.missing[uid] = e.now; !e.s.StatsMissingSince[uid].IsZero() {
				e.missing[uid] = e.s.StatsMissingSince[uid]
			}
		}
	}
}

// freeSlots returns how many more pods may terminate at the same time. A pod whose kill
// failed counts until the kill may be retried. If it did not count, the Manager would
// evict one pod after the other while the runtime is down.
func (e *evaluation) freeSlots(hard bool) int {
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

// exceedsLimit reports whether the pod is evicted for a limit in this evaluation.
func (e *evaluation) exceedsLimit(uid types.UID) bool {
	return slices.ContainsFunc(e.d.Limits, func(b Breach) bool { return b.Pod.UID == uid })
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
