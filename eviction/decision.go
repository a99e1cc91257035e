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

// ThresholdState is how an observation compares with a threshold.
type ThresholdState string

// States.
const (
	// Fine is enough available.
	Fine ThresholdState = "fine"
	// Met is less available than the threshold.
	Met ThresholdState = "met"
	// Reclaiming is more than the threshold, and less than its minimum reclaim
	// on top, after it was acted upon.
	Reclaiming ThresholdState = "reclaiming"
	// Unknown is a signal that was not measured.
	Unknown ThresholdState = "unknown"
	// Stale is one that was measured too long ago.
	Stale ThresholdState = "stale"
	// Implausible is one with figures that can't be.
	Implausible ThresholdState = "implausible"
)

// Report is what an evaluation found about one threshold.
type Report struct {
	// Threshold is the one that it is about, and Observation what was measured
	// of its signal; without a time or amounts if nothing was.
	Threshold   Threshold   `json:"threshold"`
	Observation Observation `json:"observation"`
	// State says how they compare.
	State ThresholdState `json:"state"`
	// Quantity is the threshold for the present capacity, and Target the amount at
	// which reclaiming ends.
	Quantity int64 `json:"quantity,omitzero"`
	Target   int64 `json:"target,omitzero"`
	// Since is when it was first met without a break that counts: unknown
	// observations don't break it, and a break of less than 10 s only takes back
	// from a grace period twice what it lasted.
	Since time.Time `json:"since,omitzero"`
	// Due says that its grace period is over, and Old that the observation is no
	// newer than that of the evaluation before.
	Due bool `json:"due,omitzero"`
	Old bool `json:"old,omitzero"`
	// Shortfall is what is missing to Target, and InFlight how much of it is
	// expected of evictions under way. Pending says that one of those frees an
	// amount that nobody knows.
	Shortfall int64 `json:"shortfall,omitzero"`
	InFlight  int64 `json:"inFlight,omitzero"`
	Pending   bool  `json:"pending,omitzero"`
	// Why says what came of a threshold that is due.
	Why string `json:"why,omitzero"`
}

func (r *Report) isMet() bool { return r.State == Met || r.State == Reclaiming }

func (r *Report) unmeasured() bool {
	return r.State == Unknown || r.State == Stale || r.State == Implausible
}

// ratio is how much of the threshold is left.
func (r *Report) ratio() float64 {
	return float64(r.Observation.Available) / float64(max(r.Quantity, 1))
}

// ReclaimPlan is a node-level reclaim that is worth a try before a pod has to go.
type ReclaimPlan struct {
	Action ReclaimAction `json:"action"`
	// Signal is what it is for and Amount how much is missing of it.
	Signal Signal `json:"signal"`
	Amount int64  `json:"amount"`
}

// Victim is a pod to evict.
type Victim struct {
	Candidate
	// Place is its place in [Decision.Candidates].
	Place int
	// GracePeriodSeconds is what it gets to end.
	GracePeriodSeconds int64
}

// Decision is what has to be done, and why. String explains it, and it marshals
// to JSON. Treat it as read-only.
type Decision struct {
	// At is when it was made, and Layout the one that it goes by.
	At     time.Time `json:"at"`
	Layout Layout    `json:"layout"`
	// Thresholds has a report on each threshold.
	Thresholds []Report `json:"thresholds,omitempty"`
	// Conditions are the node conditions that hold.
	Conditions []corev1.NodeConditionType `json:"conditions,omitempty"`
	// Signal is what Victims are evicted for, empty if none are, and Threshold
	// the report of it.
	Signal    Signal  `json:"signal,omitzero"`
	Threshold *Report `json:"-"`
	// Reclaim is what is to be reclaimed of the node itself, in order.
	Reclaim []ReclaimPlan `json:"reclaim,omitempty"`
	// Limits are the pods that use more local storage than they may. All of them
	// are evicted.
	Limits []Breach `json:"limits,omitempty"`
	// Candidates are all pods in the order in which they would be evicted, and
	// Victims those that are.
	Candidates []Candidate `json:"candidates,omitempty"`
	Victims    []Victim    `json:"victims,omitempty"`
	// Escalate are evictions under way that get no more time.
	Escalate []types.UID `json:"escalate,omitempty"`
	// NeedPods says that pods would be chosen if their figures were known.
	NeedPods bool `json:"needPods,omitzero"`
	// Next is the state for the next evaluation.
	Next State `json:"-"`

	urgent *Report // the first of those that are acted upon, whatever comes of it
}

// Quiet says that there is nothing to be done.
func (d *Decision) Quiet() bool {
	return !d.NeedPods && len(d.Victims)+len(d.Reclaim)+len(d.Limits)+len(d.Escalate) == 0
}

// String explains the decision: one line on each threshold, and one on each pod
// if some have to go.
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
		line("%s: %s short of %s", r.Action, r.Signal, r.Signal.amount(r.Amount))
	}
	for _, l := range d.Limits {
		line("evict %s: %s", name(l.Pod), strings.TrimSpace(l.Message))
	}
	for _, uid := range d.Escalate {
		line("no more time for %s", d.nameOf(uid))
	}
	for i := range d.Candidates {
		line("%3d. %s: %s", i+1, name(d.Candidates[i].Pod), d.explain(i))
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
	text := fmt.Sprintf("%s: %s, %s of %s available", r.Threshold, r.State, s.amount(r.Observation.Available), s.amount(r.Observation.Capacity))
	switch {
	case r.State == Fine && r.Since.IsZero():
		return text + "\n"
	case r.State == Fine:
		return text + ", met until a moment ago\n"
	case !r.Due:
		return fmt.Sprintf("%s, due in %v\n", text, r.Threshold.GracePeriod-now.Sub(r.Since))
	}
	text += ", short of " + s.amount(r.Shortfall)
	if r.InFlight > 0 {
		text += ", " + s.amount(r.InFlight) + " on the way"
	}
	return text + ": " + r.Why + "\n"
}

// explain tells why a candidate has its place, and what becomes of it.
func (d *Decision) explain(place int) string {
	c := &d.Candidates[place]
	var facts []string
	if c.Preferred {
		facts = append(facts, "preferred")
	}
	signal := d.signal()
	switch {
	case c.Usage.Known() && c.Request > 0:
		facts = append(facts, fmt.Sprintf("uses %s of the %s it asks for", signal.amount(c.Usage.Value), signal.amount(c.Request)))
	case c.Usage.Known():
		facts = append(facts, "uses "+signal.amount(c.Usage.Value))
	case c.Overdue:
		facts = append(facts, "uses nobody knows what, for too long")
	case c.Missing:
		facts = append(facts, "uses nobody knows what, so far")
	}
	facts = append(facts, fmt.Sprintf("priority %d", c.Priority), string(c.QOS))
	text := strings.Join(facts, ", ")
	if c.Kept != "" {
		return text + " - kept: " + c.Kept
	}
	for i := range d.Victims {
		if d.Victims[i].Place == place {
			return fmt.Sprintf("%s - evicted, %ds to end", text, d.Victims[i].GracePeriodSeconds)
		}
	}
	return text
}

// signal is what the candidates are ranked for.
func (d *Decision) signal() Signal {
	if d.Signal != "" {
		return d.Signal
	}
	for i := range d.Thresholds {
		if d.Thresholds[i].Due {
			return d.Thresholds[i].Threshold.Signal
		}
	}
	return ""
}

func name(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// candidateJSON is a [Candidate] without the whole pod.
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

// MarshalJSON writes the pod as its names.
func (c Candidate) MarshalJSON() ([]byte, error) { return json.Marshal(c.json()) }

// MarshalJSON writes the pod as its names.
func (v Victim) MarshalJSON() ([]byte, error) {
	j := v.json()
	j.GracePeriodSeconds = &v.GracePeriodSeconds
	return json.Marshal(j)
}
