package eviction

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/printable"
)

// ThresholdState is the result of comparing an observation with a threshold.
type ThresholdState string

// Threshold states.
const (
	// Fine: enough is available.
	Fine ThresholdState = "fine"
	// Met: less than the threshold is available.
	Met ThresholdState = "met"
	// Reclaiming: the threshold was due, and its minimum reclaim is not available yet.
	Reclaiming ThresholdState = "reclaiming"
	// Unknown: the signal was not measured.
	Unknown ThresholdState = "unknown"
	// Stale: the signal was measured too long ago.
	Stale ThresholdState = "stale"
	// Implausible: the observation has impossible values.
	Implausible ThresholdState = "implausible"
)

// Report is the result of an evaluation for one threshold.
type Report struct {
	// Threshold is the threshold, Observation the observation of its signal. If the signal
	// was not measured, only Observation.Signal is set.
	Threshold   Threshold   `json:"threshold"`
	Observation Observation `json:"observation"`
	// State is the result of the comparison.
	State ThresholdState `json:"state"`
	// Quantity is the amount of the threshold for the present capacity. Target is the
	// amount at which the threshold is no longer due.
	Quantity int64 `json:"quantity,omitzero"`
	Target   int64 `json:"target,omitzero"`
	// Since is the time since which the threshold is met. An unknown signal does not end
	// this period. A break, in which the threshold is not met, ends it. There is one exception:
	// if the threshold is soft and not due yet, a break of less than 10 s moves Since forward
	// by twice the duration of the break, and ends the period only if Since would then be in
	// the future.
	Since time.Time `json:"since,omitzero"`
	// Due reports whether the grace period is over, and Old whether the observation is no
	// newer than the observation of the previous evaluation.
	Due bool `json:"due,omitzero"`
	Old bool `json:"old,omitzero"`
	// Shortfall is the amount that is missing to reach Target, InFlight the amount that
	// evictions in progress are expected to free. Pending reports whether an eviction in
	// progress frees an unknown amount.
	Shortfall int64 `json:"shortfall,omitzero"`
	InFlight  int64 `json:"inFlight,omitzero"`
	Pending   bool  `json:"pending,omitzero"`
	// Why explains what the decision does about a threshold that is due.
	Why string `json:"why,omitzero"`
}

func (r *Report) isMet() bool { return r.State == Met || r.State == Reclaiming }

func (r *Report) unmeasured() bool {
	return r.State == Unknown || r.State == Stale || r.State == Implausible
}

// ratio returns the available amount divided by the amount of the threshold.
func (r *Report) ratio() float64 {
	return float64(r.Observation.Available) / float64(max(r.Quantity, 1))
}

// ReclaimPlan is a node-level reclaim to run before pods are evicted.
type ReclaimPlan struct {
	Action ReclaimAction `json:"action"`
	// Signal is the signal whose threshold is due, Amount the shortfall.
	Signal Signal `json:"signal"`
	Amount int64  `json:"amount"`
}

// Victim is a pod to evict.
type Victim struct {
	Candidate
	// Index is the pod's index in [Decision.Candidates].
	Index int
	// GracePeriodSeconds is the grace period of the eviction.
	GracePeriodSeconds int64
}

// Decision is the result of [PlanEviction]: what must be done, and why. String returns an
// explanation. A Decision can be marshaled to JSON. It must not be modified.
type Decision struct {
	// At is the time of the evaluation, Layout the layout that the evaluation used.
	At     time.Time `json:"at"`
	Layout Layout    `json:"layout"`
	// Thresholds has a report for each threshold.
	Thresholds []Report `json:"thresholds,omitempty"`
	// Conditions are the node conditions that are true.
	Conditions []corev1.NodeConditionType `json:"conditions,omitempty"`
	// Signal is the signal for which Victims are evicted, Threshold the report of the
	// threshold. Both are zero if Victims is empty.
	Signal    Signal  `json:"signal,omitzero"`
	Threshold *Report `json:"-"`
	// Reclaim are the node-level reclaims to run, in order.
	Reclaim []ReclaimPlan `json:"reclaim,omitempty"`
	// Limits are the pods that use more local storage than their limits allow, without pods
	// that must not be evicted. All pods in Limits are evicted.
	Limits []Breach `json:"limits,omitempty"`
	// Candidates are all pods in the order in which they would be evicted. The field is
	// empty if the decision did not need this order. Victims are the candidates that are
	// evicted now.
	Candidates []Candidate `json:"candidates,omitempty"`
	Victims    []Victim    `json:"victims,omitempty"`
	// Escalate are the UIDs of pods with an eviction in progress whose grace period is
	// shortened.
	Escalate []types.UID `json:"escalate,omitempty"`
	// NeedPods reports whether a pod must be evicted but [Observations].PodStats is nil.
	// The caller must then measure the pods and call PlanEviction again.
	NeedPods bool `json:"needPods,omitzero"`
	// Next is the state for the next evaluation.
	Next State `json:"-"`

	urgent    *Report // report on the most urgent due threshold, even if no action is possible; nil while pods are evicted for limits
	rankedFor Signal  // signal for which Candidates are ranked
}

// IsNoop reports whether there is nothing to do.
func (d *Decision) IsNoop() bool {
	return !d.NeedPods && len(d.Victims)+len(d.Reclaim)+len(d.Limits)+len(d.Escalate) == 0
}

// String explains the decision, with one line for each threshold, true condition and
// action. If pods must be evicted for a threshold, it also has one line for each pod.
func (d Decision) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintln(&b, printable.Line(fmt.Sprintf(format, args...))) }
	for i := range d.Thresholds {
		b.WriteString(d.Thresholds[i].explain(d.At))
	}
	for _, c := range d.Conditions {
		line("condition %s", c)
	}
	for _, r := range d.Reclaim {
		line("%s: %s shortfall %s", r.Action, r.Signal, r.Signal.rounded(r.Amount))
	}
	for _, l := range d.Limits {
		line("evict %s: %s", name(l.Pod), strings.TrimSpace(l.Message))
	}
	for _, uid := range d.Escalate {
		line("shorten the grace period of %s", d.nameOf(uid))
	}
	for i := range d.Candidates {
		line("%3d. %s: %s", i+1, name(d.Candidates[i].Pod), d.explain(i))
	}
	if len(d.Limits)+len(d.Candidates) == 0 {
		line("no pod needs to be evicted now")
	}
	return b.String()
}

func (d *Decision) nameOf(uid types.UID) string {
	if f := d.Next.inFlight(uid); f != nil {
		return f.Name
	}
	return string(uid)
}

func (r *Report) explain(now time.Time) string {
	s := r.Threshold.Signal
	if r.unmeasured() {
		return fmt.Sprintf("%s: %s\n", r.Threshold, r.State)
	}
	text := fmt.Sprintf("%s: %s, %s of %s available", r.Threshold, r.State, s.rounded(r.Observation.Available), s.rounded(r.Observation.Capacity))
	switch {
	case r.State == Fine && r.Since.IsZero():
		return text + "\n"
	case r.State == Fine:
		return text + ", met recently\n"
	case !r.Due:
		return fmt.Sprintf("%s, due in %v\n", text, (r.Threshold.GracePeriod - now.Sub(r.Since)).Round(time.Second))
	}
	text += ", shortfall " + s.rounded(r.Shortfall)
	if r.InFlight > 0 {
		text += ", " + s.rounded(r.InFlight) + " in flight"
	}
	return text + ": " + r.Why + "\n"
}

// explain returns the facts that determine the rank of a candidate, and whether the
// candidate is evicted.
func (d *Decision) explain(index int) string {
	c := &d.Candidates[index]
	var facts []string
	if c.Preferred {
		facts = append(facts, "preferred")
	}
	signal := d.rankedFor
	switch {
	case c.Usage.Known() && c.Request > 0:
		facts = append(facts, fmt.Sprintf("uses %s, requests %s", signal.rounded(c.Usage.Value), signal.rounded(c.Request)))
	case c.Usage.Known():
		facts = append(facts, "uses "+signal.rounded(c.Usage.Value))
	case c.Overdue:
		facts = append(facts, "usage unknown for too long")
	case c.Missing:
		facts = append(facts, "usage unknown")
	}
	facts = append(facts, fmt.Sprintf("priority %d", c.Priority), string(c.QOS))
	text := strings.Join(facts, ", ")
	if c.Kept != "" {
		return text + " - not evicted: " + c.Kept
	}
	for i := range d.Victims {
		if d.Victims[i].Index == index {
			return fmt.Sprintf("%s - evicted, grace period %ds", text, d.Victims[i].GracePeriodSeconds)
		}
	}
	return text
}

func name(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// candidateJSON is a [Candidate] without the pod object.
type candidateJSON struct {
	Namespace          string             `json:"namespace"`
	Name               string             `json:"name"`
	UID                types.UID          `json:"uid"`
	Priority           int32              `json:"priority"`
	QOS                corev1.PodQOSClass `json:"qos"`
	Usage              *int64             `json:"usage,omitempty"`
	Request            int64              `json:"request,omitzero"`
	Exceeds            bool               `json:"exceeds,omitzero"`
	Preferred          bool               `json:"preferred,omitzero"`
	Missing            bool               `json:"missing,omitzero"`
	Overdue            bool               `json:"overdue,omitzero"`
	Kept               string             `json:"kept,omitzero"`
	GracePeriodSeconds *int64             `json:"gracePeriodSeconds,omitempty"`
}

func (c *Candidate) json() candidateJSON {
	j := candidateJSON{
		Namespace: c.Pod.Namespace, Name: c.Pod.Name, UID: c.Pod.UID, Priority: c.Priority, QOS: c.QOS,
		Request: c.Request, Exceeds: c.Exceeds, Preferred: c.Preferred, Missing: c.Missing, Overdue: c.Overdue, Kept: c.Kept,
	}
	if c.Usage.Known() {
		j.Usage = &c.Usage.Value
	}
	return j
}

// MarshalJSON replaces the pod with its namespace, name and UID.
func (c Candidate) MarshalJSON() ([]byte, error) { return json.Marshal(c.json()) }

// MarshalJSON replaces the pod with its namespace, name and UID.
func (v Victim) MarshalJSON() ([]byte, error) {
	j := v.json()
	j.GracePeriodSeconds = &v.GracePeriodSeconds
	return json.Marshal(j)
}
