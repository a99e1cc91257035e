package oomwatch

import (
	"slices"
	"strings"
	"time"
)

// Parser combines the records of the kernel's log into kills. It is pure: it reads no
// clock and retains no record. The zero value is ready to use. It is not safe for
// concurrent use.
//
// A dump has up to a hundred lines. The parser needs two or three of these lines: the line
// about the chosen process, the line about its death and, for a group kill, the line that
// announces more deaths. It joins the lines by the process ID, so that dumps may be
// interleaved. It also uses a line if the other lines are missing.
type Parser struct {
	chosen   []choice // processes whose death has not been logged yet, oldest first
	last     *Kill    // the last kill; more victims of its group may follow
	group    bool     // the last kill is a group kill
	memory   Kind     // kind of memory whose exhaustion caused the last kill; empty if unknown
	quietPID int      // PID of the victim that FlushLast returned; the log may still announce that its group is killed
	partial  string   // incomplete summary that continues in another record
	next     uint64   // sequence number of the next record if none is missing
	idle     uint64   // sequence number of the last record up to which all kills are complete
	used     uint64   // number of relevant lines

	// NoVictim counts dumps without a kill: the kernel found no process to kill, or
	// the chosen process was already exiting.
	NoVictim uint64
}

// choice is a process that the kernel has chosen, with the text of the line about the
// choice. The field torn reports whether records after this line are missing, so that the
// line about the death may be lost.
type choice struct {
	Kill
	text string
	torn bool
}

const (
	maxOpen    = 64      // maximum number of choices without a death
	maxPartial = 8 << 10 // maximum size of a summary in several records, in bytes
)

// Feed processes the next record of the log, written at the given time, and returns a kill
// if the record completes it. A kill is complete when the next kill starts: until then,
// more victims of its group may follow. Records that the kernel did not write are ignored.
// The record is not retained.
func (p *Parser) Feed(r Record, at time.Time) (done Kill, ok bool) {
	if !p.Open() {
		p.idle = max(r.Sequence, 1) - 1
	}
	if p.next > 0 && r.Sequence != p.next {
		p.markTorn()
	}
	p.next = r.Sequence + 1
	if !r.Kernel {
		return Kill{}, false
	}
	text, k := string(r.Text), Kill{Time: at, Sequence: r.Sequence, from: p.idle, end: r.Sequence}
	if r.Continued && p.partial != "" {
		p.partial += text
		text = p.partial
	}
	p.used++
	if strings.HasPrefix(text, summaryLine) {
		return p.choose(text, k)
	}
	if v, memory, ok := parseKilled(text); ok {
		return p.addDeath(v, memory, k)
	}
	if cgroup, ok := parseGroup(text); ok {
		return p.startGroup(cgroup, k)
	}
	if pid, ok := parseExiting(text); ok {
		p.dropChoice(pid)
		return Kill{}, false
	}
	switch {
	case strings.Contains(text, invokedLine):
		return p.finish()
	case strings.HasPrefix(text, noVictimLine):
		p.NoVictim++
		return p.finish()
	}
	p.used--
	return Kill{}, false
}

// markTorn handles missing records: it marks all choices as torn, drops the incomplete
// line and ends the group.
func (p *Parser) markTorn() {
	for i := range p.chosen {
		p.chosen[i].torn = true
	}
	p.partial, p.group = "", false
}

// Open reports whether a kill has started and is not complete.
func (p *Parser) Open() bool { return p.last != nil || len(p.chosen) > 0 || p.partial != "" }

// FlushLast returns the last kill as complete, although more victims of its group may
// follow. Call it when no record has come for a moment.
func (p *Parser) FlushLast() (done Kill, ok bool) {
	if p.last != nil && !p.group {
		p.quietPID = p.last.PID
	}
	return p.finish()
}

// Flush returns everything that is incomplete. Call it at the end of a log, or when no
// record has come for a long time. If records are missing since a process was chosen, the
// process counts as killed, because the line about its death may be lost. Otherwise it
// counts as not killed.
func (p *Parser) Flush() []Kill {
	var done []Kill
	if k, ok := p.finish(); ok {
		done = append(done, k)
	}
	for _, c := range p.chosen {
		if !c.torn {
			p.NoVictim++
			continue
		}
		c.Kills, c.end = 1, p.next-1
		done = append(done, c.Kill)
	}
	p.chosen, p.partial = nil, ""
	return done
}

// The method choose handles a summary, the line about the chosen process. It keeps an
// incomplete summary, which continues in another record. If there are too many choices, it
// drops the oldest choice, whose death was never logged.
func (p *Parser) choose(text string, k Kill) (Kill, bool) {
	if !k.parseSummary(text, "") {
		if p.partial = text; len(text) > maxPartial {
			p.partial = ""
		}
		return p.finish()
	}
	p.partial, p.quietPID = "", 0
	if len(p.chosen) >= maxOpen {
		p.chosen = p.chosen[1:]
	}
	p.chosen = append(p.chosen, choice{Kill: k, text: text})
	return p.finish()
}

// addDeath processes the line about a death: the death of a chosen process, of a member of
// the current group or, if the rest of the dump is missing, of an unknown process.
func (p *Parser) addDeath(v Victim, memory Kind, k Kill) (Kill, bool) {
	name := v.Process
	v.Process = unescape(name)
	if i := p.choiceOf(v.PID, memory); i >= 0 {
		c := p.chosen[i]
		c.parseSummary(c.text, name)
		p.chosen = slices.Delete(p.chosen, i, i+1)
		if v.UID == 0 {
			v.UID = c.UID
		}
		c.end = k.end
		return p.startKill(c.Kill, v, memory)
	}
	if p.group && (p.memory == "" || p.memory == memory) { // otherwise the death is another kill, without a dump
		p.memory, p.last.end = memory, k.end
		p.last.add(v, p.quietPID)
		return Kill{}, false
	}
	if k.Kind = memory; memory == System {
		k.LimitCgroup = "/"
	} else {
		k.Constraint = ConstraintMemcg
	}
	return p.startKill(k, v, memory)
}

// choiceOf returns the index of the choice that a death belongs to, or -1. If the main
// thread of the chosen process has exited, the line about the death has the ID of another
// thread.
func (p *Parser) choiceOf(pid int, memory Kind) int {
	if i := slices.IndexFunc(p.chosen, func(c choice) bool { return c.PID == pid }); i >= 0 {
		return i
	}
	if len(p.chosen) == 1 && !p.chosen[0].torn && !p.group && memory == p.chosen[0].Kind {
		return 0
	}
	return -1
}

// dropChoice records that a chosen process was not killed because it is already exiting.
func (p *Parser) dropChoice(pid int) {
	before := len(p.chosen)
	p.chosen = slices.DeleteFunc(p.chosen, func(c choice) bool { return c.PID == pid })
	p.NoVictim += uint64(before - len(p.chosen))
}

// startKill makes k the last kill and returns the previous last kill as complete.
func (p *Parser) startKill(k Kill, v Victim, memory Kind) (Kill, bool) {
	done, ok := p.finish()
	k.Victim, k.Kills, k.counted = v, 1, 1
	p.last, p.memory, p.quietPID = &k, memory, 0
	return done, ok
}

// startGroup processes the announcement that a whole cgroup will be killed. The
// announcement follows the line about the death of the chosen process.
func (p *Parser) startGroup(cgroup string, k Kill) (done Kill, ok bool) {
	if p.last == nil || p.group || p.last.VictimCgroup != "" && !within(p.last.VictimCgroup, cgroup) {
		done, ok = p.finish()
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

// finish returns the last kill as complete. A group kill counts as a kill even if all
// lines about its members were lost.
func (p *Parser) finish() (Kill, bool) {
	if p.last == nil {
		return Kill{}, false
	}
	k := *p.last
	k.Kills = max(k.Kills, 1)
	p.last, p.group = nil, false
	return k, true
}
