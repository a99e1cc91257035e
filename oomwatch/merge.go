package oomwatch

import (
	"slices"
	"strings"
	"time"
)

// Observation is a kill in the kernel's log or the rise of a counter, as observed by a
// source.
type Observation struct {
	// Kill has what the source knows about the kill. For a counter, VictimCgroup is the
	// counter's cgroup, Kills the number of processes, and Time when the counter was read.
	Kill Kill
	// Counter reports whether the Observation is the rise of a counter.
	Counter bool
	// Since is a time at which the counter had not risen yet. Zero means unknown.
	Since time.Time
	// LostRecords is the number of log records that were overwritten before they were
	// read, since the previous Observation. It may be set in an Observation without a
	// kill.
	LostRecords uint64
}

// merger returns each kill once, although both the log and the counters report it. It has
// no clock: callers pass the time.
//
// A kill with a cgroup in the log is returned at once, because the log has the most
// details; the counter that rises because of this kill adds nothing. The merger holds the
// rise of a counter for the window, because the log may still report the kill. If the log
// reports a kill without a cgroup, the merger also holds this kill for the window: a
// counter may rise, and if no other kill explains the rise, the counter supplies the
// cgroup. Kills in the log are returned in the order of
// the log, so a held kill also delays the kills after it in the log.
type merger struct {
	window time.Duration
	all    []*entry // in the order in which they were added
}

// entry is an Observation with the number of its processes that the other source has not
// reported yet.
type entry struct {
	Observation
	unmatched int
	reported  bool
	until     time.Time // time by which the method due returns the kill; after that, time by which due deletes the entry
}

// rememberWindows is the number of windows for which the merger keeps a returned kill, to
// match the report of the other source with it. This report may never come.
const rememberWindows = 20

// add adds an Observation. It returns no kills: call the method due.
func (m *merger) add(s Observation, now time.Time) {
	e := &entry{Observation: s, unmatched: max(s.Kill.counted, s.Kill.Kills), until: now.Add(m.window)}
	switch {
	case s.Counter:
		m.match(e, func(log *entry) bool { return !log.Counter && (log.reported || log.Kill.VictimCgroup != "") })
	case s.Kill.VictimCgroup != "":
		if !m.subtractReported(e) {
			return
		}
		m.match(e, func(c *entry) bool { return c.Counter })
		e.until = now
	}
	m.all = append(m.all, e)
}

// due returns the kills that must be reported now.
func (m *merger) due(now time.Time) []Kill {
	kills := append(m.dueCounters(now), m.dueLogged(now)...)
	m.all = slices.DeleteFunc(m.all, func(e *entry) bool {
		return (e.reported || e.Counter) && (e.unmatched == 0 || !now.Before(e.until))
	})
	return kills
}

func (m *merger) dueCounters(now time.Time) (kills []Kill) {
	for _, c := range m.all {
		if !c.Counter || c.reported || now.Before(c.until) {
			continue
		}
		for _, log := range m.all {
			m.assignCgroup(log, c, now)
		}
		if c.unmatched > 0 {
			c.Kill.Kills = max(c.unmatched-(max(c.Kill.counted, c.Kill.Kills)-c.Kill.Kills), 1)
			kills = append(kills, c.Kill)
			c.reported, c.until = true, now.Add(rememberWindows*m.window)
		}
	}
	return kills
}

// dueLogged returns the kills in the log that are due, in the order of the log, up to the
// first kill that must be held.
func (m *merger) dueLogged(now time.Time) (kills []Kill) {
	for _, log := range m.all {
		if log.Counter || log.reported {
			continue
		}
		if now.Before(log.until) {
			break
		}
		for _, c := range m.all {
			m.assignCgroup(log, c, now)
		}
		if log.Kill.VictimCgroup != "" || m.subtractReported(log) {
			kills = append(kills, log.Kill)
		}
		log.reported, log.until = true, now.Add(rememberWindows*m.window)
	}
	return kills
}

// assignCgroup completes a kill that the log has reported without a cgroup. It sets the
// kill's cgroup to the cgroup of a counter, if the counter may have risen because of this
// kill, and neither was returned yet.
func (m *merger) assignCgroup(log, c *entry, now time.Time) {
	if log.Counter || !c.Counter || log.reported || c.reported || log.Kill.VictimCgroup != "" || c.unmatched == 0 || !m.overlap(log, c) {
		return
	}
	c.unmatched -= min(log.unmatched, c.unmatched)
	log.Kill.VictimCgroup, log.unmatched, log.until = c.Kill.VictimCgroup, 0, now
}

// subtractReported subtracts from a kill in the log the processes that were already
// reported for counters. It reports whether any processes are left.
func (m *merger) subtractReported(e *entry) bool {
	m.match(e, func(c *entry) bool { return c.Counter && c.reported })
	e.Kill.Kills = min(e.Kill.Kills, e.unmatched)
	return e.unmatched > 0
}

// match matches e with entries that may be the same kills, entries with the best matching
// cgroup first. It ignores entries for which the given function returns false. It subtracts
// the matched processes from both entries.
func (m *merger) match(e *entry, on func(*entry) bool) {
	for fit := sameCgroup; fit <= unknownCgroup; fit++ {
		for _, other := range m.all {
			if on(other) && fitOf(e.Kill.VictimCgroup, other.Kill.VictimCgroup) == fit && m.overlap(e, other) {
				n := min(e.unmatched, other.unmatched)
				e.unmatched, other.unmatched = e.unmatched-n, other.unmatched-n
			}
		}
	}
}

// overlap reports whether two entries can be the same kill according to their times. The
// clocks of the log and the counters, and the times at which the kernel writes to them,
// differ by less than the window.
func (m *merger) overlap(log, c *entry) bool {
	if log.Counter {
		log, c = c, log
	}
	at := log.Kill.Time
	return at.IsZero() || !at.Add(m.window).Before(c.Since) && !c.Kill.Time.Add(m.window).Before(at)
}

// next returns the time at which the method due returns the next kill, or zero if no kill
// is held.
func (m *merger) next() (at time.Time) {
	waits := false
	for _, e := range m.all {
		if e.reported || !e.Counter && waits { // a kill in the log is not returned before an earlier kill in the log
			continue
		}
		waits = waits || !e.Counter
		if at.IsZero() || e.until.Before(at) {
			at = e.until
		}
	}
	return at
}

// firstLogged returns the first kill in the log that the merger still holds.
func (m *merger) firstLogged() (k Kill, ok bool) {
	i := slices.IndexFunc(m.all, func(e *entry) bool { return !e.Counter && !e.reported })
	if i < 0 {
		return Kill{}, false
	}
	return m.all[i].Kill, true
}

// Results of fitOf, the best match first.
const (
	sameCgroup = iota
	relatedCgroup
	unknownCgroup
	otherCgroup
)

// fitOf returns how well two cgroups match as the cgroups of the same kill. For a group
// kill, the log has the cgroup that is killed as a whole, while the counters of its
// children rise. A pod's counter includes containers whose cgroups were removed. An
// unknown cgroup may be any cgroup.
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

// below reports whether a cgroup is equal to a parent cgroup or below it. Paths in the log start
// at the root cgroup of the machine. Paths of counters start at the mount point, which in
// a container may be a cgroup below the root.
func below(cgroup, parent string) bool {
	return parent == "/" || strings.Contains(cgroup+"/", parent+"/")
}
