package oomwatch

import (
	"strconv"
	"strings"
)

// The lines of mm/oom_kill.c and mm/memcontrol.c that matter, as kernels since 5.3 write
// them.
const (
	invokedLine = " invoked oom-killer:"
	summaryLine = "oom-kill:constraint="
	killedLine  = "Killed process "
	endingLine  = ": OOM victim "
	groupLine   = " are going to be killed due to memory.oom.group set"
	nobodyLine  = "Out of memory and no killable processes"
)

// summary reads the line about the process that the kernel has chosen into k, and reports
// whether it is one and complete.
//
//	oom-kill:constraint=C,nodemask=N,cpuset=S,mems_allowed=M,oom_memcg=L,task_memcg=V,task=T,pid=P,uid=U
//
// A global kill has "global_oom" in the place of oom_memcg. Processes and cgroups may have
// commas, equals signs and fields of this line in their names. So the line is read from
// both ends, and again when the line of the death has told the name of the process; until
// then that is empty.
func (k *Kill) summary(text, name string) bool {
	const field = ",task="
	at := strings.LastIndex(text, field+name+",pid=")
	if at < 0 {
		at = strings.Index(text, field)
	}
	if at < 0 || !strings.HasPrefix(text, summaryLine) {
		return false
	}
	task, uid := cutLast(text[at+len(field):], ",uid=")
	task, pid := cutLast(task, ",pid=")
	constraint, head, ok := strings.Cut(text[len(summaryLine):at], ",")
	number, isNumber := decimal(pid)
	if !ok || !isNumber {
		return false
	}
	user, _ := decimal(uid)
	k.Victim = Victim{PID: number, UID: int64(user), Process: unescape(task)}
	k.Kind, k.Constraint = Cgroup, constraint
	limit, victim := cgroups(head)
	if limit == "" {
		k.Kind, limit = System, "/"
	}
	k.LimitCgroup, k.VictimCgroup = unescape(limit), unescape(victim)
	return true
}

// cgroups returns the two paths of a summary; limit is empty in a global kill. A container
// that may make cgroups chooses their names, and with them whatever the line says after
// its own path. But a victim is always below the limit, and no name has a slash in it.
func cgroups(head string) (limit, victim string) {
	const ofLimit, ofVictim = ",oom_memcg=", ",task_memcg="
	_, paths, limited := strings.Cut(head, ofLimit+"/")
	if !limited {
		if _, path, ok := strings.Cut(head, ofVictim+"/"); ok {
			victim = "/" + path
		}
		return "", victim
	}
	paths = "/" + paths
	for at := 0; ; {
		next := strings.Index(paths[at:], ofVictim+"/")
		if next < 0 {
			break
		}
		limit, victim = paths[:at+next], paths[at+next+len(ofVictim):]
		if within(victim, limit) {
			return limit, victim
		}
		at += next + len(ofVictim)
	}
	limit, victim, _ = strings.Cut(paths, ofVictim) // the victim is being moved elsewhere
	return limit, victim
}

// within reports whether cgroup is parent or below it.
func within(cgroup, parent string) bool {
	rest, ok := strings.CutPrefix(cgroup, parent)
	return ok && (rest == "" || rest[0] == '/' || parent == "/")
}

// killed reads the line about a death, and whose memory had run out:
//
//	Memory cgroup out of memory: Killed process 97 (exe) total-vm:1257948kB, anon-rss:32356kB, file-rss:4kB, shmem-rss:1932kB, UID:0 pgtables:144kB oom_score_adj:0
//	Out of memory: Killed process 97 (exe) total-vm:...
//
// The name of the process is left as it is in the line.
func killed(text string) (v Victim, memory Kind, ok bool) {
	before, text, _ := strings.Cut(text, killedLine)
	pid, text, ok := strings.Cut(text, " (")
	memory = memoryOf(before)
	if v.PID, _ = decimal(pid); v.PID == 0 || !ok || memory == "" {
		return v, "", false
	}
	v.Process, text = cutLast(text, " total-vm:") // which the line lacks if it was cut short
	if end := strings.LastIndexByte(v.Process, ')'); end >= 0 {
		v.Process = v.Process[:end]
	}
	v.TotalVMBytes = figure(text, "") << 10
	v.AnonRSSBytes = figure(text, "anon-rss:") << 10
	v.FileRSSBytes = figure(text, "file-rss:") << 10
	v.ShmemRSSBytes = figure(text, "shmem-rss:") << 10
	v.PageTableBytes = figure(text, "pgtables:") << 10
	v.UID = figure(text, "UID:") // since 5.4
	v.OOMScoreAdj = int(figure(text, "oom_score_adj:"))
	return v, memory, true
}

// memoryOf returns whose memory had run out, by how the kernel's lines begin.
func memoryOf(text string) Kind {
	switch {
	case strings.HasPrefix(text, "Memory cgroup out of memory"):
		return Cgroup
	case strings.HasPrefix(text, "Out of memory"):
		return System
	default:
		return ""
	}
}

// ending reads the line, since 5.9, about a process that was chosen and is ending by itself:
//
//	Memory cgroup out of memory: OOM victim 111 (exe) is already exiting. Skip killing the task
func ending(text string) (pid int, ok bool) {
	before, after, _ := strings.Cut(text, endingLine)
	if memoryOf(before) == "" {
		return 0, false
	}
	return decimal(after)
}

// group reads the line that announces the death of a whole cgroup.
func group(text string) (cgroup string, ok bool) {
	cgroup, ok = strings.CutPrefix(text, "Tasks in ")
	if !ok {
		return "", false
	}
	cgroup, ok = strings.CutSuffix(strings.TrimSpace(cgroup), groupLine)
	return unescape(cgroup), ok
}

// figure returns the number after name in figures, zero if there is none.
func figure(figures, name string) int64 {
	_, after, _ := strings.Cut(figures, name)
	n, _ := decimal(after)
	return int64(n)
}

// decimal reads the number that s begins with.
func decimal(s string) (n int, ok bool) {
	n, err := strconv.Atoi(s[:len(s)-len(strings.TrimLeft(s, "-0123456789"))])
	return n, err == nil
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, sep string) (before, after string) {
	at := strings.LastIndex(s, sep)
	if at < 0 {
		return s, ""
	}
	return s[:at], s[at+len(sep):]
}

// unescape undoes what /dev/kmsg does to backslashes and to bytes that can't be printed.
func unescape(s string) string {
	parts := strings.Split(s, `\x`)
	for i, part := range parts[1:] {
		b, err := strconv.ParseUint(part[:min(len(part), 2)], 16, 8)
		if err == nil && len(part) >= 2 {
			parts[i+1] = string([]byte{byte(b)}) + part[2:]
		} else {
			parts[i+1] = `\x` + part
		}
	}
	return strings.Join(parts, "")
}
