package oomwatch

import (
	"bytes"
	"slices"
	"strconv"
)

// The lines of the kernel's mm/oom_kill.c and mm/memcontrol.c that matter. All of
// them, and few others, have "ill" in them, which is fast to look for.
const (
	anyLine     = "ill"
	invokedLine = " invoked oom-killer:"
	summaryLine = "oom-kill:constraint="
	choiceLine  = ": Kill process "
	killedLine  = "Killed process "
	endingLine  = ": OOM victim "
	groupLine   = " are going to be killed due to memory.oom.group set"
	taskLine    = "Task in "
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
	at := bytes.Index(text, []byte(taskField))
	if at < 0 {
		return Kill{}, false
	}
	return summaryAt(text, at)
}

// taskField is before the name of the process. A cgroup may have it in its name as well.
const taskField = ",task="

// summaryOf is summary, if the name of the process is known from another line.
func summaryOf(text, name []byte) (Kill, bool) {
	at := bytes.LastIndex(text, slices.Concat([]byte(taskField), name, []byte(",pid=")))
	if at < 0 {
		return Kill{}, false
	}
	return summaryAt(text, at)
}

// summaryAt is summary, where the name of the process begins after the field at that place.
func summaryAt(text []byte, at int) (Kill, bool) {
	task := text[at+len(taskField):]
	text, ok := bytes.CutPrefix(text[:at], []byte(summaryLine))
	if !ok {
		return Kill{}, false
	}
	constraint, head, ok := bytes.Cut(text, []byte(","))
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
	limit, victim, limited := cgroups(head)
	k.VictimCgroup = unescape(victim)
	switch {
	case !limited:
		k.Kind, k.LimitCgroup = System, "/"
	case bytes.Equal(limit, victim):
		k.LimitCgroup = k.VictimCgroup
	default:
		k.LimitCgroup = unescape(limit)
	}
	return k, true
}

// cgroups returns the two paths of a summary. A container that may make cgroups
// chooses their names, and with them whatever the line says after its own path. But
// a victim is always below the limit, and no name has a slash in it.
func cgroups(head []byte) (limit, victim []byte, limited bool) {
	const ofLimit, ofVictim = ",oom_memcg=/", ",task_memcg=/"
	_, rest, limited := bytes.Cut(head, []byte(ofLimit))
	if !limited {
		if at := bytes.Index(head, []byte(ofVictim)); at >= 0 {
			victim = head[at+len(ofVictim)-1:]
		}
		return nil, victim, false
	}
	rest = head[len(head)-len(rest)-1:]
	for at := 0; ; {
		next := bytes.Index(rest[at:], []byte(ofVictim))
		if next < 0 {
			break
		}
		at += next + len(ofVictim) - 1
		limit, victim = rest[:at-len(ofVictim)+1], rest[at:]
		if within(victim, limit) {
			return limit, victim, true
		}
	}
	// The victim was cut off, or is being moved elsewhere.
	limit, victim, _ = bytes.Cut(rest, []byte(ofVictim[:len(ofVictim)-1]))
	return limit, victim, true
}

// within says whether cgroup is parent or below it.
func within(cgroup, parent []byte) bool {
	rest, ok := bytes.CutPrefix(cgroup, parent)
	return ok && (len(rest) == 0 || rest[0] == '/' || len(parent) == 1)
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
// Memory says whose: System or Cgroup, empty before 5.3, which have it in the line
// before. The victim's name comes as it is in the line.
func killed(text []byte) (v Victim, name []byte, memory Kind, ok bool) {
	before, text, ok := bytes.Cut(text, []byte(killedLine))
	if !ok {
		return v, nil, "", false
	}
	if memory = memoryOf(before); memory == "" && len(before) > 0 {
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
	var user []byte
	if end := bytes.LastIndexByte(name, ')'); end >= 0 {
		name, user = name[:end], name[end:]
	}
	v.TotalVMBytes = kilobytes(figures, "")
	v.AnonRSSBytes = kilobytes(figures, "anon-rss:")
	v.FileRSSBytes = kilobytes(figures, "file-rss:")
	v.ShmemRSSBytes = kilobytes(figures, "shmem-rss:")
	v.PageTableBytes = kilobytes(figures, "pgtables:")
	v.UID = int64(max(figure(figures, "UID:"), figure(user, "), UID ")))
	v.OOMScoreAdj = figure(figures, "oom_score_adj:")
	return v, name, memory, true
}

// memoryOf says what ran out, by how the kernel's lines begin.
func memoryOf(text []byte) Kind {
	switch {
	case bytes.HasPrefix(text, []byte("Memory cgroup out of memory")):
		return Cgroup
	case bytes.HasPrefix(text, []byte("Out of memory")):
		return System
	default:
		return ""
	}
}

// choice is the line of kernels before 5.3 that has what the line of the death does
// not say. Before 5.1 the death may be that of a child of the chosen process.
//
//	Memory cgroup out of memory: Kill process 4242 (stress) score 1954 or sacrifice child
//
// The name comes as it is in the line.
func choice(text []byte) (pid int, name []byte, memory Kind) {
	before, after, ok := bytes.Cut(text, []byte(choiceLine))
	if !ok || memoryOf(before) == "" {
		return 0, nil, ""
	}
	pid, _ = decimal(after)
	if _, name, ok = bytes.Cut(after, []byte(" (")); ok {
		name, _, _ = cutLast(name, ") score ")
	}
	return pid, name, memoryOf(before)
}

// ending is the line, since 5.9, of a process that was chosen and is ending by itself:
//
//	Memory cgroup out of memory: OOM victim 111 (exe) is already exiting. Skip killing the task
func ending(text []byte) (pid int, ok bool) {
	before, after, ok := bytes.Cut(text, []byte(endingLine))
	if !ok || memoryOf(before) == "" {
		return 0, false
	}
	return decimal(after)
}

// legacy is the line of kernels before 5.0: "Task in V killed as a result of
// limit of L".
func legacy(text []byte) (Kill, bool) {
	text, ok := bytes.CutPrefix(text, []byte(taskLine))
	if !ok {
		return Kill{}, false
	}
	victim, limit, ok := bytes.Cut(text, []byte(legacyLine))
	if limit = bytes.TrimSpace(limit); !ok || len(limit) == 0 {
		return Kill{}, false
	}
	return Kill{
		Kind: Cgroup, Constraint: ConstraintMemcg,
		VictimCgroup: unescape(victim), LimitCgroup: unescape(limit),
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
