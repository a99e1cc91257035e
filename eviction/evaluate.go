package eviction

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State has the results of earlier evaluations that [PlanEviction] needs. The zero value
// is the state of an agent that has just started. PlanEviction does not modify its State
// argument.
type State struct {
	// EvaluatedAt is the time of the last evaluation.
	EvaluatedAt time.Time
	// Layout is the last known layout of the node's filesystems.
	Layout Layout
	// ThresholdsMet are the thresholds that were due when their signal was last measured. A
	// due threshold stays due until its minimum reclaim is available as well.
	ThresholdsMet []Threshold
	// ThresholdsFirstObservedAt has, for each threshold that is met, the time since which
	// it is met. Short breaks do not end this period: see [Report].Since.
	// ThresholdsLastMetAt has the time at which each of these thresholds was last met.
	ThresholdsFirstObservedAt map[Threshold]time.Time
	ThresholdsLastMetAt       map[Threshold]time.Time
	// NodeConditionsLastObservedAt is, for each true node condition, the time at which one
	// of its thresholds was last met.
	NodeConditionsLastObservedAt map[corev1.NodeConditionType]time.Time
	// LastObservations has the last known observation of each signal. Only newer
	// observations lead to an eviction.
	LastObservations []Observation
	// StatsMissingSince has, for each pod without stats, the time of the first evaluation
	// that needed the stats. It is not reset while a threshold is due.
	StatsMissingSince map[types.UID]time.Time

	// InFlight are the evictions in progress and the amounts that they are expected to
	// free. The caller of PlanEviction maintains this field.
	InFlight []InFlight
	// Reclaims are the times at which [DeleteContainers] and [DeleteImages] last started
	// and ended. The caller of PlanEviction maintains this field.
	Reclaims map[ReclaimAction]Reclaim
	// NotBefore has, for each pod whose kill failed, the time from which the kill may be
	// retried. The caller of PlanEviction maintains this field.
	NotBefore map[types.UID]time.Time
}

// InFlight is an eviction in progress.
type InFlight struct {
	// UID is the UID of the pod, Name its namespace and name.
	UID  types.UID `json:"uid"`
	Name string    `json:"name"`
	// Hard reports whether the pod has the short grace period of hard thresholds and
	// limits.
	Hard bool `json:"hard,omitzero"`
	// Since is the time at which the eviction started. After Deadline, the eviction is no
	// longer expected to free anything.
	Since    time.Time `json:"since"`
	Deadline time.Time `json:"deadline"`
	// Ended reports whether the pod has terminated. Then only its disk space may still
	// become free.
	Ended bool `json:"ended,omitzero"`
	// Frees are the amounts that are expected to become free, by signal. If a signal is
	// missing, the amount is unknown.
	Frees map[Signal]int64 `json:"frees,omitempty"`
}

// counts reports whether f is still expected to free an amount of signal s.
func (f *InFlight) counts(s Signal, now time.Time) bool {
	return now.Before(f.Deadline) && (!f.Ended || s.isDisk())
}

// Reclaim is the last node-level reclaim of one kind.
type Reclaim struct {
	// Began and Ended are the times at which the reclaim started and ended. While it runs,
	// Ended is zero or before Began.
	Began, Ended time.Time
}

func (r Reclaim) running() bool { return r.Ended.Before(r.Began) }

// Observations are the facts for one evaluation. PlanEviction does not modify them.
type Observations struct {
	// Node has the measurements of the node.
	Node NodeStats
	// Pods are the active pods, with their allocated resources.
	Pods []*corev1.Pod
	// PodStats are the stats of the pods. If nil, they were not measured: then no pod is
	// evicted, and [Decision.NeedPods] reports whether the stats are needed. PlanEviction uses
	// stats of any age; the [Manager] omits stats that are too old.
	PodStats map[types.UID]*PodStats
	// CheckLimits enables the check of local storage limits.
	CheckLimits bool
}

// layout returns the present layout if it is known, else the last known layout, or
// SingleFS if no layout was ever known. With SingleFS, a pod's writable layers, logs and
// volumes all count as usage.
func (s State) layout(present Layout) Layout { return cmp.Or(present, s.Layout, SingleFS) }

// PlanEviction decides what must be done, from the facts in obs and the state s. It is a
// pure function: it modifies nothing, and the same arguments always give the same result.
// Pass [Decision.Next] as the state of the next evaluation.
func PlanEviction(s State, obs Observations, p Policy, now time.Time) Decision {
	p = p.withDefaults()
	e := evaluation{s: s, obs: obs, p: p, now: now, d: Decision{At: now}}
	e.s.Layout = s.layout(obs.Node.Layout)
	e.d.Layout = e.s.Layout
	e.compareThresholds()
	e.conditions()
	if obs.CheckLimits && obs.PodStats != nil && !p.IgnoreLocalStorageLimits {
		e.d.Limits = breaches(e.s, obs, p, now)
	}
	e.choose()
	e.next()
	return e.d
}

// If a soft threshold is not met for maxBreak, its grace period restarts. The value is the
// kubelet's time between two passes; the kubelet does not notice most shorter breaks.
const maxBreak = 10 * time.Second

// evaluation is the working state of one call of PlanEviction.
type evaluation struct {
	s   State
	obs Observations
	p   Policy
	now time.Time
	d   Decision

	missing map[types.UID]time.Time // candidates without stats; nil if no pods were ranked
}

// compareThresholds evaluates each threshold with its observation.
func (e *evaluation) compareThresholds() {
	for _, t := range thresholdsFor(e.p.Thresholds, e.s.Layout) {
		e.d.Thresholds = append(e.d.Thresholds, e.evaluate(t))
	}
}

// evaluate returns the report on t. The state of a threshold without a valid observation
// is Unknown, Implausible or Stale.
func (e *evaluation) evaluate(t Threshold) Report {
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
		return e.completeReport(r, since)
	}
	// An unknown signal neither causes an action nor resets the grace period.
	if wasMet {
		r.Since = since
	}
	return r
}

// plausible reports whether the values are possible. A provider that measured nothing may
// return 0 of 0.
func (o Observation) plausible() bool {
	return o.Available >= 0 && o.Capacity >= 0 && o.Available|o.Capacity != 0 &&
		(o.Capacity == 0 || o.Available <= o.Capacity)
}

// setState returns r with the state and the amounts that follow from its threshold and
// observation.
func (e *evaluation) setState(r Report) Report {
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

// completeReport returns r, which has a valid observation, with the state, the times and
// the shortfall.
func (e *evaluation) completeReport(r Report, since time.Time) Report {
	t, o := r.Threshold, r.Observation
	r = e.setState(r)
	if r.State == Fine {
		if !e.wasDue(t) {
			r.Since = e.sinceDespiteBreak(t, since)
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

// sinceDespiteBreak returns the time since which the soft threshold t counts as met, although
// it is not met now. It returns zero if t no longer counts as met. Evaluations may run every
// 50 ms, and an available amount that fluctuates around the threshold would restart the grace
// period all the time. Therefore a short break only extends the grace period by twice the
// duration of the break: a threshold that is met less than half of the time is never due.
func (e *evaluation) sinceDespiteBreak(t Threshold, since time.Time) time.Time {
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

// conditions sets the true node conditions of the decision. A condition is true while one of its
// thresholds is met, even if the grace period is not over yet. The condition stays true until the
// transition period has passed after a threshold was last met. The method uses observations of
// any age. Without any observations, the conditions do not change.
func (e *evaluation) conditions() {
	allUnknown := len(e.obs.Node.Observations) == 0
	e.d.Next.NodeConditionsLastObservedAt = map[corev1.NodeConditionType]time.Time{}
	for _, c := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		last, ok := e.s.NodeConditionsLastObservedAt[c]
		met := slices.ContainsFunc(e.d.Thresholds, func(r Report) bool { return e.setsCondition(r) && r.Threshold.Signal.condition() == c })
		if met {
			last, ok = e.now, true
		}
		if !met && (!ok || !allUnknown && e.now.Sub(last) >= e.p.PressureTransitionPeriod) {
			continue
		}
		e.d.Next.NodeConditionsLastObservedAt[c] = last
		e.d.Conditions = append(e.d.Conditions, c)
	}
}

// setsCondition reports whether r makes its node condition true. This is the case if the
// threshold is met, even if the observation is too old for other actions.
func (e *evaluation) setsCondition(r Report) bool {
	if r.State == Stale {
		r = e.setState(r)
	}
	return r.isMet()
}

// next sets the state for the next evaluation.
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

// lastObservations returns the present observations, and the last observations of signals
// that are unknown now. If [Stats] returns such an observation again later, it must still
// count as old.
func (e *evaluation) lastObservations() []Observation {
	all := slices.Clone(e.obs.Node.Observations)
	for _, o := range e.s.LastObservations {
		if _, ok := find(e.obs.Node.Observations, o.Signal); !ok {
			all = append(all, o)
		}
	}
	return all
}
