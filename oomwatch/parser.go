package oomwatch

import (
	"slices"
	"strings"
	"time"
)

// Parser puts kills together from the records of the kernel's log. It is pure: it
// reads no clock and keeps no record. The zero value is ready; it is not safe for
// concurrent use.
//
// A dump is up to a hundred lines, of which it needs two or three: who was chosen,
// who was killed and, for a group, that more follow. They are joined by the id of the
// process, so that dumps may be interleaved, and each is of use without the others.
type Parser struct {
	chosen []choice // processes whose death has not been logged yet, oldest first
	last   *Kill    // killed, and perhaps a group, whose others come next
	group  bool     // last is one
	memory Kind     // what had run out for last; empty if that is not known
	told   int      // the process of the kill that Quiet took before it was known to be a group
	begun  string   // a summary that goes on in another record
	next   uint64   // the record that comes next if none is missing
	idle   uint64   // the last record up to which all that had begun has ended
	used   uint64   // counts the lines that were of use

	// NobodyKilled counts dumps after which nobody was killed: there was nobody, or
	// the process that was chosen was ending by itself.
	NobodyKilled uint64
}

// choice is a process that was chosen, and the line about it. Torn says that records are
// missing since then: it may have been killed without a line that says so.
type choice struct {
	Kill
	text string
	torn bool
}

const (
	maxOpen  = 64      // choices without a death that a parser keeps
	maxBegun = 8 << 10 // bytes of a summary in several records
)

// Feed takes the next record of the log, written at the given time, and returns the
// kill that it completes, if any. A kill is complete when the next one begins: until
// then more of its group may come. Records that the kernel did not write are nothing,
// whatever they say. The record is not retained.
func (p *Parser) Feed(r Record, at time.Time) (done Kill, ok bool) {
	if !p.Open() {
		p.idle = max(r.Sequence, 1) - 1
	}
	if p.next > 0 && r.Sequence != p.next {
		p.tear()
	}
	p.next = r.Sequence + 1
	if !r.Kernel {
		return Kill{}, false
	}
	text, k := string(r.Text), Kill{Time: at, Sequence: r.Sequence, from: p.idle, end: r.Sequence}
	if r.Continued && p.begun != "" {
		p.begun += text
		text = p.begun
	}
	p.used++
	if strings.HasPrefix(text, summaryLine) {
		return p.choose(text, k)
	}
	if v, memory, ok := killed(text); ok {
		return p.dies(v, memory, k)
	}
	if cgroup, ok := group(text); ok {
		return p.groupBegins(cgroup, k)
	}
	if pid, ok := ending(text); ok {
		p.ends(pid)
		return Kill{}, false
	}
	switch {
	case strings.Contains(text, invokedLine):
		return p.take()
	case strings.HasPrefix(text, nobodyLine):
		p.NobodyKilled++
		return p.take()
	}
	p.used--
	return Kill{}, false
}

// tear notes that records are missing.
func (p *Parser) tear() {
	for i := range p.chosen {
		p.chosen[i].torn = true
	}
	p.begun, p.group = "", false
}

// Open says whether something has begun and not ended.
func (p *Parser) Open() bool { return p.last != nil || len(p.chosen) > 0 || p.begun != "" }

// Quiet returns the kill that may have been the first of a group; call it when the
// log has been quiet for a moment.
func (p *Parser) Quiet() (done Kill, ok bool) {
	if p.last != nil && !p.group {
		p.told = p.last.PID
	}
	return p.take()
}

// Flush returns what is known of all that has begun; call it at the end of a log, or
// when that has been quiet for long. A process that was chosen counts as killed if
// records are missing that may have said so, and else as not.
func (p *Parser) Flush() []Kill {
	var done []Kill
	if k, ok := p.take(); ok {
		done = append(done, k)
	}
	for _, c := range p.chosen {
		if !c.torn {
			p.NobodyKilled++
			continue
		}
		c.Kills, c.end = 1, p.next-1
		done = append(done, c.Kill)
	}
	p.chosen, p.begun = nil, ""
	return done
}

// choose takes a summary. One that is not complete goes on in another record. Of too
// many choices the oldest is forgotten: its death was never logged.
func (p *Parser) choose(text string, k Kill) (Kill, bool) {
	if !k.summary(text, "") {
		if p.begun = text; len(text) > maxBegun {
			p.begun = ""
		}
		return p.take()
	}
	p.begun, p.told = "", 0
	if len(p.chosen) >= maxOpen {
		p.chosen = p.chosen[1:]
	}
	p.chosen = append(p.chosen, choice{Kill: k, text: text})
	return p.take()
}

// dies takes a death: that of a process that was chosen, one of the open group or, if the
// kernel left out the rest of its dump or it was lost, one out of nothing.
func (p *Parser) dies(v Victim, memory Kind, k Kill) (Kill, bool) {
	name := v.Process
	v.Process = unescape(name)
	if i := p.choiceOf(v.PID, memory); i >= 0 {
		c := p.chosen[i]
		c.summary(c.text, name)
		p.chosen = slices.Delete(p.chosen, i, i+1)
		if v.UID == 0 {
			v.UID = c.UID
		}
		c.end = k.end
		return p.begin(c.Kill, v, memory)
	}
	if p.group && (p.memory == "" || p.memory == memory) { // else it is another kill, without a dump
		p.memory, p.last.end = memory, k.end
		p.last.add(v, p.told)
		return Kill{}, false
	}
	if k.Kind = memory; memory == System {
		k.LimitCgroup = "/"
	} else {
		k.Constraint = ConstraintMemcg
	}
	return p.begin(k, v, memory)
}

// choiceOf finds the choice that a death carries out, -1 if there is none. If the main
// thread of the chosen process has ended, the death is that of another thread, under its
// own id.
func (p *Parser) choiceOf(pid int, memory Kind) int {
	if i := slices.IndexFunc(p.chosen, func(c choice) bool { return c.PID == pid }); i >= 0 {
		return i
	}
	if len(p.chosen) == 1 && !p.chosen[0].torn && !p.group && memory == p.chosen[0].Kind {
		return 0
	}
	return -1
}

// ends takes it that a process was not killed, because it is ending by itself.
func (p *Parser) ends(pid int) {
	before := len(p.chosen)
	p.chosen = slices.DeleteFunc(p.chosen, func(c choice) bool { return c.PID == pid })
	p.NobodyKilled += uint64(before - len(p.chosen))
}

// begin makes k the last kill and returns the one before it.
func (p *Parser) begin(k Kill, v Victim, memory Kind) (Kill, bool) {
	done, ok := p.take()
	k.Victim, k.Kills, k.counted = v, 1, 1
	p.last, p.memory, p.told = &k, memory, 0
	return done, ok
}

// groupBegins takes the announcement that all of a cgroup will be killed, which
// follows the death of the one that was chosen.
func (p *Parser) groupBegins(cgroup string, k Kill) (done Kill, ok bool) {
	if p.last == nil || p.group || p.last.VictimCgroup != "" && !within(p.last.VictimCgroup, cgroup) {
		done, ok = p.take()
		k.Constraint = ConstraintMemcg
		p.last, p.memory = &k, ""
	}
	if p.last.PID != 0 {
		p.last.Victims = append(p.last.Victims, p.last.Victim)
	}
	p.last.Kind, p.last.VictimCgroup, p.last.end = Group, cgroup, k.end
	p.group = true
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
	p.last, p.group = nil, false
	return k, true
}
