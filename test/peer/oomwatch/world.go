package oomwatch

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A World is a kernel's log and the kills that it tells of.
type World struct {
	// History says that the first step was logged before the start.
	History bool
	Era     era
	Steps   []Step
}

// A Step is what is logged at about the same time.
type Step struct {
	// Overrun says that records before these were overwritten.
	Overrun bool
	Records []string
	Kills   []Kill
	Causes  map[cause]bool
}

// pause is the time from one step to the next.
const pause = 15 * time.Second

// A Kill is a process that the kernel killed, as the log tells of it.
type Kill struct {
	PID           int
	Process       string // as it is called
	Escaped       string // as the log has it
	Victim, Limit string // cgroups
	Constraint    string
	// Machine says that the machine had no memory left.
	Machine bool
	// Of is the process that the kernel chose, if it killed a whole group.
	Of int
	// Told is the name by which the node's event has it.
	Told string
}

// A cause is what the kubelet gets wrong.
type cause string

const (
	globalSince5 cause = "kill for the machine since 5.0"
	wholeGroup   cause = "group"
	noDump       cause = "no dump"
	noDeath      cause = "no death"
	interleaved  cause = "interleaved"
	imitation    cause = "imitation"
	torn         cause = "continuation"
	noUser       cause = "no uid"
	child        cause = "child of the chosen process"
	taskInName   cause = "name like a field"
	pathLikeLine cause = "path like a field"
)

// A writer draws a world.
type writer struct {
	*judge.Draw
	era           era
	sequence, pid int
	step          *Step
	at            time.Duration
}

func newWorld(d *judge.Draw) *World {
	w, l := &World{History: d.Chance(10)}, &writer{Draw: d, sequence: 100, pid: 1000}
	w.Era = judge.Pick(d, since53, until52, before50)
	l.era = w.Era
	odd := d.Int(4) // how odd the logs are: 0 is not at all
	for i := range d.Between(1, 5) {
		w.Steps = append(w.Steps, l.draw(i, odd))
	}
	return w
}

func (l *writer) draw(number, odd int) Step {
	s := Step{Causes: map[cause]bool{}}
	l.step, l.at = &s, time.Duration(number)*pause
	if odd == 3 && number > 0 && l.Chance(6) {
		s.Overrun = true
		l.sequence += l.Between(1, 1000)
	}
	dumps := [][]string{l.dump(odd)}
	if odd > 1 && l.Chance(25) {
		dumps = append(dumps, l.dump(odd))
		// Else nothing ties a dump's lines to each other.
		tied := l.era != before50 && !s.Causes[wholeGroup] && !s.Causes[noDump] && !s.Causes[child]
		if tied && l.Chance(40) {
			s.Causes[interleaved] = true
			dumps = [][]string{l.mix(dumps[0], dumps[1])}
		}
	}
	for _, dump := range dumps {
		for _, line := range dump {
			l.print(line, odd)
		}
	}
	return s
}

// mix returns the lines of two dumps in an order of both.
func (l *writer) mix(a, b []string) (all []string) {
	for len(a) > 0 && len(b) > 0 {
		if l.Chance(50) {
			all, b = append(all, b[0]), b[1:]
		} else {
			all, a = append(all, a[0]), a[1:]
		}
	}
	return append(append(all, a...), b...)
}

// print logs a line of the kernel, and sometimes what others log.
func (l *writer) print(line string, odd int) {
	if odd > 0 && l.Chance(5) {
		l.noise()
	}
	tail := ""
	if odd > 0 && l.Chance(5) {
		tail = " SUBSYSTEM=memory\n DEVICE=+memory:1\n"
	}
	priority := judge.Pick(l.Draw, 4, 3, 6)
	if ends := parts(line); odd == 3 && len(ends) > 0 && l.Chance(20) {
		at := judge.Pick(l.Draw, ends...)
		l.step.Causes[torn] = true
		l.record(priority, "-", line[:at], "")
		l.record(priority, "c", line[at:], tail)
		return
	}
	l.record(priority, "-", line, tail)
}

// parts returns where the kernel may break a line off: these two it writes in several
// parts.
func parts(line string) (ends []int) {
	for _, next := range []string{",cpuset=", ",oom_memcg=/", ",global_oom", ",task_memcg=/", ",task="} {
		if at := strings.LastIndex(line, next); at > 0 && strings.HasPrefix(line, "oom-kill:") {
			ends = append(ends, at)
		}
	}
	const before, limit = "Task in ", " killed as a result of limit of "
	if at := strings.LastIndex(line, limit); at > 0 && strings.HasPrefix(line, before) {
		ends = append(ends, len(before), at, at+len(limit))
	}
	return ends
}

func (l *writer) record(priority int, flags, text, tail string) {
	l.sequence++
	l.at += time.Microsecond
	l.step.Records = append(l.step.Records, fmt.Sprintf("%d,%d,%d,%s;%s\n%s", priority, l.sequence, l.at.Microseconds(), flags, text, tail))
}

// noise logs what is no line of the kernel about memory.
func (l *writer) noise() {
	switch l.Int(5) {
	case 0:
		l.record(6, "-", "eth0: link becomes ready", "")
	case 1: // its number is not missed: a record that is missing may be one that mattered
		l.step.Records = append(l.step.Records, judge.Pick(l.Draw, "", "rubbish\n", "6;no header\n", "6,x,1,-;bad\n", "x,1,1,-;bad\n", "6,1,x,-;bad\n"))
	case 2: // a program, which can't be the kernel
		l.record(30, "-", "systemd[1]: kubelet.service: A process of this unit has been killed by the OOM killer.", "")
	case 3:
		l.record(6, "-", "oom_reaper: reaped process 9 (exe), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB", "")
	default:
		l.step.Causes[imitation] = true
		pid := 90000 + l.sequence
		l.record(11, "-", "evil invoked oom-killer: gfp_mask=0x0, order=0, oom_score_adj=0", "")
		if l.Chance(50) {
			l.record(11, "-", fmt.Sprintf("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/,task_memcg=/x,task=evil,pid=%d,uid=0", pid), "")
		}
		l.record(11, "-", fmt.Sprintf("Out of memory: Killed process %d (evil) total-vm:1kB", pid), "")
	}
}

// String describes a world.
func (w *World) String() string {
	var b strings.Builder
	for i, s := range w.Steps {
		fmt.Fprintf(&b, "step %d", i)
		if i == 0 && w.History {
			b.WriteString(", before the start")
		}
		if s.Overrun {
			b.WriteString(", after an overrun")
		}
		fmt.Fprintf(&b, ": %v\n", s.Causes)
		for _, r := range s.Records {
			fmt.Fprintf(&b, "    %q\n", r)
		}
		for _, k := range s.Kills {
			fmt.Fprintf(&b, "  kills %+v\n", k)
		}
	}
	return b.String()
}
