package judge

// A Prediction is what is left of the kubelet's facts of a step after one of the
// deviations of ours.
type Prediction struct {
	Facts Facts
	By    int // the rule, -1 for what the kubelet does
}

// Chain returns rules for differences that overlap. Predict turns what the kubelet
// does in a step into what ours must do: its first prediction is what the kubelet
// does, and each one after it has one more rule applied, such as by asking the kubelet
// again in a world that is a little different. A rule explains a difference if the
// last prediction is what ours does, and no later rule changed that fact. Predict is
// called often, and should remember what it returned.
func Chain[W any](rules []Rule[W], predict func(Scene[W]) []Prediction) []Rule[W] {
	chained := make([]Rule[W], len(rules))
	for i, r := range rules {
		r.Explains = func(sc Scene[W]) bool {
			p := predict(sc)
			return p[len(p)-1].Facts[sc.Fact] == sc.Ours && lastChange(p, sc.Fact) == i
		}
		chained[i] = r
	}
	return chained
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
