package plan

import (
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A deviation is one way in which our plans differ from the kubelet's. Rules are
// made of deviations: all of them, one after the other, turn what the kubelet does
// into what ours must do. A fact is explained by the last deviation that changes it.
type deviation struct {
	judge.Rule[*World]

	// state turns what the kubelet sees into what it would have to see to decide as
	// ours does. It may be nil. It reports whether it changed anything.
	state func(*State) bool
	// facts turns what the kubelet does into what ours does. It may be nil. The
	// state is that of the step, as the deviations have it.
	facts func(*State, judge.Facts)
}

// predict returns, for one step, what the kubelet does, and then what it would do
// after each deviation. The last is what ours must do.
func (w *World) predict(step int, all []deviation) []judge.Prediction {
	if w.predicted == nil {
		w.predicted = map[int][]judge.Prediction{}
	}
	if p := w.predicted[step]; p != nil {
		return p
	}
	s := w.seen[step].clone()
	s.policies, s.plan = s.Pod, w.plan
	s.Pod = s.Pod.DeepCopy()
	for _, c := range s.Containers {
		c.was = new(*c)
	}
	s.current = w.did[step]
	p := []judge.Prediction{{Facts: cloneFacts(s.current), By: -1}}
	for i, d := range all {
		if d.state != nil && d.state(s) {
			s.current = w.plan(s)
			p = append(p, judge.Prediction{Facts: cloneFacts(s.current), By: i})
		}
	}
	for i, d := range all {
		if d.facts != nil {
			f := cloneFacts(p[len(p)-1].Facts)
			d.facts(s, f)
			order(s, f)
			p = append(p, judge.Prediction{Facts: f, By: i})
		}
	}
	w.predicted[step] = p
	return p
}

func cloneFacts(f judge.Facts) judge.Facts {
	c := judge.Facts{}
	for name, value := range f {
		if value != "" {
			c[name] = value
		}
	}
	return c
}

// rules returns the rules of deviations.
func rules(all []deviation) []judge.Rule[*World] {
	rules := make([]judge.Rule[*World], len(all))
	for i, d := range all {
		rules[i] = d.Rule
	}
	return rules
}
