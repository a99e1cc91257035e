package oomwatch

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A World is a kernel log and the kills in it.
type World struct {
	// History is set if the first step was logged before the start.
	History bool
	// Busy is set if the log is never quiet in the first seconds, which are one step.
	Busy bool
	// Drift is how much slower the log's clock is than real time, in millionths. Late is set
	// if records are read a second after they were logged.
	Drift int64
	Late  bool
	// Behind is set if the last step is read a second late, and the earlier steps in time.
	Behind bool
	// Counts is set if the watcher also reads the counters of cgroups.
	Counts bool
	// Pod is the agent's knowledge of the pod of a cgroup.
	Pod   known
	Steps []Step
}

// known is an agent's knowledge of a pod.
type known string

const (
	both        known = "the pod and the container"
	noContainer known = "only the pod"
	nothing     known = "nothing"
	nilPod      known = "a nil pod"
)

// A Step is the records that are logged at about the same time.
type Step struct {
	Records []Record
	Kills   []Kill
	Causes  map[cause]bool
	// Nobody counts dumps without a kill.
	Nobody int
	// Restart is the restart or failure of the watcher before record At.
	Restart restart
	At      int
	// Last is the number of the last record.
	Last int
	// Settled is set if all kills of the step are complete a second after Last.
	Settled bool
}

// A Record is a record of the log.
type Record struct {
	Text string
	// Pause is the time between the previous record and this one.
	Pause time.Duration
	// Lost counts the overwritten records before this one.
	Lost int
}

// A restart is a restart or a failure of our watcher.
type restart string

const (
	none       restart = ""
	resumes    restart = "restart at the saved position"
	fails      restart = "the log can't be read"
	failsTwice restart = "the log can't be read, and not be opened"
	reboots    restart = "reboot"
)

// first is the time before the first step, and pause the time between steps.
const (
	first = 2 * time.Second
	pause = time.Minute
)

// A Kill is a process that the kernel killed, as described in the log.
type Kill struct {
	PID           int
	Process       string // its real name
	Escaped       string // its name in the log
	Victim, Limit string // cgroups
	Constraint    string
	// Machine is set if the machine had no memory left.
	Machine bool
	// Of is the process that the kernel chose, if it killed a whole group.
	Of int
	// Kind, Number and Figures are not reported by the kubelet: whose memory ran out, the
	// number of processes killed at once, and the log's figures about this one.
	Kind    string
	Number  int
	Figures figures
	// Sequence and At are the number and the time of the first record about the kill.
	Sequence int
	At       time.Duration
	// Again is set if the log reports the kill of a group's chosen process twice.
	Again bool
	// Wait is the time from the choice of the process to its death.
	Wait time.Duration
}

// A cause is a property of the log that the kubelet reads incorrectly.
type cause string

const (
	wholeGroup   cause = "memory.oom.group kills"
	noDump       cause = "OOM kill without a dump"
	noDeath      cause = "OOM dump without a kill"
	interleaved  cause = "interleaved OOM dumps"
	imitation    cause = "imitated kernel log lines"
	torn         cause = "continued kernel log lines"
	taskInName   cause = "process name like a log field"
	pathLikeLine cause = "cgroup path like a log field"
	noName       cause = "process with an empty name"
	lost         cause = "overrun in a dump"
)

// A writer draws a world.
type writer struct {
	*judge.Draw
	drift         int64
	sequence, pid int
	step          *Step
	at            time.Duration
}

func newWorld(d *judge.Draw) *World {
	w, l := &World{History: d.Chance(10)}, &writer{Draw: d, sequence: judge.Pick(d, 100, 0), pid: 1000}
	w.Counts, w.Pod = d.Chance(50), judge.Pick(d, both, both, noContainer, nothing, nilPod)
	if w.Late = d.Chance(50); !w.Late {
		w.Drift = int64(judge.Pick(d, 0, 300, -300, 499))
	}
	w.Busy = !w.History && d.Chance(3)
	l.drift = w.Drift
	odd := d.Int(4) // degree of unusual content; 0 means only usual content
	if w.Behind = !w.Late && w.Drift == 0 && d.Chance(40); w.Behind {
		odd = 0
	}
	for i := range d.Between(1, 5) {
		if i == 0 && w.Busy {
			w.Steps = append(w.Steps, l.busy())
			continue
		}
		w.Steps = append(w.Steps, l.draw(i, odd, w.Late, w.Behind))
	}
	return w
}

// lag returns how much too late our watcher dates the records of a step. The watcher reads
// these records a second late, and allows for a drift of the log's clock since the previous
// step.
func (w *World) lag(step int, at time.Duration) time.Duration {
	const rate = 2000 // the inverse of the drift
	before := step - 1
	if !w.Behind || step < len(w.Steps)-1 || before < 0 || before == 0 && w.History {
		return 0
	}
	read := first + time.Duration(before)*pause
	if before == 0 && w.Busy {
		for _, r := range w.Steps[0].Records {
			read += r.Pause
		}
	}
	return (at + time.Second - read) / rate
}

// withLag compares our time of a kill that is read late with the expected time. It returns
// "right" or the time, and an empty text for other kills.
func (w *World) withLag(step, pid int, at time.Duration) string {
	for _, k := range w.Steps[step].Kills {
		lag := w.lag(step, k.At)
		switch {
		case k.PID != pid || lag == 0:
		case (at - k.At - lag).Abs() <= 2*time.Millisecond:
			return "right"
		default:
			return at.String()
		}
	}
	return ""
}

// busy draws a step without a quiet moment. The step lasts longer than our watcher searches
// for the end of the log.
func (l *writer) busy() Step {
	s := Step{Causes: map[cause]bool{}}
	l.step, l.at = &s, first
	for range 120 {
		l.record(6, "-", "eth0: link is not ready", "", 15*time.Millisecond)
	}
	for _, line := range l.dump(0) {
		l.record(4, "-", line.text, "", 0)
		l.noted(line)
	}
	s.Last = l.sequence
	return s
}

func (l *writer) draw(number, odd int, late, behind bool) Step {
	s := Step{Causes: map[cause]bool{}}
	l.step, l.at = &s, first+time.Duration(number)*pause
	if odd == 3 && number > 0 && l.Chance(6) {
		l.lose(l.Between(1, 1000))
	}
	if number > 0 && !behind && l.Chance(20) {
		s.Restart = judge.Pick(l.Draw, resumes, fails, failsTwice, reboots)
	}
	if s.Restart == reboots {
		l.sequence = judge.Pick(l.Draw, 50, 0)
		s.Records = nil
	}
	dumps := [][]line{l.dump(odd)}
	if odd > 1 && l.Chance(35) {
		dumps = append(dumps, l.dump(odd))
		// Otherwise nothing connects the lines of a dump.
		tied := !s.Causes[wholeGroup] && !s.Causes[noDump] && !s.Causes[lost]
		if tied && l.Chance(40) {
			s.Causes[interleaved] = true
			dumps = [][]line{l.mix(dumps[0], dumps[1])}
		}
	}
	if odd == 3 && l.Chance(2) {
		dumps = [][]line{l.crowd()}
	}
	paused := false
	for _, dump := range dumps {
		if odd > 0 && l.Chance(10) {
			l.kernelNoise()
		}
		for _, line := range dump {
			paused = paused || line.pause > 0
			l.print(line, odd)
		}
	}
	if s.Settled = s.isSettled(); s.Settled && odd == 3 && l.Chance(15) {
		l.end()
		paused = true
	}
	s.Last = l.sequence
	// Records that are read late are dated late if the log's clock may drift.
	if (s.Restart == resumes || s.Restart != none && s.Restart != reboots && late) && !paused && s.lost() == 0 {
		s.At = l.Int(len(s.Records) + 1)
	}
	return s
}

// isSettled reports whether all kills of the step's dumps are complete shortly after the last
// record.
func (s Step) isSettled() bool {
	return !s.Causes[noDump] && !s.Causes[noDeath] && !s.Causes[interleaved] && s.lost() == 0
}

// end adds records after all kills of the step are complete: missing records, or a summary
// without an end.
func (l *writer) end() {
	const quiet = 500 * time.Millisecond // the watcher waits for nothing that was logged longer ago
	if l.Chance(50) {
		l.lose(l.Between(1, 20))
		l.record(6, "-", "eth0: link becomes ready", "", quiet)
		return
	}
	l.step.Causes[torn] = true
	l.record(4, "-", "oom-kill:constraint=CONSTRAINT_NONE,nodemask=0", "", quiet)
	parts := judge.Pick(l.Draw, 10, 9, 2)
	for range parts {
		l.record(4, "c", strings.Repeat(",0-1", 240), "", 0) // about the maximum that the kernel writes at once
	}
	const kept = 9 // more parts than our watcher buffers
	l.step.Settled = parts >= kept
}

// crowd draws more open choices than our watcher stores, or just as many. If there are more,
// the watcher drops the oldest, and the later death has no choice.
func (l *writer) crowd() (lines []line) {
	const most = 64
	l.step.Kills, l.step.Nobody = nil, 0
	clear(l.step.Causes)
	l.step.Causes[interleaved] = true
	n := most + l.Int(2)
	var deaths []line
	for i := range n {
		k := Kill{Number: 1, Kind: "cgroup", Constraint: "CONSTRAINT_MEMCG"}
		k.PID, k.Process, k.Escaped = l.process(0)
		k.Victim, k.Limit = l.cgroups(0)
		chosen := line{text: l.summary(&k), begins: k.PID}
		death := line{text: l.death(&k, 0)}
		if i == 0 && n > most {
			k.Victim, k.Limit = "", ""
			chosen.begins, death.begins = 0, k.PID
		}
		lines, deaths = append(lines, chosen), append(deaths, death)
		l.kill(k)
	}
	return append(lines, deaths...)
}

// lost counts the records of the step that were overwritten.
func (s Step) lost() (n int) {
	for _, r := range s.Records {
		n += r.Lost
	}
	return n
}

// lose overwrites the next records.
func (l *writer) lose(n int) {
	l.sequence += n
	l.step.Records = append(l.step.Records, Record{Lost: n})
}

// mix interleaves the lines of two dumps. The order within each dump is preserved.
func (l *writer) mix(a, b []line) (all []line) {
	for len(a) > 0 && len(b) > 0 {
		if l.Chance(50) {
			all, b = append(all, b[0]), b[1:]
		} else {
			all, a = append(all, a[0]), a[1:]
		}
	}
	return append(append(all, a...), b...)
}

// print logs a line of the kernel, and sometimes an unrelated line.
func (l *writer) print(line line, odd int) {
	if odd > 0 && l.Chance(5) {
		l.noise()
	}
	if line.lost > 0 {
		l.lose(line.lost)
		return
	}
	tail := ""
	if odd > 0 && l.Chance(5) {
		tail = " SUBSYSTEM=memory\n DEVICE=+memory:1\n"
	}
	priority := judge.Pick(l.Draw, 4, 3, 6)
	defer l.noted(line)
	if ends := parts(line.text); odd == 3 && len(ends) > 0 && l.Chance(20) {
		at := judge.Pick(l.Draw, ends...)
		l.step.Causes[torn] = true
		l.record(priority, "-", line.text[:at], "", line.pause)
		l.record(priority, "c", line.text[at:], tail, 0)
		return
	}
	l.record(priority, "-", line.text, tail, line.pause)
}

// noted records where a kill begins in the log: at the line that was just logged.
func (l *writer) noted(line line) {
	for i := range l.step.Kills {
		if k := &l.step.Kills[i]; line.begins != 0 && (k.PID == line.begins || k.Of == line.begins) {
			k.Sequence, k.At = l.sequence, l.at
		}
	}
}

// parts returns the offsets at which the kernel may split a line: it writes this line in
// several parts.
func parts(line string) (ends []int) {
	for _, next := range []string{",cpuset=", ",oom_memcg=/", ",global_oom", ",task_memcg=/", ",task="} {
		if at := strings.LastIndex(line, next); at > 0 && strings.HasPrefix(line, "oom-kill:") {
			ends = append(ends, at)
		}
	}
	return ends
}

func (l *writer) record(priority int, flags, text, tail string, after time.Duration) {
	l.sequence++
	l.at += time.Microsecond + after
	stamp := l.at - l.at*time.Duration(l.drift)/1e6
	l.step.Records = append(l.step.Records, Record{Pause: after, Text: fmt.Sprintf("%d,%d,%d,%s;%s\n%s", priority, l.sequence, stamp.Microseconds(), flags, text, tail)})
}

// kernelNoise logs a line of the kernel between dumps that resembles a kill but is not about
// one.
func (l *writer) kernelNoise() {
	l.record(4, "-", judge.Pick(l.Draw,
		"driver: Killed process 70001 (x) total-vm:1kB", "Killed process many (x) total-vm:1kB", "Killed process 70002",
		"Tasks in /x are going home", "Task in /x is ill", "driver: Kill process 70003 (x)", "driver: OOM victim 70004 (x) is ill",
		"oom-kill:constraint=CONSTRAINT_NONE", "oom-kill:constraint=CONSTRAINT_NONE,nodemask=0", "oom-kill:constraint=X,nodemask=0,global_oom,task_memcg=/,task=x",
		"oom-kill:constraint=X,nodemask=0,global_oom,task_memcg=/,task=x,pid=y,uid=0", "the disk is ill", "task /x killed as a result of limit of /y"), "", 0)
}

// noise logs a line that is not a kernel message about memory.
func (l *writer) noise() {
	switch l.Int(5) {
	case 0:
		l.record(6, "-", "eth0: link becomes ready", "", 0)
	case 1: // the record keeps its sequence number: a gap could hide an important record
		l.step.Records = append(l.step.Records, Record{Text: judge.Pick(l.Draw, "", "rubbish\n", "6;no header\n", "6,x,1,-;bad\n", "x,1,1,-;bad\n", "6,1,x,-;bad\n", "6,1,1,-", ",1,1,-;bad\n", "6,1")})
	case 2: // a program, which the kernel log marks as such
		l.record(30, "-", "systemd[1]: kubelet.service: A process of this unit has been killed by the OOM killer.", "", 0)
	case 3:
		l.record(6, "-", "oom_reaper: reaped process 9 (exe), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB", "", 0)
	default:
		l.step.Causes[imitation] = true
		pid := 90000 + l.sequence
		l.record(judge.Pick(l.Draw, 11, 8, 191), "-", "evil invoked oom-killer: gfp_mask=0x0, order=0, oom_score_adj=0", "", 0)
		if l.Chance(50) {
			l.record(11, "-", fmt.Sprintf("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/,task_memcg=/x,task=evil,pid=%d,uid=0", pid), "", 0)
		}
		l.record(11, "-", fmt.Sprintf("Out of memory: Killed process %d (evil) total-vm:1kB", pid), "", 0)
	}
}

// String describes a world.
func (w *World) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "drift %d, late %t, counters %t, known: %s\n", w.Drift, w.Late, w.Counts, w.Pod)
	for i, s := range w.Steps {
		fmt.Fprintf(&b, "step %d", i)
		if i == 0 && w.History {
			b.WriteString(", before the start")
		}
		fmt.Fprintf(&b, ": %v, %s before %d\n", s.Causes, s.Restart, s.At)
		for _, r := range s.Records {
			fmt.Fprintf(&b, "    %q", r.Text)
			if r.Pause > 0 || r.Lost > 0 {
				fmt.Fprintf(&b, " after %s, %d lost", r.Pause, r.Lost)
			}
			b.WriteString("\n")
		}
		for _, k := range s.Kills {
			fmt.Fprintf(&b, "  kills %+v\n", k)
		}
	}
	return b.String()
}
