package eviction

import (
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A quirk is one way in which our decisions differ from the kubelet's.
type quirk int

// The quirks. A difference that has several causes is attributed to the first of them.
const (
	limitsAndThresholds quirk = iota
	limitZero
	splitLayers
	unmeasuredLast
	oldPodFigures
	inodeUnits
	containersBeside
	adopts
	freedCounts
	endingPassed
	failedLast
	severalGo
	ownThreshold
	collectionByLook
	uselessPassed
	hostPathStays
	otherFiles
	containerMemory
	nothingMeasured
	figuresAfter
	numQuirks
)

// A set of quirks: true is our behaviour.
type quirks [numQuirks]bool

func oursAll() (q quirks) {
	for i := range q {
		q[i] = true
	}
	return q
}

func (q quirks) with(i quirk, is bool) quirks {
	q[i] = is
	return q
}

// A decision is the set of actions of a side in a step.
type decision struct{ collections, ranking, kills, escalated string }

func decisionOf(f judge.Facts) decision {
	return decision{f["collections"], f["ranking"], f["kills"], f["escalated"]}
}

// A step is the input of a rule: what both sides did in one turn, and what ours did before.
type step struct {
	w       *world
	m       *machine // the kubelet's machine
	at      time.Duration
	kubelet judge.Facts
	ours    judge.Facts
	before  []judge.Facts // our facts of earlier steps
	index   int
	changes []change // changes of figures, up to the current point of the model
	events  []string // events of the node, from our model's last decision
	told    map[string]time.Duration

	shortened map[string]time.Duration // when the model's decision set the grace period of an adopted eviction to zero

	isBetween bool // the model evaluates between turns
}

func stepOf(s judge.Scene[*world]) *step {
	if len(s.KubeletFacts) <= s.Step || len(s.OursFacts) <= s.Step {
		return nil
	}
	ours, kubelet := s.World.turns(s.OursFacts), s.World.turns(s.KubeletFacts)
	i := len(ours) - 1
	if i >= len(s.World.Notes) {
		return nil
	}
	return &step{
		w: s.World, m: s.World.played, at: s.World.Notes[i].At, index: i,
		kubelet: kubelet[i], ours: ours[i], before: ours[:i],
	}
}

func (st *step) note() *note { return &st.w.Notes[st.index] }

// decide returns the decision of a side with these quirks. fresh has the thresholds that are due; the
// side acts on the first of them. If fresh is empty, no threshold is due.
func (st *step) decide(fresh []threshold, q quirks) (d decision) {
	t := threshold{}
	if len(fresh) > 0 {
		t = fresh[0]
	}
	st.changes, st.events, st.told, st.shortened = st.changesBefore(st.index), nil, st.toldBefore(), map[string]time.Duration{}
	limits := st.limits(q, st.at)
	if t.Signal == "" || len(limits) > 0 && (!q[limitsAndThresholds] || st.limitsFirst(limits, st.at)) {
		d.kills = st.untilRestart(limits, nil, t)
		return d
	}
	var kills []string
	if q[collectionByLook] {
		limits, kills, t = st.lookByLook(fresh, limits, q, &d)
	} else {
		actions, at := st.actions(t.Signal), st.at
		for _, a := range actions {
			at += st.w.collector(a).Took
			st.collected(st.index, a, at)
		}
		d.collections = strings.Join(actions, " ")
		if len(actions) == 0 || st.short(t, at, q) {
			kills = st.victims(t, at, limits, q, &d)
		}
	}
	d.kills, d.escalated = st.untilRestart(limits, kills, t), sorted(d.escalated)
	return d
}

// sorted sorts words.
func sorted(words string) string {
	return strings.Join(slices.Sorted(strings.FieldsSeq(words)), " ")
}

func (w *world) place(pod string) int {
	return slices.IndexFunc(w.Pods, func(p podSpec) bool { return p.Pod.Name == pod })
}

// untilRestart returns the kills that begin before the agent restarts.
func (st *step) untilRestart(limits, victims []string, t threshold) string {
	var words []string
	for i, name := range slices.Concat(limits, victims) {
		if i < len(limits) {
			words = append(words, name+":limit")
		} else {
			capacity := st.w.Figures[st.w.figureOf(t.Signal)].Capacity
			if r, isMeasured := st.measureAt(t.Signal, st.at); isMeasured { // if it was measured later in the turn, the figure has its first capacity
				capacity = r.capacity
			}
			words = append(words, name+":"+resourceOf(t.Signal)+"<"+itoa(amount(t.Value, capacity)))
		}
		p := st.m.pod(name)
		takes := p.Kill.Takes
		if st.note().Attempts[name] < p.Kill.Fails {
			takes = p.Kill.FailsAt
		} else if slices.Contains(st.note().Ending, name) {
			takes = st.m.deaths[name].ends - st.at
		}
		for _, r := range st.w.Restarts {
			if r.Kill == st.note().Kills+i+1 && r.After < min(takes, 10*time.Second) {
				return strings.Join(words, " ")
			}
		}
	}
	return strings.Join(words, " ")
}

func (w *world) collector(action string) collector {
	if action == "images" {
		return w.GC[1]
	}
	return w.GC[0]
}

// changesBefore returns the changes of figures before step i.
func (st *step) changesBefore(i int) []change {
	return slices.Clone(st.m.changes[:st.w.Notes[i].Changes])
}

// collected records the space that a collection which ended in step i has freed.
func (st *step) collected(i int, action string, at time.Duration) {
	runs := 0
	for n := range i {
		runs += strings.Count(st.before[n]["collections"], action)
	}
	if runs == 0 && !st.w.collector(action).Fails {
		st.changes = append(st.changes, st.w.frees(strings.Index("ci", action[:1]), at)...)
	}
}

func (st *step) measureAt(s eviction.Signal, at time.Duration) (measurement, bool) {
	return st.m.measureAt(st.w.figureOf(s), at, st.changes)
}

// actions returns the collections for a signal.
func (st *step) actions(s eviction.Signal) []string {
	isImage := s == eviction.ImageFSAvailable || s == eviction.ImageFSInodesFree
	isNode := s == eviction.NodeFSAvailable || s == eviction.NodeFSInodesFree
	switch {
	case isMemory(s) || s == eviction.PIDAvailable:
		return nil
	case st.w.Layout == eviction.SingleFS:
		return []string{"containers", "images"}
	case st.w.Layout == eviction.DedicatedImageFS && isNode:
		return nil
	case st.w.Layout == eviction.DedicatedImageFS:
		return []string{"containers", "images"}
	case isImage:
		return []string{"images"}
	default:
		return []string{"containers"}
	}
}

// short reports whether pods must be evicted after collections.
func (st *step) short(t threshold, at time.Duration, q quirks) bool {
	if in(st.w.Blind, at) {
		return true
	}
	for _, o := range st.w.thresholds() {
		if (!q[ownThreshold] || o == t) && st.missing(o, at) > 0 {
			return true
		}
	}
	return false
}

// missing returns the amount that is missing to a threshold plus its minimum reclaim.
func (st *step) missing(t threshold, at time.Duration) int64 {
	r, ok := st.measureAt(t.Signal, at)
	if !ok {
		return 0
	}
	target := amount(t.Value, r.capacity)
	if t.Reclaim != "" {
		target += amount(t.Reclaim, r.capacity)
	}
	return target - r.available
}

// A plan is the actions of our manager in one look.
type plan struct {
	collections []string
	picks       []string // signals for which our manager acts
	threshold   threshold
	victims     []string
}

// A chance is a look in which our manager may act.
type chance struct {
	at     time.Duration
	limits []string // pods that are evicted for a limit
	q      quirks
	d      *decision // output
	m      *memory   // state after the look
}

// plan returns our actions for thresholds in one look.
func (st *step) plan(fresh []threshold, ended map[string]time.Duration, c chance) (p plan) {
	slices.SortStableFunc(fresh, st.compare)
	for _, t := range fresh {
		st.escalate(t, c.at, c.q, c.d)
		if next := st.nextCollection(t, c.m, ended, c.at); next != "" {
			if !slices.Contains(p.collections, next) {
				p.collections, p.picks = append(p.collections, next), append(p.picks, string(t.Signal))
			}
			continue
		}
		if len(p.victims) > 0 {
			continue
		}
		if p.victims = st.victims(t, c.at, c.limits, c.q, c.d); len(p.victims) > 0 {
			p.picks, p.threshold = append(p.picks, string(t.Signal)), t
		}
	}
	told := slices.Clone(p.picks) // most urgent first
	if len(fresh) > 0 {
		told = append([]string{string(fresh[0].Signal)}, told...)
	}
	for _, s := range told {
		e := st.event(threshold{Signal: eviction.Signal(s)})
		if last, ok := st.told[e]; !ok || c.at-last >= 10*time.Second {
			st.events = append(st.events, e)
			st.told[e] = c.at
		}
	}
	slices.Sort(p.picks)
	p.picks = slices.Compact(p.picks)
	return p
}

// collectionsText returns the collections that start in one look as a text. It sorts them.
func (p *plan) collectionsText() string {
	slices.Sort(p.collections)
	return strings.Join(p.collections, "+")
}

// lookByLook plays our actions in one turn: an action, then another look, and then the
// actions that are still necessary.
func (st *step) lookByLook(fresh []threshold, limits []string, q quirks, d *decision) (limited, victims []string, cause threshold) {
	ended := st.collectionsEnded(false)
	m := st.remember(oursCauses())
	st.changes = st.changesBefore(st.index)
	st.look(m, st.at, false, oursCauses(), judge.Facts{})
	for at := st.at; ; {
		if st.limitsFirst(limits, at) {
			return limits, nil, threshold{}
		}
		p := st.plan(fresh, ended, chance{at, limits, q, d, m})
		d.collections = strings.TrimSpace(d.collections + " " + p.collectionsText())
		if len(p.collections) == 0 || len(limits)+len(p.victims) > 0 {
			return limits, p.victims, p.threshold
		}
		took := time.Duration(0)
		for _, c := range p.collections {
			took = max(took, st.w.collector(c).Took)
			ended[c] = at + st.w.collector(c).Took
			st.collected(st.index, c, ended[c])
		}
		at += took
		limits = nil
		if took > 0 { // otherwise the next check of limits is not due
			limits = st.limits(q, at)
		}
		lists := judge.Facts{}
		st.look(m, at, false, oursCauses(), lists)
		fresh = st.fresh(lists)
	}
}
