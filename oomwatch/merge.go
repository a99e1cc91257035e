package oomwatch

import (
	"slices"
	"strings"
	"time"
)

// Sighting is what a source saw: a kill that the kernel logged, or that a counter
// rose.
type Sighting struct {
	// Kill is what is known. That of a counter has the cgroup in VictimCgroup, the
	// number of processes in Kills, and when it was read in Time.
	Kill Kill
	// Counter says that it is a counter that rose.
	Counter bool
	// Since is when the counter had not risen yet. Zero is any time before.
	Since time.Time
	// LostRecords is how many records of the log were overwritten before this one.
	// There need not be a kill to tell of them.
	LostRecords uint64
}

// merger tells each kill once, though the log and the counters both do. It is pure:
// time comes in from outside.
//
// A kill in the log is told at once, for the log says most, and the counter that rises
// with it tells nothing more. What only a counter tells is held for the window in which
// the log may still follow. So is a kill in the log that names no cgroup: it has that of
// a counter that nothing else explains. The log's kills are told in its order.
type merger struct {
	window time.Duration
	all    []*entry // in the order in which they were seen
}

// entry is a sighting, of which the other side has n processes still to tell of.
type entry struct {
	Sighting
	n     int
	told  bool
	until time.Time // when it is told if nothing else is learned, and after that forgotten
}

// remember is how many windows a kill in the log waits for its counter, and one that
// a counter told for its log. Neither may come at all.
const remember = 20

// add takes a sighting. What can be told then, due returns.
func (m *merger) add(s Sighting, now time.Time) {
	e := &entry{Sighting: s, n: max(s.Kill.counted, s.Kill.Kills), until: now.Add(m.window)}
	switch {
	case s.Counter:
		m.spend(e, func(log *entry) bool { return !log.Counter && (log.told || log.Kill.VictimCgroup != "") })
	case s.Kill.VictimCgroup != "":
		if !m.subtractTold(e) {
			return
		}
		m.spend(e, func(c *entry) bool { return c.Counter })
		e.until = now
	}
	m.all = append(m.all, e)
}

// due returns the kills that are to be told now.
func (m *merger) due(now time.Time) []Kill {
	tell := append(m.dueCounters(now), m.dueLogged(now)...)
	m.all = slices.DeleteFunc(m.all, func(e *entry) bool {
		return (e.told || e.Counter) && (e.n == 0 || !now.Before(e.until))
	})
	return tell
}

func (m *merger) dueCounters(now time.Time) (tell []Kill) {
	for _, c := range m.all {
		if !c.Counter || c.told || now.Before(c.until) {
			continue
		}
		for _, log := range m.all {
			m.name(log, c, now)
		}
		if c.n > 0 {
			c.Kill.Kills = max(c.n-(max(c.Kill.counted, c.Kill.Kills)-c.Kill.Kills), 1)
			tell = append(tell, c.Kill)
			c.told, c.until = true, now.Add(remember*m.window)
		}
	}
	return tell
}

// dueLogged returns the first kills in the log, until one that has to wait.
func (m *merger) dueLogged(now time.Time) (tell []Kill) {
	for _, log := range m.all {
		if log.Counter || log.told {
			continue
		}
		if now.Before(log.until) {
			break
		}
		for _, c := range m.all {
			m.name(log, c, now)
		}
		if log.Kill.VictimCgroup != "" || m.subtractTold(log) {
			tell = append(tell, log.Kill)
		}
		log.told, log.until = true, now.Add(remember*m.window)
	}
	return tell
}

// name gives a kill in the log that names no cgroup that of a counter, if neither was told.
func (m *merger) name(log, c *entry, now time.Time) {
	if log.Counter || !c.Counter || log.told || c.told || log.Kill.VictimCgroup != "" || c.n == 0 || !m.overlap(log, c) {
		return
	}
	c.n -= min(log.n, c.n)
	log.Kill.VictimCgroup, log.n, log.until = c.Kill.VictimCgroup, 0, now
}

// subtractTold takes off a kill in the log what counters have told of it, and reports
// whether there is more to tell.
func (m *merger) subtractTold(e *entry) bool {
	m.spend(e, func(c *entry) bool { return c.Counter && c.told })
	e.Kill.Kills = min(e.Kill.Kills, e.n)
	return e.n > 0
}

// spend takes what may be the same kills off e and off others, those that fit best first.
func (m *merger) spend(e *entry, on func(*entry) bool) {
	for fit := sameCgroup; fit <= unknownCgroup; fit++ {
		for _, other := range m.all {
			if on(other) && fitOf(e.Kill.VictimCgroup, other.Kill.VictimCgroup) == fit && m.overlap(e, other) {
				n := min(e.n, other.n)
				e.n, other.n = e.n-n, other.n-n
			}
		}
	}
}

// overlap reports whether kills can be the same by when they were. The clocks of the log
// and of the counters, and the moment at which the kernel writes either, differ by less
// than the window.
func (m *merger) overlap(log, c *entry) bool {
	if log.Counter {
		log, c = c, log
	}
	at := log.Kill.Time
	return at.IsZero() || !at.Add(m.window).Before(c.Since) && !c.Kill.Time.Add(m.window).Before(at)
}

// next is when due has something to return, zero if nothing is held.
func (m *merger) next() (at time.Time) {
	waits := false
	for _, e := range m.all {
		if e.told || !e.Counter && waits { // for its turn
			continue
		}
		waits = waits || !e.Counter
		if at.IsZero() || e.until.Before(at) {
			at = e.until
		}
	}
	return at
}

// logged returns the first kill in the log that is held.
func (m *merger) logged() (k Kill, ok bool) {
	i := slices.IndexFunc(m.all, func(e *entry) bool { return !e.Counter && !e.told })
	if i < 0 {
		return Kill{}, false
	}
	return m.all[i].Kill, true
}

// How two cgroups may be that of the same kill, best first.
const (
	sameCgroup = iota
	relatedCgroup
	unknownCgroup
	otherCgroup
)

// fitOf compares two cgroups. The log names the cgroup that is killed whole while
// counters are those of its children, and the counter of a pod tells of containers
// whose own is gone. One that is not known may be any.
func fitOf(a, b string) int {
	switch {
	case a == "" || b == "":
		return unknownCgroup
	case a == b:
		return sameCgroup
	case below(a, b) || below(b, a):
		return relatedCgroup
	default:
		return otherCgroup
	}
}

// below says whether cgroup is parent or in it. The log names cgroups from the root of
// the machine, counters from what is mounted, which in a container is further down.
func below(cgroup, parent string) bool {
	return parent == "/" || strings.Contains(cgroup+"/", parent+"/")
}
