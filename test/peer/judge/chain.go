package judge

// A Prediction is the facts of a step after the rules up to By have been applied to the
// kubelet's facts.
type Prediction struct {
	Facts Facts
	By    int // index of the last applied rule, -1 for the kubelet's facts
}

// chained returns p with rules that explain differences by the predictions. The last
// prediction must have our value of the fact. The rule that changed the fact last then
// explains the difference.
func (p Peer[W]) chained() Peer[W] {
	if p.Predict == nil {
		return p
	}
	rules := make([]Rule[W], len(p.Rules))
	for i, r := range p.Rules {
		r.Explains = func(sc Scene[W]) bool {
			all := p.Predict(sc)
			return all[len(all)-1].Facts[sc.Fact] == sc.Ours && lastChange(all, sc.Fact) == i
		}
		rules[i] = r
	}
	p.Rules = rules
	return p
}

// lastChange returns the rule that last changed a fact, or -1 if no rule did.
func lastChange(p []Prediction, fact string) int {
	for i := len(p) - 1; i > 0; i-- {
		if p[i].Facts[fact] != p[i-1].Facts[fact] {
			return p[i].By
		}
	}
	return -1
}
