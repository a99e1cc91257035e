package imagegc

import (
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
	trait    judge.Traits
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
					return part.has(s.Fact) && s.World.model.Explains(s.Step, s.Fact, s.Kubelet, s.Ours, c.trait)
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

// newModel returns the model of w for the rules.
func newModel(w *World) *judge.Model {
	m := &judge.Model{Play: w.predict, All: everyTrait}
	for _, c := range causes() {
		m.Order = append(m.Order, c.trait)
	}
	return m
}
