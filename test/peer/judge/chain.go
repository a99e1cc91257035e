package judge

// A Prediction is what is left of the kubelet's facts of a step after one of the
// deviations of ours.
type Prediction struct {
	Facts Facts
	By    int // the rule, -1 for what the kubelet does
}

// chained returns p with rules that explain what its predictions say: a rule explains a
// difference if the last prediction is what ours does, and no later rule changed that
// fact.
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

// lastChange returns the rule that last changed a fact, -1 if none did.
func lastChange(p []Prediction, fact string) int {
	for i := len(p) - 1; i > 0; i-- {
		if p[i].Facts[fact] != p[i-1].Facts[fact] {
			return p[i].By
		}
	}
	return -1
}
