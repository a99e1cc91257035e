package oomwatch

import (
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type (
	rule  = judge.Rule[*World]
	scene = judge.Scene[*World]
)

const doc = "oomwatch/doc.go"

// right makes a predicate. It requires that our report equals the kubelet's report about the
// plain log. explains reports whether a rule explains why the kubelet's report about the real
// log differs.
func right(explains func(scene, Step) bool) func(scene) bool {
	return func(s scene) bool {
		if s.Step >= len(s.World.Steps) || !isTold(s.Fact) {
			return false
		}
		want, told := s.KubeletFacts[s.Step][plainly+s.Fact]
		step := s.World.Steps[s.Step]
		return (told || s.Ours == "") && s.Ours == want && explains(s, step)
	}
}

// isTold reports whether the kubelet can report a fact.
func isTold(fact string) bool {
	_, field, _ := strings.Cut(fact, "/")
	return strings.HasPrefix(fact, "event ") ||
		strings.HasPrefix(fact, "kill ") && slices.Contains([]string{"process", "victim cgroup", "limit cgroup", "constraint", "time"}, field)
}

// about applies right to facts about a kill.
func about(explains func(scene, Kill) bool) func(scene) bool {
	return right(func(s scene, step Step) bool {
		k, ok := step.find(s.Fact)
		return ok && explains(s, k)
	})
}

// by applies right to steps with a cause. The kubelet's report then depends on the
// surrounding lines.
func by(c cause) func(scene) bool {
	return right(func(s scene, step Step) bool {
		// The kubelet treats a dump without a death as the beginning of the next dump.
		return step.Causes[c] || (c == noDeath || c == noName) && s.Step > 0 && s.World.Steps[s.Step-1].Causes[c]
	})
}

// untold is like by, for kills that the kubelet does not report.
func untold(c cause, of func(Kill) bool) func(scene) bool {
	return right(func(s scene, step Step) bool {
		k, ok := step.find(s.Fact)
		return ok && step.Causes[c] && of(k) && s.Kubelet == ""
	})
}

func rules() []rule {
	return append(startRules(), append(killRules(), lineRules()...)...)
}

func startRules() []rule {
	return []rule{
		{
			Name: "OOM kills logged before the start", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "The kubelet reports each kill in the log again whenever it starts (kubernetes#133260); ours reports a kill once.",
			Explains: right(func(s scene, _ Step) bool { return s.World.History && s.Step == 0 }),
		},
		{
			Name: "kernel log overrun", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "The kubelet's watcher stops at the first overrun of the log, until the kubelet is restarted; ours counts the overrun and continues.",
			Explains: right(func(s scene, _ Step) bool {
				over := false
				for _, step := range s.World.Steps[:s.Step+1] {
					over = over || step.lost() > 0
				}
				// The kubelet reports the part of a dump that it has read, without a process.
				return over && (s.Kubelet == "" || strings.HasPrefix(s.Fact, "kill 0/") || s.Fact == "event without a process")
			}),
		},
	}
}

// dated returns the time of the log's clock at a time.
func (w *World) dated(at time.Duration) time.Duration {
	return at - at*time.Duration(w.Drift)/1e6
}

// isAbout reports whether a text is a time that equals want to the millisecond.
func isAbout(text string, want time.Duration) bool {
	at, err := time.ParseDuration(text)
	return err == nil && (at-want).Abs() <= 2*time.Millisecond
}

func killRules() []rule {
	return []rule{
		{
			Name: "drift of the kernel log clock", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "The kubelet trusts the clock of the log, although it drifts; ours reports the right time for a kill that is read when it is logged.",
			Explains: about(func(s scene, k Kill) bool {
				return s.World.Drift != 0 && strings.HasSuffix(s.Fact, "/time") && isAbout(s.Kubelet, s.World.dated(k.At))
			}),
		},
		{
			Name: "kernel log records read late", Class: judge.Deliberate, Doc: doc,
			Sentence: "For a kill that is read late, the time that ours reports may be too late by up to 1/2000 of the time since the last record, because the log's clock may have drifted by that much; the kubelet uses the time in the log.",
			Explains: func(s scene) bool {
				if s.Step >= len(s.World.Steps) {
					return false
				}
				k, ok := s.World.Steps[s.Step].find(s.Fact)
				lag := s.World.lag(s.Step, k.At)
				return ok && lag > 0 && strings.HasSuffix(s.Fact, "/time") && isAbout(s.Kubelet, k.At) && isAbout(s.Ours, k.At+lag)
			},
		},
		{
			Name: "time of a system OOM kill", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "For a kill because the machine is out of memory, the kubelet uses the time of the line about the victim's death, which may be late; ours uses the time when the kernel chose the victim.",
			Explains: about(func(s scene, k Kill) bool {
				return k.Machine && k.Wait > 0 && strings.HasSuffix(s.Fact, "/time") && isAbout(s.Kubelet, s.World.dated(k.At+k.Wait))
			}),
		},
		{
			Name: "cgroup and constraint of system OOMs", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "If the machine is out of memory, the kubelet's regular expression does not match the kernel's line about the kill since Linux 5.0, so that the victim's cgroup and the constraint are lost; ours reports both.",
			Explains: about(func(s scene, k Kill) bool {
				return k.Machine && k.Constraint != "" && (strings.HasSuffix(s.Fact, "/victim cgroup") && s.Kubelet == "/" ||
					strings.HasSuffix(s.Fact, "/constraint") && s.Kubelet == "")
			}),
		},
		{
			Name: "unknown cgroup of the victim", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "If the log does not name the victim's cgroup, the kubelet reports the cgroup /; ours reports an empty cgroup.",
			Explains: about(func(s scene, k Kill) bool {
				return k.Victim == "" && strings.HasSuffix(s.Fact, "/victim cgroup") && s.Kubelet == "/"
			}),
		},
		{
			Name: "escaped process and cgroup names", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "The kubelet reports the names of processes and cgroups as escaped in the log; ours unescapes them.",
			Explains: about(func(s scene, k Kill) bool {
				switch {
				case strings.HasSuffix(s.Fact, "/process"):
					return s.Kubelet == k.Escaped && k.Escaped != k.Process
				case strings.HasSuffix(s.Fact, "/victim cgroup"):
					return s.Kubelet == escape(k.Victim)
				}
				return s.Kubelet == k.message(k.Escaped) && k.Escaped != k.Process
			}),
		},
	}
}

func lineRules() []rule {
	defect := func(c cause, sentence string) rule {
		return rule{Name: string(c), Class: judge.KubeletDefect, Doc: doc, Sentence: sentence, Explains: by(c)}
	}
	return []rule{
		defect(interleaved, "The kubelet confuses dumps that the kernel writes at the same time; ours separates them."),
		{
			Name: string(noDump), Class: judge.KubeletDefect, Doc: doc,
			Sentence: "The kubelet misses a kill for which the kernel omitted the dump; ours reports it.",
			Explains: untold(noDump, func(k Kill) bool { return k.Victim == "" }),
		},
		{
			Name: string(wholeGroup), Class: judge.KubeletDefect, Doc: doc,
			Sentence: "If the kernel kills a whole cgroup, the kubelet reports one process; ours reports all.",
			Explains: untold(wholeGroup, func(k Kill) bool { return k.Kind == "group" }),
		},
		defect(noDeath, "The kubelet treats a dump without a kill as a kill, or as the start of the next kill; ours does not."),
		defect(imitation, "The kubelet trusts lines that a program writes into the kernel's log; ours accepts only lines of the kernel."),
		defect(torn, "The kubelet does not read a line that continues in another record; ours joins its parts."),
		defect(taskInName, "A process or a cgroup whose name looks like a field of the line misleads the kubelet's regular expression; ours parses the line from both ends."),
		defect(pathLikeLine, "A process or a cgroup whose name looks like a field of the line misleads the kubelet's regular expression; ours parses the line from both ends."),
		defect(noName, "The kubelet misses the death of a process without a name; ours reports it."),
	}
}
