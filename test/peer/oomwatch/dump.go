package oomwatch

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const (
	podUID    = "8dd2e6c1-40d5-4b02-9a8f-4c3f2d7f9c11"
	container = "62be0a1c2d3e4f506172839405162738495a6b7c8d9e0f1a2b3c4d5e6f708192"
)

// A line is a line that the kernel logs.
type line struct {
	text string
	// pause is the time before the line: the kernel writes to a slow console.
	pause time.Duration
	// begins is the process whose kill begins with this line, if it begins one.
	begins int
	// lost is the number of overwritten records. If it is set, there is no line.
	lost int
}

// process draws a process. It returns the name and its escaped form in the log.
func (l *writer) process(odd int) (pid int, name, escaped string) {
	l.pid += l.Between(1, 9)
	if odd == 0 {
		return l.pid, "exe", "exe"
	}
	name = judge.Pick(l.Draw, "exe", "java", "a b", "x)", "(y)", "a) (b", "n,pid=7", "z,uid=3", "m,task=q", "u\xffv", "t\tw", `b\x`, "Killed process", "")
	if strings.Contains(name, "task=") {
		l.step.Causes[taskInName] = true
	}
	if name == "" {
		l.step.Causes[noName] = true
	}
	return l.pid, name, escape(name)
}

// escape escapes unprintable bytes as the kernel does.
func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '\\' {
			fmt.Fprintf(&b, `\x%02x`, c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// cgroups draws the victim's cgroup and the cgroup whose limit was reached.
func (l *writer) cgroups(odd int) (victim, limit string) {
	victim = judge.Pick(l.Draw,
		"/kubepods/burstable/pod"+podUID+"/"+container,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"+strings.ReplaceAll(podUID, "-", "_")+".slice/cri-containerd-"+container+".scope",
		"/system.slice/foo.service",
		"/docker/"+container)
	limit = victim
	if l.Chance(40) {
		limit = path.Dir(victim)
		if l.Chance(30) {
			limit = path.Dir(path.Dir(limit))
		}
	}
	if odd > 1 && l.Chance(15) {
		within := judge.Pick(l.Draw, "init.scope", "a b", "a,b=c", "ü", ",task_memcg=", "x,task=y", "killed as a result of limit of z")
		if strings.Contains(within, "task") || strings.Contains(within, "limit of") {
			l.step.Causes[pathLikeLine] = true
		}
		victim += "/" + within
	}
	if odd > 1 && !strings.Contains(victim, ",") && l.Chance(6) { // a nested cgroup that the container has created
		l.step.Causes[pathLikeLine] = true
		limit = victim + "/x,task_memcg=/y"
		victim = limit + judge.Pick(l.Draw, "/z", "", "/z,task_memcg=/y")
	}
	if odd > 1 && l.Chance(4) {
		limit = "/elsewhere" // the victim is being moved to another cgroup
	}
	return victim, limit
}

// dump draws the lines of one kill.
func (l *writer) dump(odd int) (lines []line) {
	pid, name, escaped := l.process(odd)
	k := Kill{PID: pid, Process: name, Escaped: escaped, Number: 1, Kind: "cgroup"}
	k.Machine = l.Chance(40)
	k.Victim, k.Limit = l.cgroups(odd)
	k.Constraint = "CONSTRAINT_MEMCG"
	if k.Machine {
		k.Limit, k.Constraint = "/", judge.Pick(l.Draw, "CONSTRAINT_NONE", "CONSTRAINT_CPUSET", "CONSTRAINT_MEMORY_POLICY", "CONSTRAINT_NEWER")
		k.Kind = "system"
	}
	// A kill right after a group kill looks like the kill of a group member. It differs only
	// if one kill is because of a cgroup's limit and the other because the machine is out of
	// memory.
	told := !l.step.Causes[wholeGroup] || k.Machine != l.step.Kills[len(l.step.Kills)-1].Machine
	if odd > 1 && !l.step.Causes[noDeath] && told && l.Chance(15) {
		return l.withoutDump(k)
	}
	if odd > 1 && !l.step.Causes[noDump] && !l.step.Causes[wholeGroup] && !l.step.Causes[lost] && !l.step.Causes[noDeath] && l.at > first && l.step.Restart != reboots && l.Chance(5) {
		return l.withoutChosen(k)
	}
	lines = append(lines, l.head(escaped)...)
	nobody := odd > 1 && l.Chance(8)
	if nobody && l.Chance(30) { // the kernel chose no process
		l.step.Causes[noDeath] = true
		l.step.Nobody++
		return append(lines, line{text: "Out of memory and no killable processes..."})
	}
	lines = append(lines, line{text: l.summary(&k), begins: pid})
	add := func(text string) { lines = append(lines, line{text: text}) }
	add("memory: usage 102400kB, limit 102400kB, failcnt 1")
	add(fmt.Sprintf("[%7d]     0 %5d      253      102    36864        0             0 %s", pid, pid, escaped))
	if nobody {
		return append(lines, l.nobody(k)...)
	}
	if odd > 1 && !l.step.Causes[noDeath] && l.Chance(6) {
		lines = append(lines, line{lost: l.Between(1, 20)})
		l.step.Causes[lost] = true
		if l.Chance(50) && (!strings.Contains(k.Victim, ",task=") || name == "") { // only the line of the death exists, so nothing more is known of the victim
			l.kill(k)
			return append(lines, line{text: "eth0: link becomes ready"})
		}
	}
	death := line{text: l.death(&k, odd)}
	if odd > 1 && l.Chance(10) {
		death.pause = judge.Pick(l.Draw, 50*time.Millisecond, 2*time.Second)
		k.Wait = death.pause
	}
	lines = append(lines, death)
	if odd > 1 && !strings.Contains(k.Victim, ",task=") && l.Chance(20) {
		return append(lines, l.others(k)...)
	}
	l.kill(k)
	add(fmt.Sprintf("oom_reaper: reaped process %d (%s), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB", pid, escaped))
	return lines
}

// kill records a kill.
func (l *writer) kill(k Kill) { l.step.Kills = append(l.step.Kills, k) }

func (l *writer) head(escaped string) (lines []line) {
	for _, text := range []string{
		fmt.Sprintf("%s invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=%d", escaped, judge.Pick(l.Draw, 0, -998, 1000)),
		"CPU: 1 PID: 12 Comm: exe Not tainted 6.1.0 #1",
		"Call Trace:",
	} {
		lines = append(lines, line{text: text})
	}
	return lines
}

func (l *writer) summary(k *Kill) string {
	limit := "oom_memcg=" + escape(k.Limit)
	if k.Machine {
		limit = "global_oom"
	}
	k.Figures.User = judge.Pick(l.Draw, 0, 1000, 4294967294)
	return fmt.Sprintf("oom-kill:constraint=%s,nodemask=%s,cpuset=%s,mems_allowed=%s,%s,task_memcg=%s,task=%s,pid=%d,uid=%d",
		k.Constraint, judge.Pick(l.Draw, "(null)", "0", "0-1"), judge.Pick(l.Draw, "/", container), judge.Pick(l.Draw, "0", "0-1", "0,2"),
		limit, escape(k.Victim), k.Escaped, k.PID, k.Figures.User)
}

// reason returns the beginning of the line of a death.
func (k Kill) reason() string {
	if k.Machine {
		return "Out of memory"
	}
	return "Memory cgroup out of memory"
}

// death draws the line of a death.
func (l *writer) death(k *Kill, odd int) string {
	f, user := &k.Figures, k.Figures.User
	f.Total, f.Anon, f.File, f.Shmem = l.Between(1, 1<<30), l.Int(1<<29), judge.Pick(l.Draw, 4, 0, 123456), judge.Pick(l.Draw, 0, 8)
	f.Pages, f.Adjusted = 0, 0
	head := fmt.Sprintf("Killed process %d (%s)", k.PID, k.Escaped)
	sizes := fmt.Sprintf("total-vm:%dkB, anon-rss:%dkB, file-rss:%dkB, shmem-rss:%dkB", f.Total, f.Anon, f.File, f.Shmem)
	if user == 0 {
		user = judge.Pick(l.Draw, 0, 1000)
	}
	if odd > 1 && l.Chance(10) { // the line is truncated
		f.Total, f.Anon, f.File, f.Shmem = 0, 0, 0, 0
		return k.reason() + ": " + head
	}
	f.User, f.Pages, f.Adjusted = user, judge.Pick(l.Draw, 144, 0), judge.Pick(l.Draw, 0, -998, 1000)
	return fmt.Sprintf("%s: %s %s, UID:%d pgtables:%dkB oom_score_adj:%d", k.reason(), head, sizes, user, f.Pages, f.Adjusted)
}

// withoutDump draws a kill whose dump the kernel omitted because of its rate limit.
func (l *writer) withoutDump(k Kill) (lines []line) {
	l.step.Causes[noDump] = true
	k.Victim, k.Limit = "", ""
	if k.Machine {
		k.Limit, k.Constraint = "/", ""
	}
	lines = append(lines, line{text: l.death(&k, 0), begins: k.PID})
	l.kill(k)
	return lines
}

// nobody draws the end of a dump without a kill.
func (l *writer) nobody(k Kill) []line {
	l.step.Causes[noDeath] = true
	l.step.Nobody++
	switch {
	case l.Chance(30): // the kernel logs nothing, and then kills for another reason
		l.pid++
		other := Kill{PID: l.pid, Process: "exe", Escaped: "exe", Number: 1, Kind: "cgroup", Constraint: "CONSTRAINT_MEMCG", Machine: !k.Machine}
		if other.Machine {
			other.Kind = "system"
		}
		return l.withoutDump(other)
	case l.step.Nobody == 1 && l.Chance(20):
		l.step.Causes[lost] = true
		return append([]line{{lost: l.Between(1, 9)}}, l.ending(k))
	}
	return []line{l.ending(k)}
}

// ending returns the line of a chosen process that is already exiting.
func (l *writer) ending(k Kill) line {
	return line{text: fmt.Sprintf("%s: OOM victim %d (%s) is already exiting. Skip killing the task", k.reason(), k.PID, k.Escaped)}
}

// withoutChosen draws a group kill whose records up to the announcement were overwritten.
func (l *writer) withoutChosen(k Kill) []line {
	k.Victim, k.Limit, k.Constraint, k.Machine = "/other.slice/group", "", "CONSTRAINT_MEMCG", false
	before := len(l.step.Kills)
	lines := l.others(k)
	l.step.Causes[lost] = true
	lines[0].pause = 0
	// The chosen process is unknown, and our report begins here.
	var members []Kill
	for _, m := range l.step.Kills[before:] {
		if m.PID != k.PID {
			members = append(members, m)
		}
	}
	lines = slices.DeleteFunc(lines, func(d line) bool { return strings.Contains(d.text, fmt.Sprintf("Killed process %d (", k.PID)) })
	for i := range members {
		m := &members[i]
		m.Kind, m.Number, m.Limit, m.Of, m.Again = "group", len(members), "", members[0].PID, false
		if i == 0 {
			m.Of = 0
		}
	}
	l.step.Kills = append(l.step.Kills[:before], members...)
	lines[0].begins = members[0].PID
	return append([]line{{lost: l.Between(1, 50)}}, lines...)
}

// others draws the kills of the other processes of a group. The kernel kills the chosen
// process a second time.
func (l *writer) others(k Kill) (lines []line) {
	l.step.Causes[wholeGroup] = true
	announced := line{text: fmt.Sprintf("Tasks in %s are going to be killed due to memory.oom.group set", escape(k.Victim))}
	group := []Kill{k}
	for range l.Between(1, 3) {
		other := k
		other.PID, other.Process, other.Escaped = l.process(1)
		if other.Process == "" { // the event would not name the process
			other.Process, other.Escaped = "exe", "exe"
		}
		other.Of = k.PID
		other.Figures.User = 0
		lines = append(lines, line{text: l.death(&other, 0)})
		group = append(group, other)
	}
	group[0].Again = l.Chance(70)
	if group[0].Again {
		again := k
		lines = append(lines, line{text: l.death(&again, 0)})
	}
	if announced.pause = judge.Pick(l.Draw, 0, 0, 50*time.Millisecond, 2*time.Second); announced.pause > time.Second {
		// The kill of the chosen process is reported by now.
		l.kill(group[0])
		announced.begins = group[1].PID
		group = group[1:]
		group[0].Of = 0
		for i := range group {
			group[i].Limit, group[i].Constraint = "", "CONSTRAINT_MEMCG"
			if i > 0 {
				group[i].Of = group[0].PID
			}
		}
	}
	for i := range group {
		group[i].Kind, group[i].Number = "group", len(group)
		l.kill(group[i])
	}
	return append([]line{announced}, lines...)
}
