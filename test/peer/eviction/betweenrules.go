package eviction

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// betweenRules are about our looks between the kubelet's turns.
func betweenRules() []judge.Rule[*world] {
	const sentence = "The kubelet evaluates every 10 s, with measurements up to 30 s old. Ours evaluates again after a quarter of the time in which a fast consumer could reach a threshold, at most once every 100 ms."
	return []judge.Rule[*world]{
		{
			Name: "evaluations between the kubelet's passes", Class: judge.Deliberate, Doc: doc, Sentence: sentence,
			Explains: func(s judge.Scene[*world]) bool { return !acts(s.Ours) && explainsBetween(s) },
		},
		{
			Name: "evaluations between the kubelet's passes: actions", Class: judge.Deliberate, Doc: doc, Sentence: sentence, Ends: true,
			Explains: func(s judge.Scene[*world]) bool { return acts(s.Ours) && explainsBetween(s) },
		},
	}
}

// acts reports whether our manager acts in a look.
func acts(text string) bool {
	return slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
		word, _, _ := strings.Cut(line, " ")
		return slices.Contains([]string{"limits", "reclaims", "escalates", "evicts"}, word)
	})
}

// explainsBetween reports whether the model predicts our look between turns.
func explainsBetween(s judge.Scene[*world]) bool {
	st := stepOf(s)
	if st == nil || !strings.HasPrefix(s.Fact, "between ") || s.Kubelet != "" {
		return false
	}
	looks := looksBetween(st.index, st.ours)
	i := slices.IndexFunc(looks, func(l pastLook) bool { return betweenFact(l.number) == s.Fact })
	return i >= 0 && st.between(looks[i]) == s.Ours
}

// between returns the observations and decisions of our manager in a look between turns.
func (st *step) between(l pastLook) string {
	c := oursCauses()
	m := st.remember(c)
	st.looks(m, st.index, st.ours, c)
	st.changes = st.m.changes
	for _, o := range looksBetween(st.index, st.ours) {
		if o.at < l.at {
			st.look(m, o.at, false, c, judge.Facts{})
		}
	}
	lists := judge.Facts{}
	st.look(m, l.at, false, c, lists)
	st.isBetween = true
	p := &betweenPlan{st: st, q: oursAll(), at: l.at, flights: st.flights(l.at)}
	isChecked := st.limitsAskedAt(l.at)
	p.limits = st.limits(p.q, l.at)
	p.asks, p.grown = isChecked, isChecked
	fresh := st.fresh(lists)
	if st.limitsFirst(p.limits, l.at) {
		fresh = nil
	}
	slices.SortStableFunc(fresh, func(a, b threshold) int { return st.compareAt(a, b, l.at) })
	plan := *p
	plan.decide(m, fresh, st.collectionsEnded(true))
	if plan.asks && !isChecked {
		p.grown = true
		plan = *p
		plan.decide(m, fresh, st.collectionsEnded(true))
		plan.asks = true
	}
	return plan.text(m, lists)
}

// text prints the observations and decisions.
func (p *betweenPlan) text(m *memory, lists judge.Facts) string {
	text := &lookText{}
	text.add("at", p.at.String())
	var lines []string
	for _, t := range p.st.w.thresholds() {
		if strings.HasPrefix(string(t.Signal), "containerfs.") {
			continue
		}
		lines = append(lines, p.st.thresholdText(t, m, lists, p.at))
	}
	slices.Sort(lines)
	text.lines = append(text.lines, lines...)
	var words []string
	for _, c := range conditionTypes() {
		if m.holding[c] {
			words = append(words, string(c))
		}
	}
	text.add("conditions", words...)
	if p.asks {
		text.add("asks", "for", "figures")
	}
	text.add("late", p.late()...)
	text.add("limits", p.limits...)
	text.add("reclaims", p.reclaims...)
	text.add("escalates", p.escalated...)
	text.add("ranking", p.ranking...)
	text.add("evicts for "+string(p.signal), p.victims...)
	return text.String()
}

// isListed reports whether a threshold is in one of the lists of a look.
func (st *step) isListed(lists judge.Facts, t threshold, list string) bool {
	for word := range strings.FieldsSeq(lists[string(t.Signal)+"/"+list]) {
		if strings.HasPrefix(word, t.Value+t.Grace.String()+"=") {
			return true
		}
	}
	return false
}

// thresholdText prints the state of a threshold in our manager.
func (st *step) thresholdText(t threshold, m *memory, lists judge.Facts, at time.Duration) string {
	r, ok := st.measureAt(t.Signal, at)
	short := st.missing(t, at)
	state := eviction.Fine
	switch {
	case st.isListed(lists, t, "met"):
		state = eviction.Met
	case st.isListed(lists, t, "unresolved"):
		state = eviction.Reclaiming
	case !ok || in(st.w.Blind, at):
		state, short = eviction.Unknown, 0
	case r.available > r.capacity || r.capacity == 0:
		state, short = eviction.Implausible, 0
	case !r.time.IsZero() && st.m.began.Add(at).Sub(r.time) > time.Minute:
		state, short = eviction.Stale, 0
	default:
		short = 0
	}
	text := fmt.Sprintf("%s<%s %s", t.Signal, valueOf(t.Value), state)
	if since, ok := m.since[t]; ok {
		text += fmt.Sprintf(" since %s short of %d", since, short)
	}
	if st.isListed(lists, t, "due") {
		text += ", due"
		if !st.isListed(lists, t, "fresh") {
			text += ", old"
		}
	}
	return text
}
