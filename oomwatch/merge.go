package oomwatch

import (
	"iter"
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

	told bool // it was handled before the start
}

func (s *Sighting) empty() bool { return s.Kill.Kills == 0 }

// merger tells each kill once, though the log and the counters both do. It is pure:
// time comes in from outside.
//
// A kill in the log is told at once: the log says most. The counter that rises with
// it is then accounted for. What the counters alone tell is held for the window in
// which the log may still follow, and so is a kill in the log that names no cgroup,
// which a counter that nothing else explains may name.
type merger struct {
	window time.Duration
	held   []*heldKill
	logged []*account // kills in the log that no counter has accounted for yet
	told   []*account // kills that were told because of a counter alone
	spent  []Kill     // kills in the log that were such ones
}

type heldKill struct {
	Sighting
	account

	until time.Time
}

// account is that processes of a cgroup were killed, n by the kernel's count, at some
// time between from and to. It counts until expires.
type account struct {
	cgroup   string
	n        int
	from, to time.Time
	expires  time.Time
}

// remember is how many windows a kill in the log waits for its counter, and one that
// a counter told for its log. Neither may come at all.
const remember = 20

func accountOf(s Sighting) account {
	a := account{cgroup: s.Kill.VictimCgroup, n: max(s.Kill.counted, s.Kill.Kills), from: s.Kill.Time, to: s.Kill.Time}
	if s.Counter {
		a.from = s.Since
	}
	return a
}

// add takes a sighting and returns the kills that can be told.
func (m *merger) add(s Sighting, now time.Time) []Kill {
	a, k := accountOf(s), s.Kill
	switch {
	case s.Counter:
		a.n = m.spend(a, slices.Values(m.logged))
	case a.cgroup != "":
		left := m.spend(a, slices.Values(m.told))
		if left == 0 {
			m.spent = append(m.spent, k)
			return nil // told already, without its name
		}
		k.Kills, a.n = min(k.Kills, left), left
		a.n = m.spend(a, m.holds(true))
		m.logged = m.note(m.logged, a, now)
		m.clear()
		return []Kill{k}
	}
	if a.n > 0 {
		m.held = append(m.held, &heldKill{s, a, now.Add(m.window)})
	}
	m.clear()
	return nil
}

// due returns the kills whose window is over.
func (m *merger) due(now time.Time) (tell []Kill) {
	expired := func(a *account) bool { return !now.Before(a.expires) }
	m.logged = slices.DeleteFunc(m.logged, expired)
	m.told = slices.DeleteFunc(m.told, expired)
	for {
		i := slices.IndexFunc(m.held, func(h *heldKill) bool { return !now.Before(h.until) })
		if i < 0 {
			return tell
		}
		if k, ok := m.settle(m.held[i], now); ok {
			tell = append(tell, k)
		}
		m.clear()
	}
}

// settle decides what is told of h when nothing more is to be waited for. If what the
// log and what a counter left over are both there, they are of the same kill: all that
// fits exactly has been accounted for.
func (m *merger) settle(h *heldKill, now time.Time) (Kill, bool) {
	line, counter := h, h
	for other := range m.holding(!h.Counter) {
		if m.overlap(&h.account, &other.account) {
			if h.Counter {
				line = other
			} else {
				counter = other
			}
			break
		}
	}
	k := line.Kill
	switch {
	case line != counter:
		k.VictimCgroup = counter.cgroup
		spent := min(line.n, counter.n)
		counter.n -= spent
		line.n = 0
	case h.Counter:
		k.Kills = max(h.n-(max(k.counted, k.Kills)-k.Kills), 1)
		m.told = m.note(m.told, h.account, now)
		h.n = 0
	default:
		left := m.spend(h.account, slices.Values(m.told))
		m.logged = m.note(m.logged, account{n: left, from: h.from, to: h.to}, now)
		h.n = 0
		if left == 0 { // told already
			m.spent = append(m.spent, k)
		}
		return k, left > 0
	}
	return k, true
}

// spend takes what may be the same kills off the accounts, those that fit best first,
// and returns how many are left of a.
func (m *merger) spend(a account, accounts iter.Seq[*account]) (left int) {
	for fit := sameCgroup; fit <= unknownCgroup; fit++ {
		for other := range accounts {
			if a.n > 0 && fitOf(a.cgroup, other.cgroup) == fit && m.overlap(&a, other) {
				n := min(a.n, other.n)
				a.n -= n
				other.n -= n
			}
		}
	}
	return a.n
}

// note adds a to the accounts, as long as there is anything in it.
func (m *merger) note(accounts []*account, a account, now time.Time) []*account {
	if a.n == 0 {
		return accounts
	}
	a.expires = now.Add(remember * m.window)
	for _, other := range accounts {
		if other.cgroup == a.cgroup && m.overlap(&a, other) {
			other.n += a.n
			other.expires = a.expires
			if a.to.After(other.to) {
				other.to = a.to
			}
			return accounts
		}
	}
	return append(accounts, &a)
}

// clear forgets what has been accounted for.
func (m *merger) clear() {
	spent := func(a *account) bool { return a.n == 0 }
	m.logged = slices.DeleteFunc(m.logged, spent)
	m.told = slices.DeleteFunc(m.told, spent)
	m.held = slices.DeleteFunc(m.held, func(h *heldKill) bool { return h.n == 0 })
}

// holding are the kills held that counters told, or the log.
func (m *merger) holding(counters bool) iter.Seq[*heldKill] {
	return func(yield func(*heldKill) bool) {
		for _, h := range m.held {
			if h.Counter == counters && !yield(h) {
				return
			}
		}
	}
}

// holds are the accounts of the kills held that counters told.
func (m *merger) holds(counters bool) iter.Seq[*account] {
	return func(yield func(*account) bool) {
		for h := range m.holding(counters) {
			if !yield(&h.account) {
				return
			}
		}
	}
}

// overlap says whether kills can be the same by when they were. The clocks of the log
// and of the counters, and the moment at which the kernel writes either, differ by less
// than the window. A time that is not known may be any.
func (m *merger) overlap(a, b *account) bool {
	before := func(a, b *account) bool {
		return !a.to.IsZero() && !b.from.IsZero() && a.to.Add(m.window).Before(b.from)
	}
	return !before(a, b) && !before(b, a)
}

// next is when due has something to return, zero if nothing is held.
func (m *merger) next() (at time.Time) {
	for _, h := range m.held {
		if at.IsZero() || h.until.Before(at) {
			at = h.until
		}
	}
	return at
}

// begins are the records at which the kills begin that are held.
func (m *merger) begins() (all []uint64) {
	for _, h := range m.held {
		all = append(all, h.Kill.begins())
	}
	return all
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
