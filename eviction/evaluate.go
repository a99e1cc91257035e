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
	// EvaluatedAt is when the last evaluation was.
	EvaluatedAt time.Time
	// Layout is the last one that was known.
	Layout Layout
	// ThresholdsMet are those that were due at the last evaluation, which stay so
	// until their minimum reclaim is available as well.
	ThresholdsMet []Threshold
	// ThresholdsFirstObservedAt is since when a threshold is met without a break that
	// counts, and ThresholdsLastMetAt when it last was.
	ThresholdsFirstObservedAt map[Threshold]time.Time
	ThresholdsLastMetAt       map[Threshold]time.Time
	// NodeConditionsLastObservedAt is when a threshold of the condition was last
	// met, for conditions that hold.
	NodeConditionsLastObservedAt map[corev1.NodeConditionType]time.Time
	// LastObservations are those of the last evaluation: only newer ones lead to
	// an eviction.
	LastObservations []Observation
	// StatsMissingSince is since when figures of pods are missing that are needed to
	// choose one, for as long as a threshold is due.
	StatsMissingSince map[types.UID]time.Time

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
	// be. All count, however old; the [Manager] leaves out those that are too old.
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

// maxBreak is how long a threshold may not be met before its grace period begins
// anew: the kubelet's time between two looks, which hardly sees a shorter break.
const maxBreak = 10 * time.Second

// An evaluation is one call of Evaluate.
type evaluation struct {
	s   State
	obs Observations
	p   Policy
	now time.Time
	d   Decision

	missing map[types.UID]time.Time // candidates without figures; nil if none were ranked
}

// reports sees which thresholds are met, and since when.
func (e *evaluation) reports() {
	for _, t := range thresholdsFor(e.p.Thresholds, e.s.Layout) {
		e.d.Thresholds = append(e.d.Thresholds, e.report(t))
	}
}

func (e *evaluation) report(t Threshold) Report {
	r := Report{Threshold: t}
	o, ok := find(e.obs.Node.Observations, t.Signal)
	r.Observation = o
	since, wasMet := e.s.ThresholdsFirstObservedAt[t]
	switch {
	case !ok:
		r.State = Unknown
	case !o.plausible() || o.Capacity == 0 && t.Value.Fraction != 0:
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

// plausible says whether the figures can be. Nothing of nothing is what somebody
// reports who has measured nothing.
func (o Observation) plausible() bool {
	return o.Available >= 0 && o.Capacity >= 0 && o.Available|o.Capacity != 0 &&
		(o.Capacity == 0 || o.Available <= o.Capacity)
}

// compare compares an observation with its threshold.
func (e *evaluation) compare(r Report) Report {
	t, o := r.Threshold, r.Observation
	r.Quantity = t.Value.Of(o.Capacity)
	r.Target = plus(r.Quantity, t.MinReclaim.Of(o.Capacity))
	switch {
	case o.Available < r.Quantity:
		r.State = Met
	case o.Available < r.Target && e.wasDue(t):
		r.State = Reclaiming
	default:
		r.State = Fine
	}
	return r
}

func (e *evaluation) wasDue(t Threshold) bool { return slices.Contains(e.s.ThresholdsMet, t) }

// measured says what follows from a sound observation.
func (e *evaluation) measured(r Report, since time.Time) Report {
	t, o := r.Threshold, r.Observation
	r = e.compare(r)
	if r.State == Fine {
		if !e.wasDue(t) {
			r.Since = e.interrupted(t, since)
		}
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

// interrupted returns since when the soft threshold t, which is not met now, counts as
// met all the same; zero if it does not. Looks come as often as every 50 ms, and a
// figure that goes up and down would begin the grace period anew all the time. A short
// break does not, but takes back twice its own time: what is met less than half of
// the time is never due.
func (e *evaluation) interrupted(t Threshold, since time.Time) time.Time {
	if since.IsZero() || t.Hard() || e.now.Sub(e.s.ThresholdsLastMetAt[t]) >= maxBreak {
		return time.Time{}
	}
	if since = since.Add(2 * max(0, e.now.Sub(e.s.EvaluatedAt))); since.Before(e.now) {
		return since
	}
	return time.Time{}
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
// grace period or not, and those for which the last one was not long ago. Figures of
// any age count, and while there are none at all, nothing changes.
func (e *evaluation) conditions() {
	blind := len(e.obs.Node.Observations) == 0
	e.d.Next.NodeConditionsLastObservedAt = map[corev1.NodeConditionType]time.Time{}
	for _, c := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		last, ok := e.s.NodeConditionsLastObservedAt[c]
		met := slices.ContainsFunc(e.d.Thresholds, func(r Report) bool { return e.presses(r) && r.Threshold.Signal.condition() == c })
		if met {
			last, ok = e.now, true
		}
		if !met && (!ok || !blind && e.now.Sub(last) >= e.p.PressureTransitionPeriod) {
			continue
		}
		e.d.Next.NodeConditionsLastObservedAt[c] = last
		e.d.Conditions = append(e.d.Conditions, c)
	}
}

// presses reports whether the node condition of r's threshold holds: it is met, or was by
// a figure that is too old to act upon.
func (e *evaluation) presses(r Report) bool {
	if r.State == Stale {
		r = e.compare(r)
	}
	return r.isMet()
}

// next is the state for the evaluation after this one.
func (e *evaluation) next() {
	n := &e.d.Next
	n.EvaluatedAt, n.Layout = e.now, e.s.Layout
	n.InFlight, n.Reclaims, n.NotBefore = e.s.InFlight, e.s.Reclaims, e.s.NotBefore
	n.LastObservations = e.lastObservations()
	n.ThresholdsFirstObservedAt, n.ThresholdsLastMetAt = map[Threshold]time.Time{}, map[Threshold]time.Time{}
	if e.missing != nil {
		n.StatsMissingSince = e.missing
	} else if slices.ContainsFunc(e.d.Thresholds, func(r Report) bool { return r.Due }) {
		n.StatsMissingSince = e.s.StatsMissingSince
	}
	for i := range e.d.Thresholds {
		r := &e.d.Thresholds[i]
		if r.Since.IsZero() {
			continue
		}
		n.ThresholdsFirstObservedAt[r.Threshold] = r.Since
		n.ThresholdsLastMetAt[r.Threshold] = e.now
		if !r.isMet() {
			n.ThresholdsLastMetAt[r.Threshold] = e.s.ThresholdsLastMetAt[r.Threshold]
		}
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
