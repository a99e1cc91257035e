package eviction

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// betweens counts the looks after a turn.
func betweens(f judge.Facts) (n int) {
	for f[betweenFact(n+1)] != "" {
		n++
	}
	return n
}

// apart splits each turn into two steps: the turn, and our looks until the next turn.
func (w *world) apart(turns []judge.Facts) (all []judge.Facts) {
	if len(w.Looks) == 0 {
		return turns
	}
	for _, f := range turns {
		looks := judge.Facts{}
		for n := range betweens(f) {
			looks[betweenFact(n+1)] = f[betweenFact(n+1)]
		}
		f = maps.Clone(f)
		for name := range looks {
			delete(f, name)
		}
		all = append(all, f, looks)
	}
	return all
}

// turns joins the steps that apart has split. The last turn can be without looks.
func (w *world) turns(all []judge.Facts) (turns []judge.Facts) {
	if len(w.Looks) == 0 {
		return all
	}
	for both := range slices.Chunk(all, 2) {
		f := both[0]
		if len(both) > 1 && len(both[1]) > 0 {
			f = maps.Clone(f)
			maps.Copy(f, both[1])
		}
		turns = append(turns, f)
	}
	return turns
}

// A pastLook is one of our looks, read from the facts.
type pastLook struct {
	step   int
	at     time.Duration
	text   string // facts of a look between turns
	number int
}

// looksBetween returns our looks between turns in a step.
func looksBetween(step int, f judge.Facts) (all []pastLook) {
	for n := range betweens(f) {
		text := f[betweenFact(n+1)]
		first, _, _ := strings.Cut(text, "\n")
		at, err := time.ParseDuration(strings.TrimPrefix(first, "at "))
		if err != nil {
			panic(err)
		}
		all = append(all, pastLook{step, at, text, n + 1})
	}
	return all
}

// asksForFigures reports whether our manager requested pod figures in this look.
func (l *pastLook) asksForFigures() bool { return strings.Contains(l.text, "\nasks for figures") }

// A flight is one of our evictions that is in progress.
type flight struct {
	p        *podSpec
	hard     bool
	ended    bool
	began    time.Duration
	ends     time.Duration
	deadline time.Duration
}

// flights returns the evictions that are in progress at a time after a turn.
func (st *step) flights(at time.Duration) (all []flight) {
	for i := range st.w.Pods {
		p := &st.w.Pods[i]
		name := p.Pod.Name
		d := st.m.deaths[name]
		for _, failed := range st.m.failures {
			if failed.pod == name && failed.began <= at && at < failed.at {
				d = &death{began: failed.began, ends: failed.at}
			}
		}
		if d == nil || d.began > at {
			continue
		}
		f := flight{p: p, began: d.began, ends: d.ends, ended: d.ends <= at}
		var grace int64
		for n := st.lastStart(); n <= st.index; n++ {
			facts := st.ours
			if n < st.index {
				facts = st.before[n]
			}
			word := st.killed(facts, name)
			if word == "" || st.w.Notes[n].At > d.began {
				continue
			}
			_, _ = fmt.Sscan(facts["kill "+name+"/grace"], &grace)
			if strings.HasSuffix(word, ":limit") { // our manager requested the kills for limits all at once
				f.began = st.w.Notes[n].At
				for _, round := range rounds(facts) {
					f.began += st.w.took(round)
				}
			}
			f.hard = !slices.ContainsFunc(st.w.thresholds(), func(t threshold) bool { return t.Grace > 0 && st.isFor(word, name, t) })
		}
		if grace == 0 {
			continue // a kill by the kubelet
		}
		f.deadline = f.began + killTimeout(grace)
		if f.ended {
			f.deadline = d.ends + min(30*time.Second, p.Kill.Cleanup)
		}
		all = append(all, f)
	}
	return all
}

// isFor reports whether a word of the fact "kills" is about a threshold.
func (st *step) isFor(word, name string, t threshold) bool {
	return word == name+":"+resourceOf(t.Signal)+"<"+itoa(amount(t.Value, st.w.Figures[st.w.figureOf(t.Signal)].Capacity))
}

// freesOf returns the amount that our manager expects an eviction to free: the usage of the
// pod when the kill was requested, or a higher usage in a later look. now is set if our
// manager looks at the time at, too.
func (st *step) freesOf(f *flight, s eviction.Signal, at time.Duration, now bool, q quirks) (n int64, known bool) {
	n, known = st.uses(f.p, f.began, s, q)
	looks := st.figureLooks(at)
	if now {
		looks = append(looks, at)
	}
	for _, l := range looks {
		if l <= f.began || l >= f.ends || in(st.w.Blind, l) {
			continue
		}
		if more, ok := st.uses(f.p, l, s, q); ok {
			n, known = max(n, more), true
		}
	}
	return n, known
}

// figureLooks returns the earlier times at which our manager requested pod figures.
func (st *step) figureLooks(until time.Duration) (all []time.Duration) {
	for i := st.lastStart(); i <= st.index; i++ {
		facts := st.ours
		if i < st.index {
			facts = st.before[i]
		}
		at := st.w.Notes[i].At
		for n, round := range append(rounds(facts), nil) {
			if st.limitsAskedAt(at) || n == len(rounds(facts)) && facts["ranking"] != "" {
				all = append(all, at)
			}
			at += st.w.took(round)
		}
		for _, l := range looksBetween(i, facts) {
			if l.asksForFigures() {
				all = append(all, l.at)
			}
		}
	}
	return slices.DeleteFunc(all, func(at time.Duration) bool { return at >= until })
}

// limitsAskedAt reports whether a check of local storage limits requested pod figures at a
// time.
func (st *step) limitsAskedAt(at time.Duration) bool {
	return !st.w.NoLimits && slices.ContainsFunc(st.m.activeAt(at), func(name string) bool { return hasLimits(st.m.pod(name).Pod) })
}

// A betweenPlan is the observations and decisions of our manager in a look between turns.
type betweenPlan struct {
	st     *step
	q      quirks
	at     time.Duration
	grown  bool // the look read the figures of pods that are terminating
	limits []string

	flights    []flight
	escalated  []string
	reclaims   []string
	collection []string
	ranking    []string
	ranked     bool
	victims    []string
	signal     eviction.Signal
	asks       bool
}

// frees returns the amount of a signal that our manager expects an eviction to free.
func (p *betweenPlan) frees(f *flight, s eviction.Signal) (int64, bool) {
	return p.st.freesOf(f, s, p.at, p.grown, p.q)
}

func (p *betweenPlan) isShort(f *flight) bool {
	return f.hard || slices.Contains(p.escalated, f.p.Pod.Name)
}

// expected returns the amount that evictions in progress free for a threshold.
func (p *betweenPlan) expected(t threshold) (sum int64, pending bool) {
	for i := range p.flights {
		f := &p.flights[i]
		isDisk := !isMemory(t.Signal) && t.Signal != eviction.PIDAvailable
		counts := p.at < f.deadline && (!f.ended || isDisk)
		if !counts && (f.hard || f.ended || !p.isShort(f)) || t.Grace == 0 && !p.isShort(f) && !f.ended {
			continue
		}
		n, known := p.frees(f, t.Signal)
		pending = pending || !known
		sum += n
	}
	return sum, pending
}

// places returns how many more evictions may start at this time.
func (p *betweenPlan) places(t threshold) int {
	n := p.st.w.Parallel
	for i := range p.flights {
		f := &p.flights[i]
		if !f.ended && p.at < f.deadline && (t.Grace > 0 || p.isShort(f)) {
			n--
		}
	}
	for _, name := range p.st.activeAt(p.at) {
		if p.st.hasFailed(name, p.at) {
			n--
		}
	}
	return n
}

// failedAt returns the time of the last failed kill of a pod, as far as this agent knows.
// During a turn, our manager does not know the attempts that the kubelet makes in the same
// turn.
func (st *step) failedAt(name string, at time.Duration) (last time.Duration, ok bool) {
	until := st.at
	if st.isBetween {
		until = at
	}
	for _, f := range st.m.failures {
		if f.pod == name && f.began < until && f.at <= at && f.began >= st.w.Notes[st.lastStart()].At {
			last, ok = f.at, true
		}
	}
	return last, ok
}

// hasFailed reports whether a kill of the pod failed shortly before.
func (st *step) hasFailed(name string, at time.Duration) bool {
	last, ok := st.failedAt(name, at)
	return ok && at < last+10*time.Second
}

// limitsFirst reports whether our manager ignores thresholds because pods are evicted for a
// limit.
func (st *step) limitsFirst(limits []string, at time.Duration) bool {
	return slices.ContainsFunc(limits, func(name string) bool {
		_, again := st.failedAt(name, at)
		return !again
	})
}

func (p *betweenPlan) escalate(t threshold) {
	if t.Grace > 0 {
		return
	}
	free, _ := p.expected(t)
	for i := range p.flights {
		f := &p.flights[i]
		n, known := p.frees(f, t.Signal)
		if p.isShort(f) || f.ended || free >= p.st.missing(t, p.at) || known && n <= 0 {
			continue
		}
		p.escalated = append(p.escalated, f.p.Pod.Name)
		free += n
	}
}

// decide plays our decisions about thresholds, most urgent first.
func (p *betweenPlan) decide(m *memory, fresh []threshold, ended map[string]time.Duration) {
	for _, t := range fresh {
		p.escalate(t)
		free, pending := p.expected(t)
		missing := p.st.missing(t, p.at)
		next := p.st.nextCollection(t, m, ended, p.at)
		switch {
		case next != "" && !slices.Contains(p.collection, next):
			p.collection = append(p.collection, next)
			p.reclaims = append(p.reclaims, fmt.Sprintf("%s:%s:%d", next, t.Signal, missing))
		case next != "", pending, free >= missing, p.signal != "", p.places(t) <= 0:
		default:
			p.asks = true
			p.choose(t, free, missing)
		}
	}
}

// choose returns the pods that are evicted for a threshold.
func (p *betweenPlan) choose(t threshold, free, missing int64) {
	st := p.st
	names := st.rank(t.Signal, p.at, p.q)
	places := p.places(t)
	for _, name := range names {
		spec := st.m.pod(name)
		n, known := st.uses(spec, p.at, t.Signal, p.q)
		isEnding := slices.ContainsFunc(p.flights, func(f flight) bool { return f.p.Pod.Name == name })
		if isCritical(spec.Pod) || isEnding || st.hasFailed(name, p.at) || st.passes(name, n, known, t, p.q) || slices.Contains(p.limits, name) {
			continue
		}
		if places <= 0 || free >= missing {
			break
		}
		places--
		free += n
		p.victims = append(p.victims, name+":"+st.graceOf(name, t))
		if !known {
			break
		}
	}
	if len(p.victims) > 0 {
		p.signal, p.ranking = t.Signal, names
	} else if !p.ranked {
		p.ranking = names
	}
	p.ranked = true
}

// graceOf returns the grace period of a pod that our manager evicts.
func (st *step) graceOf(name string, t threshold) string {
	own := st.m.pod(name).Pod.Spec.TerminationGracePeriodSeconds
	switch {
	case t.Grace == 0:
		return "1"
	case st.w.MaxGrace < 0:
		return st.ownGrace(name)
	case own == nil:
		return fmt.Sprint(max(st.w.MaxGrace, 1))
	default:
		return fmt.Sprint(max(min(*own, int64(st.w.MaxGrace)), 1))
	}
}

// late returns the pods whose termination has just become overdue.
func (p *betweenPlan) late() (all []string) {
	last := p.st.at
	for _, round := range rounds(p.st.ours) {
		last += p.st.w.took(round)
	}
	for _, l := range looksBetween(p.st.index, p.st.ours) {
		if l.at < p.at {
			last = max(last, l.at)
		}
	}
	flights := slices.SortedFunc(slices.Values(p.flights), func(a, b flight) int { return cmp.Compare(a.began, b.began) })
	for _, f := range flights {
		if !f.ended && f.deadline <= p.at && f.deadline > last {
			all = append(all, f.p.Pod.Name)
		}
	}
	return all
}
