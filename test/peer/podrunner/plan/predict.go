package plan

import (
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A deviation is one way in which our plans differ from the kubelet's. Rules are made of
// deviations: all of them in sequence turn the kubelet's actions into ours. The last
// deviation that changes a fact explains it.
type deviation struct {
	judge.Rule[*World]

	// state changes the kubelet's input so that the kubelet decides as our plan does. It may
	// be nil. It reports whether it changed anything.
	state func(*State) bool
	// facts changes the kubelet's actions to ours. It may be nil. The state is that of the
	// step, after the deviations.
	facts func(*State, judge.Facts)
}

// predict returns, for one step, the kubelet's actions, and then its actions after each
// deviation. The last must equal ours.
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
