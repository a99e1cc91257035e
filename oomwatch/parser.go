package oomwatch

import (
	"bytes"
	"slices"
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
	chosen    []chosen // what summaries told, by kernels since 5.0, oldest first
	limits    []Kill   // what limits were reached, before 5.0, oldest first
	announced Kind     // what ran out, before 5.3, for the next death
	since     uint64   // the record that announced it
	last      *Kill    // killed, and perhaps a group, whose others come next
	group     bool     // last is one
	memory    Kind     // what had run out for last; empty if that is not known
	told      int      // the process of the kill that Quiet took before it was known to be a group
	begun     part     // a line that goes on in another record
	next      uint64   // the record that comes next if none is missing

	relevant uint64 // lines that were of use

	// NobodyKilled counts dumps after which nobody was killed: there was nobody, or
	// the process that was chosen was ending by itself.
	NobodyKilled uint64
}

// chosen is a process that was chosen. Torn says that records are missing since then:
// it may have been killed without a line that says so. Text is its summary if that can
// be read in several ways.
type chosen struct {
	Kill
	torn bool
	text []byte
}

// part is the begin of a line, and its first record.
type part struct {
	text  []byte
	first uint64
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
	if p.next > 0 && r.Sequence != p.next {
		p.tear()
	}
	p.next = r.Sequence + 1
	if !r.Kernel {
		return Kill{}, false
	}
	text, begun := r.Text, Kill{Time: at, Sequence: r.Sequence, first: r.Sequence, end: r.Sequence}
	if r.Continued && p.begun.text != nil {
		p.begun.text = append(p.begun.text, text...)
		text, begun.first = p.begun.text, p.begun.first
	}
	isTask := bytes.HasPrefix(text, []byte(taskLine))
	if !isTask && !bytes.Contains(text, []byte(anyLine)) {
		return Kill{}, false
	}
	before := p.relevant
	p.relevant++
	if bytes.HasPrefix(text, []byte(summaryLine)) {
		return p.summary(text, begun)
	}
	if v, name, memory, ok := killed(text); ok {
		p.named(v.PID, name)
		v.Process = p.name(v.PID, name)
		return p.killed(v, memory, begun)
	}
	if k, ok := legacy(text); ok {
		k.Time, k.Sequence, k.first, k.end, p.begun = at, r.Sequence, begun.first, r.Sequence, part{}
		p.limits = push(p.limits, k)
		return p.take()
	}
	if isTask {
		p.goesOn(text, begun.first)
		return Kill{}, false
	}
	if cgroup, ok := group(text); ok {
		return p.groupBegins(cgroup, begun)
	}
	if pid, name, memory := choice(text); memory != "" {
		p.announced, p.since = memory, r.Sequence
		p.named(pid, name)
		return p.take()
	}
	if pid, ok := ending(text); ok {
		p.ends(pid)
		return Kill{}, false
	}
	switch {
	case bytes.Contains(text, []byte(invokedLine)):
		return p.take()
	case bytes.HasPrefix(text, []byte(nobodyLine)):
		p.NobodyKilled++
		p.limits = nil // of this dump
		return p.take()
	}
	p.relevant = before
	return Kill{}, false
}

// tear notes that records are missing.
func (p *Parser) tear() {
	for i := range p.chosen {
		p.chosen[i].torn = true
	}
	p.limits, p.announced, p.begun, p.group = nil, "", part{}, false
}

// goesOn keeps a line that is not complete.
func (p *Parser) goesOn(text []byte, first uint64) {
	if p.begun = (part{bytes.Clone(text), first}); len(text) > maxBegun {
		p.begun = part{}
	}
}

// named reads the summary of a process again, if that could be read in several ways, now
// that its name is known.
func (p *Parser) named(pid int, name []byte) {
	for i := range p.chosen {
		c := &p.chosen[i]
		if c.PID != pid || c.text == nil {
			continue
		}
		if k, ok := summaryOf(c.text, name); ok {
			k.Time, k.Sequence, k.first, k.end = c.Time, c.Sequence, c.first, c.end
			c.Kill, c.text = k, nil
		}
	}
}

// Open says whether something has begun and not ended.
func (p *Parser) Open() bool {
	return p.last != nil || len(p.chosen) > 0 || len(p.limits) > 0 || p.announced != "" || p.begun.text != nil
}

// from is the first record that something open begins at, zero if nothing is open.
func (p *Parser) from() (sequence uint64) {
	earlier := func(first uint64) {
		if sequence == 0 || first < sequence {
			sequence = first
		}
	}
	if p.last != nil {
		earlier(p.last.first)
	}
	if len(p.chosen) > 0 {
		earlier(p.chosen[0].first)
	}
	if len(p.limits) > 0 {
		earlier(p.limits[0].first)
	}
	if p.announced != "" {
		earlier(p.since)
	}
	if p.begun.text != nil {
		earlier(p.begun.first)
	}
	return sequence
}

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
		c.Kills = 1
		done = append(done, c.Kill)
	}
	p.chosen, p.limits, p.announced, p.begun = p.chosen[:0], nil, "", part{}
	return done
}

// summary takes a choice. One that is not complete goes on in another record.
func (p *Parser) summary(text []byte, begun Kill) (Kill, bool) {
	k, ok := summary(text)
	if !ok {
		p.goesOn(text, begun.first)
		return p.take()
	}
	k.Time, k.Sequence, k.first, k.end = begun.Time, begun.Sequence, begun.first, begun.end
	p.begun, p.told = part{}, 0
	c := chosen{Kill: k}
	if bytes.Count(text, []byte(taskField)) > 1 {
		c.text = bytes.Clone(text)
	}
	p.chosen = push(p.chosen, c)
	return p.take()
}

// killed takes a death: one that was announced, one of the open group or, if the
// kernel left out the rest of its dump or it was lost, one out of nothing.
func (p *Parser) killed(v Victim, memory Kind, k Kill) (Kill, bool) {
	if memory == "" {
		if memory = p.announced; memory != "" {
			k.first = p.since
		}
	}
	end := k.end
	if i := p.choiceOf(v.PID, memory); i >= 0 {
		k = p.chosen[i].Kill
		p.chosen = slices.Delete(p.chosen, i, i+1)
		if v.UID == 0 {
			v.UID = k.UID // the line says it since 5.4
		}
		k.end = end
		return p.begin(k, v, memory)
	}
	if p.group && (p.memory == "" || p.memory == memory) { // else it is another kill, without a dump
		p.memory, p.last.end = memory, end
		p.last.add(v, p.told)
		return Kill{}, false
	}
	k.Kind = memory
	switch {
	case memory == System:
		k.LimitCgroup = "/"
	case len(p.limits) > 0:
		k = p.limits[0]
		k.end = end
		p.limits = slices.Delete(p.limits, 0, 1)
	case memory == Cgroup:
		k.Constraint = ConstraintMemcg
	}
	return p.begin(k, v, memory)
}

// choiceOf finds the choice that a death carries out, -1 if there is none. The process
// may be another than the chosen one: a child of it before 5.1, and a thread of it,
// under its own id, if the main one has ended.
func (p *Parser) choiceOf(pid int, memory Kind) int {
	if i := slices.IndexFunc(p.chosen, func(c chosen) bool { return c.PID == pid }); i >= 0 {
		return i
	}
	if len(p.chosen) == 1 && !p.chosen[0].torn && !p.group && (memory == "" || memory == p.chosen[0].Kind) {
		return 0
	}
	return -1
}

// ends takes it that a process was not killed, because it is ending by itself.
func (p *Parser) ends(pid int) {
	before := len(p.chosen)
	p.chosen = slices.DeleteFunc(p.chosen, func(c chosen) bool { return c.PID == pid })
	p.NobodyKilled += uint64(before - len(p.chosen))
}

// name is the name of the process, which its summary may have had already.
func (p *Parser) name(pid int, name []byte) string {
	for i := range p.chosen {
		if c := &p.chosen[i]; c.PID == pid && c.Process == string(name) {
			return c.Process
		}
	}
	return unescape(name)
}

// begin makes k the last kill and returns the one before it.
func (p *Parser) begin(k Kill, v Victim, memory Kind) (Kill, bool) {
	done, ok := p.take()
	p.memory = memory
	k.Victim, k.Kills, k.counted = v, 1, 1
	p.last, p.announced, p.told = &k, "", 0
	return done, ok
}

// groupBegins takes the announcement that all of a cgroup will be killed, which
// follows the death of the one that was chosen.
func (p *Parser) groupBegins(cgroup []byte, k Kill) (done Kill, ok bool) {
	if p.last == nil || p.group || !inside(p.last.VictimCgroup, cgroup) {
		done, ok = p.take()
		p.last, p.memory = &k, ""
		p.last.Constraint = ConstraintMemcg
	}
	p.last.end = k.end
	if p.last.PID != 0 {
		p.last.Victims = append(p.last.Victims, p.last.Victim)
	}
	p.last.Kind, p.last.VictimCgroup = Group, unescape(cgroup)
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

// inside says whether cgroup is group or below it. One that is not known may be.
func inside(cgroup string, group []byte) bool {
	return cgroup == "" || within([]byte(cgroup), []byte(unescape(group)))
}

// push appends k and forgets the oldest of too many: their deaths were never logged.
func push[T any](kills []T, k T) []T {
	if len(kills) >= maxOpen {
		kills = slices.Delete(kills, 0, 1)
	}
	return append(kills, k)
}
