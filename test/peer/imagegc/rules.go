package imagegc

import (
	"fmt"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A part is a part of the facts that a trait changes. Each part has a separate rule, because
// the sides have different images after different deletions.
type part string

const (
	deletions part = "deletions"
	reports   part = "reports"
	invalidID part = "event InvalidImageID"
)

func (p part) has(fact string) bool {
	deleted := strings.HasSuffix(fact, " deletion")
	switch p {
	case deletions:
		return deleted
	case reports:
		return !deleted
	default:
		return fact == string(p)
	}
}

// A cause is a rule about one trait.
type cause struct {
	name     string
	trait    traits
	class    judge.Class
	parts    []part
	sentence string
}

func rules() (rules []judge.Rule[*World]) {
	for _, c := range causes() {
		for _, part := range c.parts {
			name := c.name
			if len(c.parts) > 1 {
				name += ": " + string(part)
			}
			rules = append(rules, judge.Rule[*World]{
				Name: name, Class: c.class, Sentence: c.sentence, Doc: doc,
				Ends: part == deletions,
				Explains: func(s judge.Scene[*World]) bool {
					return part.has(s.Fact) && s.World.explains(s, c.trait)
				},
			})
		}
	}
	return append(rules, judge.Rule[*World]{
		Name: "all problems of an invalid policy", Class: judge.Deliberate, Doc: "imagegc/doc.go",
		Sentence: "Ours reports all problems of an invalid policy; the kubelet reports the first.",
		Explains: func(s judge.Scene[*World]) bool {
			problems, ok := strings.CutPrefix(s.Ours, "imagegc: invalid config: ")
			first, _, _ := strings.Cut(problems, "\n")
			return s.Fact == "policy" && ok && s.Kubelet == first
		},
	})
}

const doc = "imagegc/doc.go"

// explains reports whether a trait is the cause of a difference. The models must have both
// values of the difference. See causeOf for which trait is the cause.
func (w *World) explains(s judge.Scene[*World], t traits) bool {
	if s.Step >= len(w.seen) { // a world with an invalid policy has no steps
		return false
	}
	theirs, ours := w.predict(s.Step, 0)[s.Fact], w.predict(s.Step, everyTrait)[s.Fact]
	if s.Kubelet != theirs || s.Ours != ours {
		return false
	}
	key := fmt.Sprint(s.Step, s.Fact)
	if _, ok := w.found[key]; !ok {
		if w.found == nil {
			w.found = map[string]traits{}
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
