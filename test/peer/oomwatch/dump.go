package oomwatch

import (
	"fmt"
	"path"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// An era is the age of a kernel.
type era int

const (
	since53  era = iota
	until52      // 5.0 to 5.2
	before50     // 4.x
)

const (
	podUID    = "8dd2e6c1-40d5-4b02-9a8f-4c3f2d7f9c11"
	container = "62be0a1c2d3e4f506172839405162738495a6b7c8d9e0f1a2b3c4d5e6f708192"
)

// process draws a process. It returns its name as it is and as the log has it.
func (l *writer) process(odd int) (pid int, name, escaped string) {
	l.pid += l.Between(1, 9)
	if odd == 0 {
		return l.pid, "exe", "exe"
	}
	name = judge.Pick(l.Draw, "exe", "java", "a b", "x)", "(y)", "a) (b", "n,pid=7", "z,uid=3", "m,task=q", "u\xffv", "t\tw", `b\x`, "Killed process")
	if strings.Contains(name, "task=") {
		l.step.Causes[taskInName] = true
	}
	return l.pid, name, escape(name)
}

// escape does what the kernel does with bytes that can't be printed.
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

// cgroups draws the victim's cgroup and the one whose limit was reached.
func (l *writer) cgroups(odd int) (victim, limit string) {
	victim = judge.Pick(l.Draw,
		"/kubepods/burstable/pod"+podUID+"/"+container,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"+strings.ReplaceAll(podUID, "-", "_")+".slice/cri-containerd-"+container+".scope",
		"/system.slice/foo.service",
		"/docker/"+container)
	limit = victim
	if l.Chance(40) {
		limit = path.Dir(victim)
	}
	if odd > 1 && l.Chance(15) {
		within := judge.Pick(l.Draw, "init.scope", "a b", "a,b=c", "ü", ",task_memcg=", "x,task=y", "killed as a result of limit of z")
		if strings.Contains(within, "task") || strings.Contains(within, "limit of") {
			l.step.Causes[pathLikeLine] = true
		}
		victim += "/" + within
	}
	return victim, limit
}

// dump draws the lines of one kill.
func (l *writer) dump(odd int) (lines []string) {
	e := l.era
	pid, name, escaped := l.process(odd)
	k := Kill{PID: pid, Process: name, Escaped: escaped}
	k.Machine = l.Chance(40)
	k.Victim, k.Limit = l.cgroups(odd)
	k.Constraint = "CONSTRAINT_MEMCG"
	if k.Machine {
		k.Limit, k.Constraint = "/", judge.Pick(l.Draw, "CONSTRAINT_NONE", "CONSTRAINT_CPUSET", "CONSTRAINT_MEMORY_POLICY")
	}
	if odd > 1 && l.Chance(10) {
		return l.withoutDump(e, k)
	}
	lines = append(lines, l.head(escaped)...)
	nobody := odd > 1 && l.Chance(8)
	switch {
	case nobody && e == until52: // nobody was chosen
	case e != before50:
		if k.Machine {
			l.step.Causes[globalSince5] = true
		}
		lines = append(lines, l.summary(k, odd))
	case k.Machine:
		k.Victim, k.Constraint = "", ""
	default:
		lines = append(lines, fmt.Sprintf("Task in %s killed as a result of limit of %s", escape(k.Victim), escape(k.Limit)))
	}
	lines = append(lines, "memory: usage 102400kB, limit 102400kB, failcnt 1", fmt.Sprintf("[%7d]     0 %5d      253      102    36864        0             0 %s", pid, pid, escaped))
	if nobody {
		return append(lines, l.nobody(e, k)...)
	}
	if e != since53 {
		lines = append(lines, fmt.Sprintf("%s: Kill process %d (%s) score 1954 or sacrifice child", k.reason(), pid, escaped))
	}
	if odd > 1 && e != since53 && l.Chance(10) {
		// A child dies instead.
		l.step.Causes[child] = true
		k.PID, k.Process, k.Escaped = l.process(odd)
	}
	lines = append(lines, l.death(e, k))
	l.kill(k)
	if e == since53 && odd > 1 && !strings.Contains(k.Victim, ",task=") && l.Chance(20) {
		lines = append(lines, l.others(k)...)
	}
	return append(lines, fmt.Sprintf("oom_reaper: reaped process %d (%s), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB", pid, escaped))
}

// kill notes a kill.
func (l *writer) kill(k Kill) {
	if k.Machine && k.Of == 0 {
		k.Told = strings.Map(printable, k.Process)
	}
	l.step.Kills = append(l.step.Kills, k)
}

// printable replaces what can't be printed: here, that is all that is escaped.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return '\uFFFD'
	}
	return r
}

func (l *writer) head(escaped string) []string {
	return []string{
		fmt.Sprintf("%s invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=%d", escaped, judge.Pick(l.Draw, 0, -998, 1000)),
		"CPU: 1 PID: 12 Comm: exe Not tainted 6.1.0 #1",
		"Call Trace:",
	}
}

func (l *writer) summary(k Kill, odd int) string {
	limit := "oom_memcg=" + escape(k.Limit)
	if k.Machine {
		limit = "global_oom"
	}
	user := ",uid=" + judge.Pick(l.Draw, "0", "1000", "4294967294")
	if odd > 1 && !strings.Contains(k.Process, "uid=") && l.Chance(4) {
		l.step.Causes[noUser] = true
		user = ""
	}
	return fmt.Sprintf("oom-kill:constraint=%s,nodemask=%s,cpuset=%s,mems_allowed=%s,%s,task_memcg=%s,task=%s,pid=%d%s",
		k.Constraint, judge.Pick(l.Draw, "(null)", "0", "0-1"), judge.Pick(l.Draw, "/", container), judge.Pick(l.Draw, "0", "0-1", "0,2"),
		limit, escape(k.Victim), k.Escaped, k.PID, user)
}

// reason is how the line of a death begins.
func (k Kill) reason() string {
	if k.Machine {
		return "Out of memory"
	}
	return "Memory cgroup out of memory"
}

func (l *writer) death(e era, k Kill) string {
	size := l.Between(1, 1<<30)
	line := fmt.Sprintf("Killed process %d (%s) total-vm:%dkB, anon-rss:%dkB, file-rss:4kB, shmem-rss:0kB", k.PID, k.Escaped, size, size/2)
	if e == since53 {
		line = fmt.Sprintf("%s: %s, UID:%d pgtables:144kB oom_score_adj:%d", k.reason(), line, l.Int(2)*1000, judge.Pick(l.Draw, 0, -998, 1000))
	}
	return line
}

// withoutDump draws a kill of which the kernel left out the dump, as there were too
// many of them.
func (l *writer) withoutDump(e era, k Kill) (lines []string) {
	l.step.Causes[noDump] = true
	k.Victim, k.Limit = "", ""
	if k.Machine {
		k.Limit, k.Constraint = "/", ""
	}
	if e != since53 {
		lines = append(lines, fmt.Sprintf("%s: Kill process %d (%s) score 1954 or sacrifice child", k.reason(), k.PID, k.Escaped))
	}
	l.kill(k)
	return append(lines, l.death(e, k))
}

// nobody draws the end of a dump after which nobody is killed.
func (l *writer) nobody(e era, k Kill) []string {
	l.step.Causes[noDeath] = true
	if e == since53 {
		return []string{fmt.Sprintf("%s: OOM victim %d (%s) is already exiting. Skip killing the task", k.reason(), k.PID, k.Escaped)}
	}
	return []string{"Out of memory and no killable processes..."}
}

// others draws the deaths of the other processes of a group. The chosen one is
// killed once more.
func (l *writer) others(k Kill) (lines []string) {
	l.step.Causes[wholeGroup] = true
	lines = append(lines, fmt.Sprintf("Tasks in %s are going to be killed due to memory.oom.group set", escape(k.Victim)))
	for range l.Between(1, 3) {
		other := k
		other.PID, other.Process, other.Escaped = l.process(1)
		other.Of = k.PID
		lines = append(lines, l.death(since53, other))
		l.kill(other)
	}
	if l.Chance(70) {
		lines = append(lines, l.death(since53, k))
	}
	return lines
}
