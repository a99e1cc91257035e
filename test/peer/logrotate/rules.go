package logrotate

import "github.com/kubeparts/kubeparts/test/peer/judge"

// A cause is a rule about one trait.
type cause struct {
	name     string
	trait    traits
	class    judge.Class
	sentence string
}

func rules() (all []judge.Rule[*World]) {
	for _, c := range causes() {
		all = append(all, judge.Rule[*World]{
			Name: c.name, Class: c.class, Sentence: c.sentence, Doc: "containergc/logrotate/doc.go",
			Explains: func(s judge.Scene[*World]) bool { return s.World.explains(s, c.trait) },
		})
	}
	return all
}

// explains reports whether a trait is the cause of a difference. The models must have both
// values of the difference. See causeOf for which trait is the cause.
func (w *World) explains(s judge.Scene[*World], t traits) bool {
	theirs, ours := w.predict(s.Step, 0)[s.Fact], w.predict(s.Step, everyTrait)[s.Fact]
	if s.Kubelet != theirs || s.Ours != ours {
		return false
	}
	key := place{s.Step, s.Fact}
	if _, ok := w.found[key]; !ok {
		if w.found == nil {
			w.found = map[place]traits{}
		}
		w.found[key] = w.causeOf(s.Step, s.Fact)
	}
	return w.found[key] == t
}

// causeOf returns the trait that causes a fact to differ from the kubelet's. This is the first
// trait without which our model has another value, or with which the kubelet's model has
// another value. If no single trait has this effect, causeOf adds the traits to the kubelet's
// model one by one. The cause is then the last trait that changes the value.
func (w *World) causeOf(step int, fact string) traits {
	theirs, ours := w.predict(step, 0)[fact], w.predict(step, everyTrait)[fact]
	for _, c := range causes() {
		if w.predict(step, everyTrait&^c.trait)[fact] != ours || w.predict(step, c.trait)[fact] != theirs {
			return c.trait
		}
	}
	last, some := traits(0), traits(0)
	for _, c := range causes() {
		before := w.predict(step, some)[fact]
		if some |= c.trait; w.predict(step, some)[fact] != before {
			last = c.trait
		}
	}
	return last
}
