package oomwatch

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// figures are the log's figures about a process. Sizes are in KiB.
type figures struct{ User, Total, Anon, File, Shmem, Pages, Adjusted int }

// plain returns a log of the same kills that the kubelet's parser reads correctly: each kill
// has a separate dump in the form that the parser supports.
func (s Step) plain() (records []Record) {
	add := func(k Kill, format string, args ...any) {
		records = append(records, Record{Text: fmt.Sprintf("4,1,%d,-;%s\n", k.At.Microseconds(), fmt.Sprintf(format, args...))})
	}
	for _, k := range s.Kills {
		add(k, "x invoked oom-killer: gfp_mask=0x0, order=0, oom_score_adj=0")
		add(k, "oom-kill:constraint=%s,nodemask=0,cpuset=/,mems_allowed=0,oom_memcg=%s,task_memcg=%s,task=%s,pid=%d,uid=0",
			k.Constraint, hidden(k.Limit), hidden(k.Victim), hidden(k.Process), k.PID)
	}
	return records
}

// hidden escapes all characters of a text that could confuse a regular expression.
func hidden(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || strings.IndexByte(`\,=()`, c) >= 0 {
			fmt.Fprintf(&b, `\x%02x`, c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// shown undoes hidden.
func shown(s string) string {
	parts := strings.Split(s, `\x`)
	for i, p := range parts[1:] {
		if c, err := strconv.ParseUint(p[:min(2, len(p))], 16, 8); err == nil && len(p) >= 2 {
			parts[i+1] = string([]byte{byte(c)}) + p[2:]
		}
	}
	return strings.Join(parts, "")
}

// printable replaces unprintable characters. In this test these are all escaped characters.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return '\uFFFD'
	}
	return r
}

// plainly is the prefix of facts that compare our report with the kubelet's report about the
// plain log.
const plainly = "plainly "

// addPlain adds the kubelet's report about the plain log, without the events about other
// members of a group.
func (s Step) addPlain(f, told judge.Facts) {
	members := map[string]bool{}
	for _, k := range s.Kills {
		members["event about "+strconv.Itoa(k.PID)] = k.Of != 0
	}
	for fact, value := range told {
		if members[fact] {
			continue
		}
		value = shown(value)
		if strings.HasPrefix(fact, "event") {
			value = strings.Map(printable, value)
		}
		f[plainly+fact] = value
	}
}

// addMore adds the facts that the kubelet never reports, from the world.
func (w *World) addMore(f judge.Facts, step int) {
	s := w.Steps[step]
	f["position"] = fmt.Sprintf("%s %d", w.boot(step), s.Last)
	if step == 0 {
		f["wrong configuration"] = "oomwatch: invalid config of a reporter: field Events is required\nfield Node is required\n" +
			"field Burst: -1 is negative\nfield Every: -1ns is negative"
	}
	if step == 0 && w.History {
		return
	}
	if s.Settled {
		f["position soon"] = f["position"]
	}
	if s.Restart == fails || s.Restart == failsTwice {
		f["failures"] = "kmsg: read the kernel's log: input/output error; "
		if s.Restart == failsTwice {
			f["failures"] += "kmsg: open the kernel's log: permission denied; "
		}
	}
	for _, k := range s.Kills {
		name := "kill " + strconv.Itoa(k.PID)
		f[name+"/kind"] = k.Kind
		f[name+"/number"] = strconv.Itoa(k.Number)
		f[name+"/figures"] = fmt.Sprint(k.Figures)
		f[name+"/sequence"] = strconv.Itoa(k.Sequence)
		f[name+"/time with lag"] = w.withLag(step, k.PID, k.At+w.lag(step, k.At))
		if message := w.podMessage(k); k.Of == 0 && message != "" {
			addEvent(f, "pod event", message)
		}
	}
	if n := s.lost(); n > 0 {
		f["lost records"] = strconv.Itoa(n)
	}
	if s.Nobody > 0 && s.At == 0 {
		f["nobody killed"] = strconv.Itoa(s.Nobody)
	}
}

// boot returns the boot ID of a step.
func (w *World) boot(step int) string {
	n := 0
	for _, s := range w.Steps[:step+1] {
		if s.Restart == reboots {
			n++
		}
	}
	return "boot " + strconv.Itoa(n)
}

// podMessage returns the message of the pod's event, or "" if there is no event.
func (w *World) podMessage(k Kill) string {
	cgroup := k.Victim
	if !isOfPod(cgroup) {
		cgroup = k.Limit
	}
	if w.Pod == nothing || w.Pod == nilPod || !isOfPod(cgroup) {
		return ""
	}
	whose := "The node's pods together reached their common memory limit"
	switch {
	case k.Limit == "/":
		whose = "The node ran out of memory"
	case k.Limit == "" && w.Pod == both:
		whose = "Container main ran out of memory"
	case k.Limit == "":
		whose = "The pod ran out of memory"
	case strings.Contains(k.Limit, container) && w.Pod == both:
		whose = "Container main reached its memory limit"
	case isOfPod(k.Limit):
		whose = "The pod reached its memory limit"
	}
	name := strings.Map(printable, k.Process)
	switch {
	case k.Process == "":
		return fmt.Sprintf("%s, processes killed: %d", whose, k.Number)
	case k.Number > 1:
		return fmt.Sprintf("%s, killed %d processes, the first: %s, pid: %d", whose, k.Number, name, k.PID)
	default:
		return fmt.Sprintf("%s, killed process: %s, pid: %d", whose, name, k.PID)
	}
}

// isOfPod reports whether a cgroup belongs to the world's pod or container.
func isOfPod(cgroup string) bool {
	return strings.Contains(cgroup, "pod"+podUID) || strings.Contains(cgroup, "-pod"+strings.ReplaceAll(podUID, "-", "_")) || strings.Contains(cgroup, container)
}

// message returns the message of the node's event.
func (k Kill) message(process string) string {
	if process == "" {
		return "Warning SystemOOM System OOM encountered"
	}
	return fmt.Sprintf("Warning SystemOOM System OOM encountered, victim process: %s, pid: %d", process, k.PID)
}

// find returns the kill that a fact is about.
func (s Step) find(fact string) (k Kill, ok bool) {
	fact = strings.TrimPrefix(fact, plainly)
	for _, k := range s.Kills {
		pid := strconv.Itoa(k.PID)
		if k.Process == "" && (strings.HasSuffix(fact, "event without a process") || fact == "pod event about "+strconv.Itoa(k.Number)) || strings.HasSuffix(fact, "event about "+pid) || strings.HasPrefix(fact, "kill "+pid+"/") {
			return k, true
		}
	}
	return Kill{}, false
}
