package oomwatch

import (
	"strconv"
	"strings"
)

// Parts of the relevant lines of mm/oom_kill.c and mm/memcontrol.c, in the format of
// kernels since 5.3.
const (
	invokedLine  = " invoked oom-killer:"
	summaryLine  = "oom-kill:constraint="
	killedLine   = "Killed process "
	exitingLine  = ": OOM victim "
	groupLine    = " are going to be killed due to memory.oom.group set"
	noVictimLine = "Out of memory and no killable processes"
)

// parseSummary parses the line about the process that the kernel has chosen, and sets the
// fields of k. It returns false if the text is another line or is incomplete.
//
//	oom-kill:constraint=C,nodemask=N,cpuset=S,mems_allowed=M,oom_memcg=L,task_memcg=V,task=T,pid=P,uid=U
//
// A global kill has "global_oom" instead of oom_memcg. The names of processes and cgroups
// may contain commas, equals signs and text that looks like fields of this line. Therefore
// the line is parsed from both ends, and parsed again when the name of the process is
// known from the line about the death. In the first call, the given name is empty.
func (k *Kill) parseSummary(text, name string) bool {
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
	limit, victim := parseCgroups(head)
	if limit == "" {
		k.Kind, limit = System, "/"
	}
	k.LimitCgroup, k.VictimCgroup = unescape(limit), unescape(victim)
	return true
}

// parseCgroups returns the two paths in the head of a summary; limit is empty for a global
// kill. A container that may create cgroups chooses their names, and so determines the
// text after its own path. These names cannot mislead parseCgroups, because no name
// contains a slash, and the victim's path starts with the path of the cgroup whose limit was
// reached. The exception is a victim that is being moved to another cgroup.
func parseCgroups(head string) (limit, victim string) {
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
	limit, victim, _ = strings.Cut(paths, ofVictim) // the victim is being moved to another cgroup
	return limit, victim
}

// within reports whether a cgroup is equal to a parent cgroup or below it.
func within(cgroup, parent string) bool {
	rest, ok := strings.CutPrefix(cgroup, parent)
	return ok && (rest == "" || rest[0] == '/' || parent == "/")
}

// parseKilled parses the line about a death, and returns the kind of memory that was exhausted:
//
//	Memory cgroup out of memory: Killed process 97 (exe) total-vm:1257948kB, anon-rss:32356kB, file-rss:4kB, shmem-rss:1932kB, UID:0 pgtables:144kB oom_score_adj:0
//	Out of memory: Killed process 97 (exe) total-vm:...
//
// The name of the process is returned as in the line, with escapes.
func parseKilled(text string) (v Victim, memory Kind, ok bool) {
	before, text, _ := strings.Cut(text, killedLine)
	pid, text, ok := strings.Cut(text, " (")
	memory = memoryOf(before)
	if v.PID, _ = decimal(pid); v.PID == 0 || !ok || memory == "" {
		return v, "", false
	}
	v.Process, text = cutLast(text, " total-vm:") // a truncated line has no total-vm
	if end := strings.LastIndexByte(v.Process, ')'); end >= 0 {
		v.Process = v.Process[:end]
	}
	v.TotalVMBytes = numberAfter(text, "") << 10
	v.AnonRSSBytes = numberAfter(text, "anon-rss:") << 10
	v.FileRSSBytes = numberAfter(text, "file-rss:") << 10
	v.ShmemRSSBytes = numberAfter(text, "shmem-rss:") << 10
	v.PageTableBytes = numberAfter(text, "pgtables:") << 10
	v.UID = numberAfter(text, "UID:") // since 5.4
	v.OOMScoreAdj = int(numberAfter(text, "oom_score_adj:"))
	return v, memory, true
}

// memoryOf returns the kind of memory that was exhausted according to the start of a line,
// or "" if the line has no such start.
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

// parseExiting parses the line, since 5.9, about a chosen process that is already exiting:
//
//	Memory cgroup out of memory: OOM victim 111 (exe) is already exiting. Skip killing the task
func parseExiting(text string) (pid int, ok bool) {
	before, after, _ := strings.Cut(text, exitingLine)
	if memoryOf(before) == "" {
		return 0, false
	}
	return decimal(after)
}

// parseGroup parses the line that announces the kill of a whole cgroup.
func parseGroup(text string) (cgroup string, ok bool) {
	cgroup, ok = strings.CutPrefix(text, "Tasks in ")
	if !ok {
		return "", false
	}
	cgroup, ok = strings.CutSuffix(strings.TrimSpace(cgroup), groupLine)
	return unescape(cgroup), ok
}

// numberAfter returns the number after a name in a text, or zero if the text does not
// contain the name.
func numberAfter(figures, name string) int64 {
	_, after, _ := strings.Cut(figures, name)
	n, _ := decimal(after)
	return int64(n)
}

// decimal returns the number at the start of s.
func decimal(s string) (n int, ok bool) {
	n, err := strconv.Atoi(s[:len(s)-len(strings.TrimLeft(s, "-0123456789"))])
	return n, err == nil
}

// cutLast is like strings.Cut, but cuts at the last separator.
func cutLast(s, sep string) (before, after string) {
	at := strings.LastIndex(s, sep)
	if at < 0 {
		return s, ""
	}
	return s[:at], s[at+len(sep):]
}

// unescape reverses the escaping of backslashes and unprintable bytes in /dev/kmsg.
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
