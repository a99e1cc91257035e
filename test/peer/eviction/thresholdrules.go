package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// thresholdRules are about thresholds, node conditions and events of the node.
func thresholdRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{
		{
			Name: "rate-limited eviction events", Class: judge.Deliberate, Doc: doc,
			Sentence: "The kubelet repeats its events in each pass; ours sends the event EvictionThresholdMet at most once per [Config.EventPeriod] for each resource, and the event about an evicted pod once, however often its kill is retried.",
			Explains: eventOnce,
		},
		{
			Name: "arbitrary choice among due thresholds", Class: judge.ArbitraryOrder, Doc: doc,
			Sentence: "If several thresholds are due, the kubelet acts on a memory threshold if one is due, and otherwise on an arbitrary threshold; ours acts on hard thresholds first, then in a fixed order.", Ends: true,
			Explains: func(s judge.Scene[*world]) bool { return explainsPick(s, true) },
		},
		{
			Name: "hard thresholds first", Class: judge.Deliberate, Doc: doc,
			Sentence: "If several thresholds are due, the kubelet acts on a memory threshold if one is due, and otherwise on an arbitrary threshold; ours acts on hard thresholds first, then in a fixed order.", Ends: true,
			Explains: func(s judge.Scene[*world]) bool { return explainsPick(s, false) },
		},
	}
}

// lastStart returns the first step of the agent that plays this step.
func (st *step) lastStart() int {
	for i := st.index; i > 0; i-- {
		if st.w.Notes[i].Restarted {
			return i
		}
	}
	return 0
}

// event returns the text of the event about a threshold.
func (st *step) event(t threshold) string {
	if t.Signal == "" {
		return ""
	}
	return `node Warning EvictionThresholdMet "Attempting to reclaim ` + resourceOf(t.Signal) + `"`
}

func resourceOf(s eviction.Signal) string {
	switch {
	case isMemory(s):
		return "memory"
	case s == eviction.PIDAvailable:
		return "pids"
	case strings.HasSuffix(string(s), "inodesFree"):
		return "inodes"
	default:
		return "ephemeral-storage"
	}
}

// eventOnce explains events that our manager omits because it recorded an equal event shortly
// before.
func eventOnce(s judge.Scene[*world]) bool {
	st := stepOf(s)
	if st == nil {
		return false
	}
	if rest, ok := strings.CutPrefix(s.Fact, "kill "); ok {
		name, part, _ := strings.Cut(rest, "/")
		return s.Ours == "" && (part == "event" || part == "annotations") && st.kills(st.ours, name) && st.announced(name)
	}
	if s.Fact != "event" || s.Kubelet != st.event(st.note().Acts) {
		return false
	}
	st.decide(st.fresh(st.ours), oursAll())
	return s.Ours == strings.Join(st.events, "\n")
}

// toldBefore returns the times at which our manager last recorded each node event before this
// step.
func (st *step) toldBefore() map[string]time.Duration {
	told := map[string]time.Duration{}
	isTime := func(line string, at time.Duration) bool {
		last, ok := told[line]
		return !ok || at-last >= 10*time.Second
	}
	for i := st.lastStart(); i < st.index; i++ {
		left := strings.Split(st.before[i]["event"], "\n")
		at := st.w.Notes[i].At
		for _, round := range append(rounds(st.before[i]), nil) {
			for n, line := range left {
				if line != "" && isTime(line, at) {
					told[line], left[n] = at, ""
				}
			}
			at += st.w.took(round)
		}
		for _, l := range looksBetween(i, st.before[i]) {
			if line := st.event(st.urgent(l)); line != "" && isTime(line, l.at) {
				told[line] = l.at
			}
		}
	}
	return told
}

// urgent returns the first threshold on which our manager acts in a look between turns.
func (st *step) urgent(l pastLook) threshold {
	var all []threshold
	for _, t := range st.w.thresholds() {
		prefix := fmt.Sprintf("%s<%s ", t.Signal, valueOf(t.Value))
		if slices.ContainsFunc(strings.Split(l.text, "\n"), func(line string) bool {
			return strings.HasPrefix(line, prefix) && strings.HasSuffix(line, ", due")
		}) {
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return threshold{}
	}
	return slices.MinFunc(all, func(a, b threshold) int { return st.compareAt(a, b, l.at) })
}

// announced reports whether our manager has recorded an event about a pod whose kill failed
// afterwards.
func (st *step) announced(name string) bool {
	_, failed := st.note().Failed[name]
	if !failed {
		return false
	}
	for i := st.index - 1; i >= st.lastStart(); i-- {
		if st.before[i]["kill "+name+"/event"] != "" {
			return true
		}
	}
	return false
}

// explainsPick explains the choice of our manager between several thresholds.
func explainsPick(s judge.Scene[*world], byChance bool) bool {
	st := stepOf(s)
	if st == nil || s.Fact != "picks" {
		return false
	}
	fresh := st.fresh(st.kubelet)
	st.changes, st.told, st.shortened = st.changesBefore(st.index), map[string]time.Duration{}, map[string]time.Duration{}
	m := st.remember(oursCauses())
	st.changes = st.changesBefore(st.index)
	st.look(m, st.at, false, oursCauses(), judge.Facts{})
	p := st.plan(fresh, st.collectionsEnded(false), chance{at: st.at, q: oursAll(), d: &decision{}, m: m})
	if p.picks == nil {
		p.picks = []string{"nothing"}
	}
	if len(fresh) == 0 || s.Ours != strings.Join(p.picks, " ") {
		return false
	}
	chance := strings.Contains(s.Kubelet, " ") && slices.Contains(strings.Fields(s.Kubelet), fresh[0].String())
	return chance == byChance
}

// compare orders thresholds as our manager acts on them.
func (st *step) compare(a, b threshold) int {
	return st.compareAt(a, b, st.at)
}

func (st *step) compareAt(a, b threshold, at time.Duration) int {
	return cmp.Or(cmp.Compare(isSoft(a), isSoft(b)), cmp.Compare(urgency(a.Signal), urgency(b.Signal)), cmp.Compare(st.ratio(a, at), st.ratio(b, at)))
}

func isSoft(t threshold) int {
	if t.Grace == 0 {
		return 0
	}
	return 1
}

// urgency is the position of a signal in our fixed order.
func urgency(s eviction.Signal) int {
	if isMemory(s) {
		return 0
	}
	return 1 + slices.Index([]eviction.Signal{
		eviction.PIDAvailable, eviction.NodeFSAvailable, eviction.NodeFSInodesFree, eviction.ImageFSAvailable, eviction.ImageFSInodesFree,
		eviction.ContainerFSAvailable, eviction.ContainerFSInodesFree,
	}, s)
}

func (st *step) ratio(t threshold, at time.Duration) float64 {
	r, _ := st.measureAt(t.Signal, at)
	return float64(r.available) / float64(max(amount(t.Value, r.capacity), 1))
}

// admission returns the admission result of a pod under the conditions of f.
func admission(name string, f judge.Facts) string {
	var holding []string
	for _, c := range conditionTypes() {
		if f["condition "+string(c)] != "" {
			holding = append(holding, string(c))
		}
	}
	always := []string{"static", "mirror", "critical"}
	memory := []string{"burstable", "guaranteed", "tolerates all", "tolerates memory", "tolerates no value"}
	onlyMemory := slices.Equal(holding, []string{string(corev1.NodeMemoryPressure)})
	if len(holding) == 0 || slices.Contains(always, name) || onlyMemory && slices.Contains(memory, name) {
		return "admitted"
	}
	return "refused: Evicted: The node had condition: [" + strings.Join(holding, " ") + "]. "
}
