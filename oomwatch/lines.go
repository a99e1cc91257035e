package oomwatch

import (
	"bytes"
	"strconv"
)

// The lines of the kernel's mm/oom_kill.c and mm/memcontrol.c that matter. All of
// them, and few others, have "ill" in them, which is fast to look for.
const (
	anyLine     = "ill"
	invokedLine = " invoked oom-killer:"
	summaryLine = "oom-kill:constraint="
	killedLine  = "Killed process "
	groupLine   = " are going to be killed due to memory.oom.group set"
	legacyLine  = " killed as a result of limit of "
	nobodyLine  = "Out of memory and no killable processes"
)

// summary is the line of kernels since 5.0.
//
//	oom-kill:constraint=C,nodemask=N,cpuset=S,mems_allowed=M,oom_memcg=L,task_memcg=V,task=T,pid=P,uid=U
//
// A global kill has "global_oom" in the place of oom_memcg. The name of a process
// may hold commas and equals signs, so the line is read from both ends.
func summary(text []byte) (Kill, bool) {
	text, ok := bytes.CutPrefix(text, []byte(summaryLine))
	if !ok {
		return Kill{}, false
	}
	constraint, text, ok := bytes.Cut(text, []byte(","))
	if !ok {
		return Kill{}, false
	}
	head, task, ok := bytes.Cut(text, []byte(",task="))
	if !ok {
		return Kill{}, false
	}
	task, uid, _ := cutLast(task, ",uid=") // missing before 5.0's first stable releases
	name, pid, ok := cutLast(task, ",pid=")
	if !ok {
		return Kill{}, false
	}
	k := Kill{Kind: Cgroup, Constraint: constraintName(constraint)}
	k.PID, ok = decimal(pid)
	if !ok {
		return Kill{}, false
	}
	user, _ := decimal(uid)
	k.UID, k.Process = int64(user), unescape(name)
	head, victim, _ := bytes.Cut(head, []byte(",task_memcg="))
	_, limit, limited := bytes.Cut(head, []byte(",oom_memcg="))
	k.VictimCgroup = string(victim)
	switch {
	case !limited:
		k.Kind, k.LimitCgroup = System, "/"
	case bytes.Equal(limit, victim):
		k.LimitCgroup = k.VictimCgroup
	default:
		k.LimitCgroup = string(limit)
	}
	return k, true
}

// constraintName returns the constant where there is one, which costs nothing.
func constraintName(b []byte) string {
	for _, known := range [...]string{ConstraintMemcg, ConstraintNone, ConstraintCpuset, ConstraintMemoryPolicy} {
		if string(b) == known {
			return known
		}
	}
	return string(b)
}

// killed is the line that tells of a death, of all kernels:
//
//	Killed process 97 (exe) total-vm:1257948kB, anon-rss:32356kB, file-rss:4kB, shmem-rss:1932kB, UID:0 pgtables:144kB oom_score_adj:0
//	Memory cgroup out of memory: Killed process 97 (exe) total-vm:...
//	Killed process 97 (exe), UID 1000, total-vm:...
//
// Memory says whose: System or Cgroup, empty before 5.3, which have it in a line of
// their own. The victim's name comes as it is in the line.
func killed(text []byte) (v Victim, name []byte, memory Kind, ok bool) {
	before, text, ok := bytes.Cut(text, []byte(killedLine))
	if !ok {
		return v, nil, "", false
	}
	pid, text, ok := bytes.Cut(text, []byte(" ("))
	if !ok {
		return v, nil, "", false
	}
	if v.PID, ok = decimal(pid); !ok {
		return v, nil, "", false
	}
	name, figures, found := cutLast(text, " total-vm:")
	if !found {
		name, figures = text, nil // cut short
	}
	if end := bytes.LastIndexByte(name, ')'); end >= 0 {
		name = name[:end]
	}
	v.TotalVMBytes = kilobytes(figures, "")
	v.AnonRSSBytes = kilobytes(figures, "anon-rss:")
	v.FileRSSBytes = kilobytes(figures, "file-rss:")
	v.ShmemRSSBytes = kilobytes(figures, "shmem-rss:")
	v.PageTableBytes = kilobytes(figures, "pgtables:")
	v.UID = int64(max(figure(figures, "UID:"), figure(text, "), UID ")))
	v.OOMScoreAdj = figure(figures, "oom_score_adj:")
	switch {
	case bytes.HasPrefix(before, []byte("Memory cgroup out of memory")):
		memory = Cgroup
	case bytes.HasPrefix(before, []byte("Out of memory")):
		memory = System
	}
	return v, name, memory, true
}

// legacy is the line of kernels before 5.0: "Task in V killed as a result of
// limit of L".
func legacy(text []byte) (Kill, bool) {
	text, ok := bytes.CutPrefix(text, []byte("Task in "))
	if !ok {
		return Kill{}, false
	}
	victim, limit, ok := bytes.Cut(text, []byte(legacyLine))
	if !ok {
		return Kill{}, false
	}
	return Kill{
		Kind: Cgroup, Constraint: ConstraintMemcg,
		VictimCgroup: string(victim), LimitCgroup: string(bytes.TrimSpace(limit)),
	}, true
}

// group is the line that announces the death of a whole cgroup.
func group(text []byte) (cgroup []byte, ok bool) {
	text, ok = bytes.CutPrefix(text, []byte("Tasks in "))
	if !ok {
		return nil, false
	}
	return bytes.CutSuffix(bytes.TrimSpace(text), []byte(groupLine))
}

// figure returns the number after name in figures, zero if there is none.
func figure(figures []byte, name string) int {
	at := bytes.Index(figures, []byte(name))
	if at < 0 {
		return 0
	}
	n, _ := decimal(figures[at+len(name):])
	return n
}

func kilobytes(figures []byte, name string) int64 { return int64(figure(figures, name)) << 10 }

// decimal reads the number that b begins with.
func decimal(b []byte) (n int, ok bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	for i, c := range b {
		if c < '0' || '9' < c || i == 17 {
			break
		}
		n, ok = 10*n+int(c-'0'), true
	}
	if negative {
		n = -n
	}
	return n, ok
}

func cutLast(b []byte, sep string) (before, after []byte, found bool) {
	at := bytes.LastIndex(b, []byte(sep))
	if at < 0 {
		return b, nil, false
	}
	return b[:at], b[at+len(sep):], true
}

// unescape undoes what /dev/kmsg does to bytes that can't be printed.
func unescape(b []byte) string {
	if !bytes.Contains(b, []byte(`\x`)) {
		return string(b)
	}
	var plain []byte
	for len(b) > 0 {
		if len(b) >= 4 && b[0] == '\\' && b[1] == 'x' {
			if c, err := strconv.ParseUint(string(b[2:4]), 16, 8); err == nil {
				plain, b = append(plain, byte(c)), b[4:]
				continue
			}
		}
		plain, b = append(plain, b[0]), b[1:]
	}
	return string(plain)
}
