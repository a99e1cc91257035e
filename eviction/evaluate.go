package eviction

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State is what [Evaluate] needs to know of the past. The zero value is that of
// an agent that has just started. Evaluate never modifies it.
type State struct {
	// StartedAt is when the first evaluation was.
	StartedAt time.Time
	// Layout is the last one that was known.
	Layout Layout
	// ThresholdsMet are those that were due at the last evaluation, which stay so
	// until their minimum reclaim is available as well.
	ThresholdsMet []Threshold
	// ThresholdsFirstObservedAt is since when a threshold is met without a break.
	ThresholdsFirstObservedAt map[Threshold]time.Time
	// NodeConditionsLastObservedAt is when a threshold of the condition was last
	// met, for conditions that hold.
	NodeConditionsLastObservedAt map[corev1.NodeConditionType]time.Time
	// LastObservations are those of the last evaluation: only newer ones lead to
	// an eviction.
	LastObservations []Observation

	// InFlight are the evictions under way and what they are expected to free.
	// Who acts keeps it.
	InFlight []InFlight
	// Reclaims says for [DeleteContainers] and [DeleteImages] when they were last
	// begun and ended. Who acts keeps it.
	Reclaims map[ReclaimAction]Reclaim
	// NotBefore is when a pod may be tried again that could not be killed. Who
	// acts keeps it.
	NotBefore map[types.UID]time.Time
}

// InFlight is an eviction under way.
type InFlight struct {
	// UID is that of the pod, and Name its namespace and name.
	UID  types.UID `json:"uid"`
	Name string    `json:"name"`
	// Hard says that the pod was told to end at once.
	Hard bool `json:"hard,omitzero"`
	// Since is when it was told, and Deadline until when it counts.
	Since    time.Time `json:"since"`
	Deadline time.Time `json:"deadline"`
	// Ended says that nothing of the pod runs any more: only what it has on
	// disks is still to become free.
	Ended bool `json:"ended,omitzero"`
	// Frees is what is expected to become free, by signal. A signal that is
	// missing is unknown.
	Frees map[Signal]int64 `json:"frees,omitempty"`
}

// counts says whether something of signal s is still to be expected of f.
func (f *InFlight) counts(s Signal, now time.Time) bool {
	return now.Before(f.Deadline) && (!f.Ended || s.isDisk())
}

// Reclaim is the last node-level reclaim of one kind.
type Reclaim struct {
	// Began is when it was begun and Ended when it ended: zero, or before Began,
	// while it is under way.
	Began, Ended time.Time
}

func (r Reclaim) running() bool { return r.Ended.Before(r.Began) }

// Observations are the facts of one evaluation. Nothing in it is modified.
type Observations struct {
	// Node is what was measured of the node.
	Node NodeStats
	// Pods are the active pods, with the resources that they were given.
	Pods []*corev1.Pod
	// PodStats are the figures of pods. Nil says that nobody has asked for them
	// yet: no pod is chosen then, and [Decision.NeedPods] tells whether one would
	// be.
	PodStats map[types.UID]*PodStats
	// CheckLimits has the local storage limits looked at as well.
	CheckLimits bool
}

// layout returns the layout to go by: the present one, else the last, else the
// one whose orders take everything into account.
func (s State) layout(present Layout) Layout { return cmp.Or(present, s.Layout, SingleFS) }

// Evaluate decides what has to be done about the facts in obs. It is a pure
// function: it modifies nothing, and the same arguments always give the same
// answer. The next evaluation wants [Decision.Next] as its state.
func Evaluate(s State, obs Observations, p Policy, now time.Time) Decision {
	p = p.withDefaults()
	e := evaluation{s: s, obs: obs, p: p, now: now, d: Decision{At: now}}
	if e.s.StartedAt.IsZero() {
		e.s.StartedAt = now
	}
	e.s.Layout = s.layout(obs.Node.Layout)
	e.d.Layout = e.s.Layout
	e.reports()
	e.conditions()
	if obs.CheckLimits && obs.PodStats != nil && !p.IgnoreLocalStorageLimits {
		e.d.Limits = breaches(e.s, obs, p, now)
	}
	e.choose()
	e.next()
	return e.d
}

// whyNobody is [Report.Why] of a threshold that nothing can be done about.
const whyNobody = "there is no pod to evict"

// An evaluation is one call of Evaluate.
type evaluation struct {
	s   State
	obs Observations
	p   Policy
	now time.Time
	d   Decision
}

// reports sees which thresholds are met, and since when.
func (e *evaluation) reports() {
	if len(e.p.Thresholds) == 0 {
		return
	}
	e.d.Thresholds = make([]Report, 0, 2*len(e.p.Thresholds))
	thresholdsFor(e.p.Thresholds, e.s.Layout, func(t Threshold) {
		e.d.Thresholds = append(e.d.Thresholds, e.report(t))
	})
}

func (e *evaluation) report(t Threshold) Report {
	r := Report{Threshold: t}
	o, ok := find(e.obs.Node.Observations, t.Signal)
	r.Observation = o
	since, wasMet := e.s.ThresholdsFirstObservedAt[t]
	switch {
	case !ok:
		r.State = Unknown
	case o.Available < 0 || o.Capacity < 0 || o.Capacity > 0 && o.Available > o.Capacity || o.Capacity == 0 && t.Value.Fraction != 0:
		r.State = Implausible
	case !o.Time.IsZero() && e.now.Sub(o.Time) > e.p.MaxObservationAge:
		r.State = Stale
	default:
		return e.measured(r, since)
	}
	// Not knowing is no reason to act, and none to forget.
	if wasMet {
		r.Since = since
	}
	return r
}

// measured compares a sound observation with its threshold.
func (e *evaluation) measured(r Report, since time.Time) Report {
	t, o := r.Threshold, r.Observation
	r.Quantity = t.Value.Of(o.Capacity)
	r.Target = r.Quantity + t.MinReclaim.Of(o.Capacity)
	wasDue := len(e.s.ThresholdsMet) > 0 && slices.Contains(e.s.ThresholdsMet, t)
	switch {
	case o.Available < r.Quantity:
		r.State = Met
	case wasDue && o.Available < r.Target:
		r.State = Reclaiming
	default:
		r.State = Fine
		return r
	}
	r.Since = since
	if since.IsZero() {
		r.Since = e.now
	}
	r.Shortfall = r.Target - o.Available
	r.Due = e.now.Sub(r.Since) >= t.GracePeriod
	last, seen := find(e.s.LastObservations, t.Signal)
	r.Old = seen && !o.Time.IsZero() && !last.Time.IsZero() && !o.Time.After(last.Time)
	return r
}

func find(all []Observation, s Signal) (Observation, bool) {
	for i := range all {
		if all[i].Signal == s {
			return all[i], true
		}
	}
	return Observation{Signal: s}, false
}

// conditions sees which node conditions hold: those of a threshold that is met,
// grace period or not, and those for which the last one was not long ago.
func (e *evaluation) conditions() {
	for _, c := range [...]corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		last, ok := e.s.NodeConditionsLastObservedAt[c]
		met := slices.ContainsFunc(e.d.Thresholds, func(r Report) bool { return r.isMet() && r.Threshold.Signal.condition() == c })
		if met {
			last, ok = e.now, true
		}
		if !met && (!ok || e.now.Sub(last) >= e.p.PressureTransitionPeriod) {
			continue
		}
		if e.d.Next.NodeConditionsLastObservedAt == nil {
			e.d.Next.NodeConditionsLastObservedAt = map[corev1.NodeConditionType]time.Time{}
		}
		e.d.Next.NodeConditionsLastObservedAt[c] = last
		e.d.Conditions = append(e.d.Conditions, c)
	}
}

// choose goes through the thresholds that are due, the most urgent first. What
// each needs is begun, but pods are chosen for one of them only: what that frees
// is not known before it has.
func (e *evaluation) choose() {
	due := e.due()
	for i := range due {
		r := due[i]
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
		free += frees
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
		sum += frees
	}
	return sum, unknown
}

// reclaim plans the next step of the node-level reclaim for r, and returns why pods
// have to wait for it; empty if they don't. Each step is followed by a look, and a
// round of them by evictions, however long the round took.
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
		again := ended.IsZero() || e.now.Sub(ended) >= e.p.ReclaimInterval
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
		free += c.Usage.Value
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

// places returns how many more pods may end at a time.
func (e *evaluation) places(hard bool) int {
	n := e.p.MaxParallelEvictions
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

// next is the state for the evaluation after this one.
func (e *evaluation) next() {
	n := &e.d.Next
	n.StartedAt, n.Layout = e.s.StartedAt, e.s.Layout
	n.InFlight, n.Reclaims, n.NotBefore = e.s.InFlight, e.s.Reclaims, e.s.NotBefore
	n.LastObservations = e.lastObservations()
	for i := range e.d.Thresholds {
		r := &e.d.Thresholds[i]
		if r.Since.IsZero() {
			continue
		}
		if n.ThresholdsFirstObservedAt == nil {
			n.ThresholdsFirstObservedAt = map[Threshold]time.Time{}
		}
		n.ThresholdsFirstObservedAt[r.Threshold] = r.Since
		if r.Due || r.unmeasured() && slices.Contains(e.s.ThresholdsMet, r.Threshold) {
			n.ThresholdsMet = append(n.ThresholdsMet, r.Threshold)
		}
	}
}

// lastObservations keeps what is not known now: an old observation that turns up
// again later is still old.
func (e *evaluation) lastObservations() []Observation {
	all := slices.Clone(e.obs.Node.Observations)
	for _, o := range e.s.LastObservations {
		if _, ok := find(e.obs.Node.Observations, o.Signal); !ok {
			all = append(all, o)
		}
	}
	return all
}
