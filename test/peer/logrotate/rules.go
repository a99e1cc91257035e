package logrotate

import "github.com/kubeparts/kubeparts/test/peer/judge"

// A cause is a rule about one trait.
type cause struct {
	name     string
	trait    judge.Traits
	class    judge.Class
	sentence string
}

func rules() (all []judge.Rule[*World]) {
	for _, c := range causes() {
		all = append(all, judge.Rule[*World]{
			Name: c.name, Class: c.class, Sentence: c.sentence, Doc: "containergc/logrotate/doc.go",
			Explains: func(s judge.Scene[*World]) bool {
				return s.World.model.Explains(s.Step, s.Fact, s.Kubelet, s.Ours, c.trait)
			},
		})
	}
	return all
}

// newModel returns the model of w for the rules.
func newModel(w *World) *judge.Model {
	m := &judge.Model{Play: w.predict, All: everyTrait}
	for _, c := range causes() {
		m.Order = append(m.Order, c.trait)
	}
	return m
}
