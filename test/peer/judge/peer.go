package judge

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// Facts are the actions and reports of one side in one step, by name. A missing name and an
// empty value are the same. Names are paths such as "pod a/condition Ready". Digits in a name
// count objects: two names that differ only in digits are the same kind of difference.
type Facts map[string]string

// A Class is the reason for which a difference exists.
type Class string

// The classes of rules.
const (
	Deliberate     Class = "deliberate"      // our manager differs on purpose
	KubeletDefect  Class = "kubelet defect"  // our manager does not have a defect of the kubelet
	ArbitraryOrder Class = "arbitrary order" // the kubelet's own result is random
)

// A Rule explains one kind of difference.
type Rule[W any] struct {
	Name  string // short and unique in the peer, such as "pods without stats"
	Class Class
	// Sentence describes the behaviour of the kubelet and ours. Doc contains it word for
	// word.
	Sentence string
	Doc      string // the doc.go that users read, such as "eviction/doc.go"
	Explains func(Scene[W]) bool
	// Ends is set if the two sides act on different states from this step on. The rest of the
	// scenario is not compared.
	Ends bool
}

// A Scene is one difference, the input of a rule.
type Scene[W any] struct {
	World W // after the kubelet's side has played it
	Step  int
	Fact  string

	Kubelet, Ours           string  // the two values
	KubeletFacts, OursFacts []Facts // of this step and all earlier steps
}

// A Peer is one comparison of a manager with the kubelet's package.
type Peer[W any] struct {
	// Name is the name of the manager's package, with a suffix if a manager has several
	// peers: "prober/http".
	Name string
	// World makes a scenario. It is called once for each side.
	World func(*Draw) W
	// Kubelet and Ours play a world and return the facts of each step. They may
	// modify the world. They must not share state, and must not read the real clock.
	Kubelet, Ours func(*testing.T, W) []Facts
	Rules         []Rule[W]
	// Predict is for overlapping differences. If it is nil, each of Rules explains
	// differences independently. Predict returns the facts that our side must have in a step,
	// rule by rule: the first prediction is the kubelet's facts, and each further prediction
	// applies one more rule, for example by running the kubelet in a slightly changed world.
	// With Predict, the rules need no Explains. If both sides agree in a fact, but the last
	// prediction has another value, this is a difference too. Predict is called often, and
	// should cache its results.
	Predict func(Scene[W]) []Prediction
	// Scenarios is the number of seeds that each run plays, from seed 1.
	Scenarios int
}

// A difference is a fact with different values on the two sides, and the rule that explains
// it, if any.
type difference struct {
	step          int
	fact          string
	kubelet, ours string
	rule          int // index, or -1
}

// A trial is the result of one scenario.
type trial[W any] struct {
	world       W
	kubelet     []Facts
	ours        []Facts
	differences []difference
	compared    int // steps
	facts       int
}

// try plays one scenario and compares its steps. It stops after the first step that has an
// unexplained difference, or a difference whose rule ends the scenario.
func (p Peer[W]) try(t *testing.T, draw func() *Draw) trial[W] {
	t.Helper()
	world := p.World(draw())
	tr := trial[W]{world: world, kubelet: p.Kubelet(t, world), ours: p.Ours(t, p.World(draw()))}
	for step := range max(len(tr.kubelet), len(tr.ours)) {
		kubelet, ours := at(tr.kubelet, step), at(tr.ours, step)
		tr.compared++
		tr.facts += len(kubelet)
		stop := false
		must := p.must(tr, step, ours)
		for _, fact := range names(kubelet, ours, must) {
			d := difference{step: step, fact: fact, kubelet: kubelet[fact], ours: ours[fact], rule: -1}
			switch {
			case d.kubelet != d.ours:
				d.rule = p.explain(tr, d)
			case d.ours == must[fact]:
				continue
			default:
				d.ours += fmt.Sprintf(" (the rules expect %q)", must[fact])
			}
			stop = stop || d.rule < 0 || p.Rules[d.rule].Ends
			tr.differences = append(tr.differences, d)
		}
		if stop {
			break
		}
	}
	return tr
}

func (p Peer[W]) explain(tr trial[W], d difference) int {
	return slices.IndexFunc(p.Rules, func(r Rule[W]) bool { return r.Explains(tr.scene(d)) })
}

func (tr trial[W]) scene(d difference) Scene[W] {
	return Scene[W]{
		World: tr.world, Step: d.step, Fact: d.fact, Kubelet: d.kubelet, Ours: d.ours,
		KubeletFacts: tr.kubelet[:min(d.step+1, len(tr.kubelet))],
		OursFacts:    tr.ours[:min(d.step+1, len(tr.ours))],
	}
}

// must returns the facts that our side must have in a step according to the predictions.
// Without predictions it returns our facts.
func (p Peer[W]) must(tr trial[W], step int, ours Facts) Facts {
	if p.Predict == nil || step >= len(tr.kubelet) {
		return ours
	}
	all := p.Predict(tr.scene(difference{step: step}))
	return at([]Facts{all[len(all)-1].Facts}, 0)
}

// at returns the facts of a step. A side that stopped earlier returns no facts; the fact
// "step" makes that a difference even if the other side reports nothing.
func at(all []Facts, step int) Facts {
	if step >= len(all) {
		return nil
	}
	f := maps.Clone(all[step])
	if f == nil {
		f = Facts{}
	}
	f["step"] = "played"
	return f
}

// names returns the names of all facts in the arguments.
func names(given ...Facts) []string {
	all := Facts{}
	for _, f := range given {
		maps.Copy(all, f)
	}
	return slices.Sorted(maps.Keys(all))
}

// unexplained returns the first difference that no rule explains.
func (tr trial[W]) unexplained() (difference, bool) {
	i := slices.IndexFunc(tr.differences, func(d difference) bool { return d.rule < 0 })
	if i < 0 {
		return difference{}, false
	}
	return tr.differences[i], true
}
