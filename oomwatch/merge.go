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
	// LostRecords is how many records of the log were overwritten before this one.
	// There need not be a kill to tell of them.
	LostRecords uint64
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
	held   []heldKill
	logged []logged // kills in the log that no counter has accounted for yet
	told   []logged // kills that were told because of a counter alone
}

type heldKill struct {
	Sighting
	until time.Time
}

// logged is that n processes of a cgroup were killed; it counts until expires.
type logged struct {
	cgroup  string
	n       int
	expires time.Time
}

// remember is how many windows a kill in the log waits for its counter, and one that
// a counter told for its log. Neither may come at all.
const remember = 20

// add takes a sighting and returns the kills that can be told.
func (m *merger) add(s Sighting, now time.Time) []Kill {
	if s.Counter {
		return m.counted(s, now)
	}
	k := s.Kill
	if k.VictimCgroup == "" {
		m.held = append(m.held, heldKill{s, now.Add(m.window)})
		return nil
	}
	n := counts(k)
	if left := spend(&m.told, k.VictimCgroup, n); left < n {
		return nil // told already, without its name
	}
	n -= m.spendHeld(k.VictimCgroup, n)
	if n > 0 {
		m.logged = append(m.logged, logged{k.VictimCgroup, n, now.Add(remember * m.window)})
	}
	return []Kill{k}
}

// counted takes a counter that rose by s.Kill.Kills.
func (m *merger) counted(s Sighting, now time.Time) []Kill {
	s.Kill.Kills = spend(&m.logged, s.Kill.VictimCgroup, s.Kill.Kills)
	if s.Kill.Kills > 0 {
		m.held = append(m.held, heldKill{s, now.Add(m.window)})
	}
	return nil
}

// counts is by how much the counters rise for k. In a group kill the process that the
// kernel chose counts twice, as it is killed alone first and then with all others.
func counts(k Kill) int {
	if k.Kind == Group {
		return k.Kills + 1
	}
	return k.Kills
}

// victims is how many processes died if the counters rose by k.Kills.
func victims(k Kill) int {
	if k.Kind == Group {
		return max(k.Kills-1, 1)
	}
	return k.Kills
}

// spendHeld takes up to n kills off what counters told of the cgroup and is held,
// and returns how many it took.
func (m *merger) spendHeld(cgroup string, n int) (spent int) {
	for i := range m.held {
		h := &m.held[i]
		if !h.Counter || !related(cgroup, h.Kill.VictimCgroup) {
			continue
		}
		take := min(n-spent, h.Kill.Kills)
		h.Kill.Kills -= take
		spent += take
	}
	m.held = slices.DeleteFunc(m.held, func(h heldKill) bool { return h.Kill.Kills == 0 })
	return spent
}

// due returns the kills whose window is over.
func (m *merger) due(now time.Time) (tell []Kill) {
	expired := func(l logged) bool { return !now.Before(l.expires) }
	m.logged = slices.DeleteFunc(m.logged, expired)
	m.told = slices.DeleteFunc(m.told, expired)
	for {
		i := slices.IndexFunc(m.held, func(h heldKill) bool { return !now.Before(h.until) })
		if i < 0 {
			return tell
		}
		h := m.held[i]
		m.held = slices.Delete(m.held, i, i+1)
		if k, ok := m.settle(h, now); ok {
			tell = append(tell, k)
		}
	}
}

// settle decides what is told of h when nothing more is to be waited for. If what the
// log and what a counter left over are both there, they are of the same kill: all that
// fits exactly has been accounted for.
func (m *merger) settle(h heldKill, now time.Time) (Kill, bool) {
	k, account := h.Kill, logged{h.Kill.VictimCgroup, h.Kill.Kills, now.Add(remember * m.window)}
	other := slices.IndexFunc(m.held, func(o heldKill) bool { return o.Counter != h.Counter })
	switch {
	case h.Counter && other >= 0:
		k = m.held[other].Kill
		k.VictimCgroup = h.Kill.VictimCgroup
		m.held = slices.Delete(m.held, other, other+1)
		if h.Kill.Kills -= counts(k); h.Kill.Kills > 0 {
			m.held = append(m.held, h)
		}
	case h.Counter:
		m.told = append(m.told, account)
		k.Kills = victims(k)
	case other >= 0:
		k.VictimCgroup = m.held[other].Kill.VictimCgroup
		m.spendHeld(k.VictimCgroup, counts(k))
	case spend(&m.told, "", k.Kills) < k.Kills:
		return k, false // told already
	default:
		m.logged = append(m.logged, account)
	}
	return k, true
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

// sequences are the records at which the kills begin that are held.
func (m *merger) sequences() (all []uint64) {
	for _, h := range m.held {
		all = append(all, h.Kill.Sequence)
	}
	return all
}

// spend takes up to n kills in the cgroup off the accounts and returns what is left of n.
func spend(accounts *[]logged, cgroup string, n int) (left int) {
	for i := range *accounts {
		a := &(*accounts)[i]
		if n > 0 && related(a.cgroup, cgroup) {
			take := min(n, a.n)
			a.n -= take
			n -= take
		}
	}
	*accounts = slices.DeleteFunc(*accounts, func(a logged) bool { return a.n == 0 })
	return n
}

// related says whether one cgroup is in the other. The log names the cgroup that is
// killed whole while counters are those of its children, and the counter of a pod
// tells of containers whose own is gone. One that is not known may be any.
func related(a, b string) bool { return a == "" || b == "" || below(a, b) || below(b, a) }

// below says whether cgroup is parent or in it.
func below(cgroup, parent string) bool {
	rest, ok := strings.CutPrefix(cgroup, parent)
	return ok && (rest == "" || rest[0] == '/')
}
