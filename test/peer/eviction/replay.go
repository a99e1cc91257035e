package eviction

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A cause is one way in which our manager evaluates thresholds and node conditions
// differently from the kubelet.
type cause int

// The causes.
const (
	layoutUnknown cause = iota // our manager continues without the layout
	containerFS                // the kubelet evaluates containerfs from the second turn on
	oldFigures                 // our manager does not act on old figures
	impossible                 // our manager does not act on impossible figures
	unknownKeeps               // our manager does not restart a grace period because a figure is missing
	moreLooks                  // our manager evaluates again after each collection
	shortBreaks                // short interruptions do not restart a grace period
	numCauses
)

// A set of causes: true is our behaviour.
type causes [numCauses]bool

func (c causes) with(i cause, is bool) causes {
	c[i] = is
	return c
}

func oursCauses() (c causes) {
	for i := range c {
		c[i] = true
	}
	return c
}

// A memory is the state that a side keeps about thresholds between looks.
type memory struct {
	since, lastMet map[threshold]time.Duration
	due            map[threshold]bool
	observed       map[eviction.Signal]time.Time
	conditions     map[corev1.NodeConditionType]time.Duration
	holding        map[corev1.NodeConditionType]bool
	evaluated      time.Duration

	// State before the last look.
	wasDue          map[threshold]bool
	observedBefore  map[eviction.Signal]time.Time
	evaluatedBefore time.Duration
}

func newMemory() *memory {
	return &memory{
		since: map[threshold]time.Duration{}, lastMet: map[threshold]time.Duration{}, due: map[threshold]bool{},
		observed: map[eviction.Signal]time.Time{}, conditions: map[corev1.NodeConditionType]time.Duration{},
		holding: map[corev1.NodeConditionType]bool{},
	}
}

// replay returns the thresholds and conditions that a side with these causes records in this
// step.
func (st *step) replay(s judge.Scene[*world], c causes) judge.Facts {
	m := st.remember(c)
	f := st.looks(m, st.index, st.ours, c)
	for cond, holds := range m.holding {
		if holds {
			f["condition "+string(cond)] = "true"
		}
	}
	return f
}

// remember returns the state of a side with these causes after the earlier steps.
func (st *step) remember(c causes) *memory {
	m := newMemory()
	for i := st.lastStart(); i < st.index; i++ {
		st.looks(m, i, st.before[i], c)
		for _, l := range looksBetween(i, st.before[i]) {
			if c[moreLooks] {
				st.changes = st.m.changes
				st.look(m, l.at, false, c, judge.Facts{})
			}
		}
	}
	return m
}

// looks evaluates the thresholds in each look of step i, and returns the lists of the first
// look.
func (st *step) looks(m *memory, i int, ours judge.Facts, c causes) judge.Facts {
	all := judge.Facts{}
	if i < st.w.LayoutErrors && !c[layoutUnknown] {
		return all
	}
	st.changes = st.changesBefore(i)
	isFirst := i == max(st.lastStart(), st.w.LayoutErrors)
	at := st.w.Notes[i].At
	st.look(m, at, isFirst, c, all)
	if !c[moreLooks] || i == st.index && len(st.limits(oursAll(), at)) > 0 {
		return all // the evictions for limits end first
	}
	for _, round := range rounds(ours) {
		for _, a := range round {
			st.collected(i, a, at+st.w.collector(a).Took)
		}
		at += st.w.took(round)
		st.look(m, at, isFirst, c, judge.Facts{})
	}
	return all
}

// look evaluates all thresholds once.
func (st *step) look(m *memory, at time.Duration, isFirst bool, c causes, f judge.Facts) {
	isBlind := in(st.w.Blind, at)
	if isBlind && !c[unknownKeeps] {
		return
	}
	was := maps.Clone(m.due)
	m.wasDue, m.observedBefore, m.evaluatedBefore = was, maps.Clone(m.observed), m.evaluated
	observed := map[eviction.Signal]time.Time{}
	pressed := map[corev1.NodeConditionType]bool{}
	for _, t := range st.w.thresholds() {
		if isFirst && !c[containerFS] && strings.HasPrefix(string(t.Signal), "containerfs.") {
			continue
		}
		r, ok := st.measureAt(t.Signal, at)
		ok = ok && !isBlind
		if ok {
			observed[t.Signal] = r.time
		}
		old := ok && c[oldFigures] && !r.time.IsZero() && st.m.began.Add(at).Sub(r.time) > time.Minute
		isImpossible := ok && c[impossible] && (r.available > r.capacity || r.capacity == 0)
		if !ok || old || isImpossible {
			if !c[unknownKeeps] && !isBlind {
				m.forget(t)
			}
			if old && !isImpossible && (r.available < amount(t.Value, r.capacity) || was[t] && st.missing(t, at) > 0) {
				pressed[conditionOf(t.Signal)] = true
			}
			continue
		}
		if st.judge(m, t, r, was[t], view{at, c, f}) {
			pressed[conditionOf(t.Signal)] = true
		}
	}
	if !c[unknownKeeps] && !isBlind {
		clear(m.observed)
	}
	maps.Copy(m.observed, observed)
	m.evaluated = at
	if !isBlind {
		m.hold(pressed, at, st.w.Transition)
	}
}

func (m *memory) forget(t threshold) {
	delete(m.since, t)
	delete(m.due, t)
}

// A view is a look of a side: its time, its causes, and the lists that it makes.
type view struct {
	at    time.Duration
	c     causes
	lists judge.Facts
}

// judge evaluates one threshold whose figure is known, and reports whether it is met.
func (st *step) judge(m *memory, t threshold, r measurement, wasDue bool, v view) bool {
	quantity := amount(t.Value, r.capacity)
	isMet := r.available < quantity
	if !isMet && (!wasDue || st.missing(t, v.at) <= 0) {
		since, known := m.since[t]
		delete(m.due, t)
		since += 2 * (v.at - m.evaluated)
		if !v.c[shortBreaks] || !known || wasDue || t.Grace == 0 || v.at-m.lastMet[t] >= 10*time.Second || since >= v.at {
			delete(m.since, t)
		} else {
			m.since[t] = since
		}
		return false
	}
	record := func(list string) {
		fact := string(t.Signal) + "/" + list
		words := append(strings.Fields(v.lists[fact]), t.Value+t.Grace.String()+"="+itoa(r.available)+"<"+itoa(quantity))
		slices.Sort(words)
		v.lists[fact] = strings.Join(words, " ")
	}
	record("unresolved")
	if isMet {
		record("met")
	}
	m.lastMet[t] = v.at
	if _, ok := m.since[t]; !ok {
		m.since[t] = v.at
	}
	m.due[t] = v.at-m.since[t] >= t.Grace
	if !m.due[t] {
		delete(m.due, t)
		return true
	}
	record("due")
	if last, ok := m.observed[t.Signal]; !ok || last.IsZero() || r.time.IsZero() || r.time.After(last) {
		record("fresh")
	}
	return true
}

// hold updates the conditions.
func (m *memory) hold(pressed map[corev1.NodeConditionType]bool, at, transition time.Duration) {
	for _, c := range conditionTypes() {
		if pressed[c] {
			m.conditions[c] = at
		}
		last, ok := m.conditions[c]
		if m.holding[c] = ok && at-last < transition; !m.holding[c] {
			delete(m.conditions, c)
		}
	}
}

// isJudgement reports whether a fact is about thresholds or conditions.
func isJudgement(fact string) bool {
	_, list, _ := strings.Cut(fact, "/")
	return slices.Contains([]string{"met", "unresolved", "due", "fresh"}, list) || strings.HasPrefix(fact, "condition ")
}

// judgementCause returns why the sides evaluate a threshold or a condition differently, or -1
// if the model does not predict both results.
func judgementCause(s judge.Scene[*world]) cause {
	return cause(s.World.once(fmt.Sprint("judgement ", s.Step, s.Fact), func() int { return int(findJudgement(s)) }))
}

func findJudgement(s judge.Scene[*world]) cause {
	st := stepOf(s)
	if st == nil {
		return -1
	}
	if name, ok := strings.CutPrefix(s.Fact, "admit "); ok {
		if s.Kubelet != admission(name, st.kubelet) || s.Ours != admission(name, st.ours) {
			return -1
		}
		for _, c := range conditionTypes() {
			fact := "condition " + string(c)
			if st.kubelet[fact] != st.ours[fact] {
				s.Fact, s.Kubelet, s.Ours = fact, st.kubelet[fact], st.ours[fact]
				return judgementCause(s)
			}
		}
		return -1
	}
	if !isJudgement(s.Fact) || st.replay(s, causes{})[s.Fact] != s.Kubelet || st.replay(s, oursCauses())[s.Fact] != s.Ours {
		return -1
	}
	for i := range numCauses {
		if st.replay(s, oursCauses().with(i, false))[s.Fact] != s.Ours {
			return i
		}
	}
	for i := range numCauses {
		if st.replay(s, causes{}.with(i, true))[s.Fact] != s.Kubelet {
			return i
		}
	}
	return -1
}

// consequenceCause returns the cause of a decision that differs because the sides evaluate
// thresholds differently.
func consequenceCause(s judge.Scene[*world]) cause {
	return cause(s.World.once(fmt.Sprint("consequence ", s.Step, s.Fact), func() int { return int(findConsequence(s)) }))
}

func findConsequence(s judge.Scene[*world]) cause {
	st := stepOf(s)
	if st == nil || !isDecision(s) && s.Fact != "picks" {
		return -1
	}
	if st.index < st.w.LayoutErrors {
		if decisionOf(st.kubelet) == (decision{}) && st.decide(st.oursActs(), oursAll()) == decisionOf(st.ours) {
			return layoutUnknown
		}
		return -1
	}
	if st.decide(st.note().acts(), quirks{}) != decisionOf(st.kubelet) || st.decide(st.oursActs(), oursAll()) != decisionOf(st.ours) {
		return -1
	}
	for _, t := range st.w.thresholds() {
		fact := string(t.Signal) + "/fresh"
		if st.kubelet[fact] != st.ours[fact] && !strings.HasPrefix(fact, "containerfs.") {
			s.Fact, s.Kubelet, s.Ours = fact, st.kubelet[fact], st.ours[fact]
			return judgementCause(s)
		}
	}
	return -1
}

// oursActs returns the thresholds on which our manager acts. It is empty if the scenario ends
// with the choice of the threshold.
func (st *step) oursActs() []threshold {
	if st.ours["picks"] != "" {
		return nil
	}
	return st.fresh(st.ours)
}

func conditionTypes() []corev1.NodeConditionType {
	return []corev1.NodeConditionType{corev1.NodeDiskPressure, corev1.NodeMemoryPressure, corev1.NodePIDPressure}
}

func conditionOf(s eviction.Signal) corev1.NodeConditionType {
	switch resourceOf(s) {
	case "memory":
		return corev1.NodeMemoryPressure
	case "pids":
		return corev1.NodePIDPressure
	default:
		return corev1.NodeDiskPressure
	}
}

// causeRules are about the evaluation of thresholds and conditions.
func causeRules() (all []judge.Rule[*world]) {
	for _, c := range []struct {
		cause          cause
		name, sentence string
		class          judge.Class
	}{
		{layoutUnknown, "unknown filesystem layout", "While the filesystem layout is unknown, the kubelet does nothing; ours uses the last known layout, or a single filesystem if no layout was ever known.", judge.Deliberate},
		{containerFS, "containerfs thresholds in the first pass", "The kubelet omits containerfs thresholds in its first pass; ours does not.", judge.KubeletDefect},
		{oldFigures, "outdated observations", "The kubelet counts a threshold as met by a measurement of any age; ours treats a measurement older than [Policy.MaxObservationAge] as unknown.", judge.Deliberate},
		{impossible, "implausible observations", "The kubelet accepts impossible values, such as 0 available of 0; ours treats them as unknown.", judge.Deliberate},
		{unknownKeeps, "grace period across unknown signals", "The kubelet restarts a grace period after the signal was unknown; ours continues it.", judge.Deliberate},
		{moreLooks, "evaluation after disk reclaim", "The kubelet evaluates thresholds and node conditions once per pass; ours evaluates them again after it has reclaimed a disk.", judge.Deliberate},
		{shortBreaks, "grace period across short recoveries", "The kubelet restarts a grace period after a single measurement above the threshold; ours extends it by twice the time for which the threshold was not met, and restarts it after 10 s above the threshold.", judge.Deliberate},
	} {
		r := judge.Rule[*world]{
			Name: c.name, Class: c.class, Doc: doc, Sentence: c.sentence,
			Explains: func(s judge.Scene[*world]) bool { return judgementCause(s) == c.cause },
		}
		if c.cause == shortBreaks {
			r.Ends = true
			r.Explains = func(s judge.Scene[*world]) bool {
				return judgementCause(s) == c.cause || consequenceCause(s) == c.cause
			}
		}
		all = append(all, r)
		if c.cause == shortBreaks || c.cause == containerFS {
			continue
		}
		r.Name, r.Ends = c.name+": evictions", true
		r.Explains = func(s judge.Scene[*world]) bool { return consequenceCause(s) == c.cause }
		all = append(all, r)
	}
	return all
}
