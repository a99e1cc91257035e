package eviction

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/eviction"
)

// adopted returns the evictions by a previous agent that our manager knows of at a time.
// isAsked reports whether our manager requests pod figures at that time.
func (st *step) adopted(at time.Duration, isAsked bool) (all []flight) {
	for _, name := range st.w.Notes[st.lastStart()].Adopted {
		f := flight{p: st.m.pod(name), ends: st.m.deaths[name].ends}
		looks := st.figureLooks(at)
		if isAsked {
			looks = append(looks, at)
		}
		if len(looks) == 0 || looks[0] >= f.ends {
			continue
		}
		f.began, f.ended = looks[0], f.ends <= at
		var grace int64
		if _, err := fmt.Sscan(st.graceOf(name, threshold{Grace: time.Second}), &grace); err != nil {
			panic(err)
		}
		f.deadline = f.began + killTimeout(grace)
		for i := st.lastStart(); i < st.index; i++ {
			if slices.Contains(strings.Fields(st.before[i]["escalated"]), name) {
				f.hard, f.deadline = true, st.w.Notes[i].At+10*time.Second
			}
		}
		if shortened, ok := st.shortened[name]; ok && shortened < at {
			f.hard, f.deadline = true, shortened+10*time.Second
		}
		if f.ended {
			f.deadline = min(st.firstLook(f.ends)+30*time.Second, f.ends+f.p.Kill.Cleanup)
		}
		all = append(all, f)
	}
	return all
}

// firstLook returns the time of our first look at or after a time.
func (st *step) firstLook(from time.Duration) time.Duration {
	for i := st.lastStart(); i <= st.index; i++ {
		at := st.w.Notes[i].At
		facts := st.ours
		if i < st.index {
			facts = st.before[i]
		}
		for _, round := range append(rounds(facts), nil) {
			if at >= from {
				return at
			}
			at += st.w.took(round)
		}
	}
	return st.at
}

// adoptedUse returns the amount that our manager expects an adopted eviction to free.
func (st *step) adoptedUse(f *flight, s eviction.Signal, at time.Duration, isAsked bool, q quirks) (n int64, known bool) {
	looks := st.figureLooks(at)
	if isAsked {
		looks = append(looks, at)
	}
	for _, l := range looks {
		if l >= f.ends || in(st.w.Blind, l) {
			continue
		}
		if more, ok := st.uses(f.p, l, s, q); ok {
			n, known = max(n, more), true
		}
	}
	return n, known
}

// adoptedFrees returns the amount that adopted evictions free for a threshold, whether the
// amount of one of them is unknown, and how many of them are in progress.
func (st *step) adoptedFrees(t threshold, at time.Duration, isAsked bool, escalated string) (sum int64, pending bool, places int) {
	isDisk := !isMemory(t.Signal) && t.Signal != eviction.PIDAvailable
	for _, f := range st.adopted(at, isAsked) {
		isShort := f.hard || slices.Contains(strings.Fields(escalated), f.p.Pod.Name)
		if !f.ended && at < f.deadline && (t.Grace > 0 || isShort) {
			places++
		}
		counts := at < f.deadline && (!f.ended || isDisk)
		if !counts && (f.hard || f.ended || !isShort) || t.Grace == 0 && !isShort && !f.ended {
			continue
		}
		n, known := st.adoptedUse(&f, t.Signal, at, isAsked, oursAll())
		sum, pending = sum+n, pending || !known
	}
	return sum, pending, places
}

// escalateAdopted sets the grace period of adopted evictions to zero for a hard threshold.
func (st *step) escalateAdopted(t threshold, at time.Duration, isAsked bool, q quirks, d *decision) {
	if t.Grace > 0 || !q[adopts] {
		return
	}
	for _, f := range st.adopted(at, isAsked) {
		free, _ := st.beingFreed(t.Signal, at, q)
		adopted, _, _ := st.adoptedFrees(t, at, isAsked, d.escalated)
		n, known := st.adoptedUse(&f, t.Signal, at, isAsked, q)
		name := f.p.Pod.Name
		if f.hard || f.ended || free+adopted >= st.missing(t, at) || known && n <= 0 || slices.Contains(strings.Fields(d.escalated), name) {
			continue
		}
		d.escalated = strings.TrimSpace(d.escalated + " " + name)
		st.shortened[name] = at
	}
}
