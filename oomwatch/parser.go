package oomwatch

import (
	"bytes"
	"slices"
	"time"
)

// maxOpen bounds what a parser keeps of dumps whose end it has not seen.
const maxOpen = 64

// Parser puts kills together from the lines of the kernel's log. It is pure: it
// reads no clock and keeps no line. The zero value is ready; it is not safe for
// concurrent use.
//
// A dump is up to a hundred lines, of which it needs two or three: who was chosen,
// who was killed and, for a group, that more follow. They are joined by the id of the
// process, so that dumps may be interleaved, and each is of use without the others.
type Parser struct {
	chosen []Kill // what summaries told, by kernels since 5.0, oldest first
	limits []Kill // what limits were reached, before 5.0, oldest first
	last   *Kill  // killed, and perhaps a group, whose others come next
	group  []byte // the cgroup that last is all of

	relevant uint64 // lines that were of use

	// NobodyKilled counts dumps of the kernel that found nobody to kill.
	NobodyKilled uint64
}

// Feed takes the next record of the kernel, written at the given time, and returns the
// kill that it completes, if any. A kill is complete when the next one begins: until
// then more of its group may come. The record is not retained.
func (p *Parser) Feed(r Record, at time.Time) (done Kill, ok bool) {
	text := r.Text
	if !bytes.Contains(text, []byte(anyLine)) {
		return Kill{}, false
	}
	p.relevant++
	begun := Kill{Time: at, Sequence: r.Sequence}
	if k, ok := summary(text); ok {
		k.Time, k.Sequence = at, r.Sequence
		p.chosen = push(p.chosen, k)
		return p.take()
	}
	if v, name, memory, ok := killed(text); ok {
		v.Process = p.name(v.PID, name)
		return p.killed(v, memory, begun)
	}
	if k, ok := legacy(text); ok {
		k.Time, k.Sequence = at, r.Sequence
		p.limits = push(p.limits, k)
		return p.take()
	}
	if cgroup, ok := group(text); ok {
		return p.groupBegins(cgroup, begun)
	}
	switch {
	case bytes.Contains(text, []byte(invokedLine)):
		return p.take()
	case bytes.Contains(text, []byte(nobodyLine)):
		p.NobodyKilled++
		p.limits = nil // of this dump
		return p.take()
	}
	return Kill{}, false
}

// Open says whether something has begun and not ended.
func (p *Parser) Open() bool { return p.last != nil || len(p.chosen) > 0 }

// from is the first record that something open begins at, zero if nothing is open.
func (p *Parser) from() (sequence uint64) {
	open := p.chosen
	if p.last != nil {
		open = append(slices.Clip(open), *p.last)
	}
	for i, k := range open {
		if i == 0 || k.Sequence < sequence {
			sequence = k.Sequence
		}
	}
	return sequence
}

// Flush returns what is known of the kills that are not complete; call it when the
// log has been quiet for a moment. One that was chosen counts as killed, for the
// line that said so was lost.
func (p *Parser) Flush() []Kill {
	var done []Kill
	if k, ok := p.take(); ok {
		done = append(done, k)
	}
	for _, k := range p.chosen {
		k.Kills = 1
		done = append(done, k)
	}
	p.chosen, p.limits = p.chosen[:0], nil
	return done
}

// killed takes a death: one of the open group, one that was announced, or, if the
// kernel left out the rest of its dump or it was lost, one out of nothing.
func (p *Parser) killed(v Victim, memory Kind, k Kill) (Kill, bool) {
	if i := slices.IndexFunc(p.chosen, func(k Kill) bool { return k.PID == v.PID }); i >= 0 {
		k = p.chosen[i]
		p.chosen = slices.Delete(p.chosen, i, i+1)
		if v.UID == 0 {
			v.UID = k.UID // the line says it since 5.4
		}
		return p.begin(k, v)
	}
	if p.group != nil {
		// The kernel kills, and logs, the one it chose once more.
		if !p.last.killed(v.PID) {
			p.last.Victims = append(p.last.Victims, v)
			p.last.Kills = len(p.last.Victims)
			if p.last.PID == 0 {
				p.last.Victim = v
			}
		}
		return Kill{}, false
	}
	k.Kind = memory
	switch {
	case memory == Cgroup:
		k.Constraint = ConstraintMemcg
	case memory == System:
		k.LimitCgroup = "/"
	case len(p.limits) > 0:
		k = p.limits[0]
		p.limits = slices.Delete(p.limits, 0, 1)
	default: // before 5.0, and no limit was named
		k.Kind, k.LimitCgroup = System, "/"
	}
	return p.begin(k, v)
}

// name is the name of the process, which its summary may have had already.
func (p *Parser) name(pid int, name []byte) string {
	for _, k := range p.chosen {
		if k.PID == pid && k.Process == string(name) {
			return k.Process
		}
	}
	return unescape(name)
}

// begin makes k the last kill and returns the one before it.
func (p *Parser) begin(k Kill, v Victim) (Kill, bool) {
	done, ok := p.take()
	k.Victim, k.Kills = v, 1
	p.last = &k
	return done, ok
}

// groupBegins takes the announcement that all of a cgroup will be killed, which
// follows the death of the one that was chosen.
func (p *Parser) groupBegins(cgroup []byte, k Kill) (done Kill, ok bool) {
	if p.last == nil || !inside(p.last.VictimCgroup, cgroup) {
		done, ok = p.take()
		p.last = &k
		p.last.Constraint = ConstraintMemcg
	}
	if p.last.PID != 0 {
		p.last.Victims = append(p.last.Victims, p.last.Victim)
	}
	p.last.Kind, p.last.VictimCgroup = Group, string(cgroup)
	p.group = []byte(p.last.VictimCgroup)
	return done, ok
}

// take returns the last kill, which is complete. A group whose members' lines were
// all lost still is one.
func (p *Parser) take() (Kill, bool) {
	if p.last == nil {
		return Kill{}, false
	}
	k := *p.last
	k.Kills = max(k.Kills, 1)
	p.last, p.group = nil, nil
	return k, true
}

// inside says whether cgroup is group or below it. One that is not known may be.
func inside(cgroup string, group []byte) bool {
	if cgroup == "" {
		return true
	}
	rest, ok := bytes.CutPrefix([]byte(cgroup), group)
	return ok && (len(rest) == 0 || rest[0] == '/' || len(group) == 1)
}

// push appends k and forgets the oldest of too many: their deaths were never logged.
func push(kills []Kill, k Kill) []Kill {
	if len(kills) >= maxOpen {
		kills = slices.Delete(kills, 0, 1)
	}
	return append(kills, k)
}
