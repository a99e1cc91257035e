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

// right makes a predicate: ours tells what the kubelet tells of the plain log, and
// explains decides why the kubelet does not tell that of this one.
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

// isTold reports whether the kubelet may tell a fact.
func isTold(fact string) bool {
	_, field, _ := strings.Cut(fact, "/")
	return strings.HasPrefix(fact, "event ") ||
		strings.HasPrefix(fact, "kill ") && slices.Contains([]string{"process", "victim cgroup", "limit cgroup", "constraint", "time"}, field)
}

// about is right for facts about a kill.
func about(explains func(scene, Kill) bool) func(scene) bool {
	return right(func(s scene, step Step) bool {
		k, ok := step.find(s.Fact)
		return ok && explains(s, k)
	})
}

// by is right for steps with a cause. What the kubelet makes of the log then depends
// on the lines around.
func by(c cause) func(scene) bool {
	return right(func(s scene, step Step) bool {
		// The kubelet takes a dump without a death for the begin of the next.
		return step.Causes[c] || (c == noDeath || c == noName) && s.Step > 0 && s.World.Steps[s.Step-1].Causes[c]
	})
}

// untold is by, where the kubelet tells nothing of a kill.
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
			Name: "kills before the start", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "The kubelet tells of each kill in the log whenever it starts (kubernetes#133260); here a kill is told once.",
			Explains: right(func(s scene, _ Step) bool { return s.World.History && s.Step == 0 }),
		},
		{
			Name: "overrun", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "The kubelet's watcher ends at the first overrun of the log, until the kubelet is restarted; here an overrun is counted and reading goes on.",
			Explains: right(func(s scene, _ Step) bool {
				over := false
				for _, step := range s.World.Steps[:s.Step+1] {
					over = over || step.lost() > 0
				}
				// What it had begun to read it tells, without a process.
				return over && (s.Kubelet == "" || strings.HasPrefix(s.Fact, "kill 0/") || s.Fact == "event without a process")
			}),
		},
	}
}

// dated returns what the clock of the log says at a time.
func (w *World) dated(at time.Duration) time.Duration {
	return at - at*time.Duration(w.Drift)/1e6
}

// isAbout reports whether a text is a time, to the millisecond.
func isAbout(text string, want time.Duration) bool {
	at, err := time.ParseDuration(text)
	return err == nil && (at-want).Abs() <= 2*time.Millisecond
}

func killRules() []rule {
	return []rule{
		{
			Name: "clock of the log", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "The kubelet takes the clock of the log for right, though it drifts; here a kill that is read as it is logged has the right time.",
			Explains: about(func(s scene, k Kill) bool {
				return s.World.Drift != 0 && strings.HasSuffix(s.Fact, "/time") && isAbout(s.Kubelet, s.World.dated(k.At))
			}),
		},
		{
			Name: "time of a kill for the machine", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "For the same reason the kubelet takes the time of such a kill from the line of the death, which may come late; here it is that of the choice.",
			Explains: about(func(s scene, k Kill) bool {
				return k.Machine && k.Wait > 0 && strings.HasSuffix(s.Fact, "/time") && isAbout(s.Kubelet, s.World.dated(k.At+k.Wait))
			}),
		},
		{
			Name: "cgroup and constraint of a kill for the machine", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "The kubelet's expression does not match what kernels since 5.0 write of a kill for want of the machine's memory, so the victim's cgroup and the constraint are lost; here both are known.",
			Explains: about(func(s scene, k Kill) bool {
				return k.Machine && k.Constraint != "" && (strings.HasSuffix(s.Fact, "/victim cgroup") && s.Kubelet == "/" ||
					strings.HasSuffix(s.Fact, "/constraint") && s.Kubelet == "")
			}),
		},
		{
			Name: "victim whose cgroup is not known", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "In the kubelet, a victim whose cgroup the log does not name is in the cgroup /; here its cgroup is empty.",
			Explains: about(func(s scene, k Kill) bool {
				return k.Victim == "" && strings.HasSuffix(s.Fact, "/victim cgroup") && s.Kubelet == "/"
			}),
		},
		{
			Name: "escaped name", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "The kubelet has the names of processes and cgroups as the log escapes them; here they are as the kernel has them.",
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
		defect(interleaved, "The kubelet mixes up dumps that the kernel writes at the same time; here they are told apart."),
		{
			Name: string(noDump), Class: judge.KubeletDefect, Doc: doc,
			Sentence: "The kubelet does not see a kill of which the kernel left out the dump; here it is one.",
			Explains: untold(noDump, func(k Kill) bool { return k.Victim == "" }),
		},
		{
			Name: string(wholeGroup), Class: judge.KubeletDefect, Doc: doc,
			Sentence: "Of a cgroup that the kernel kills as a whole, the kubelet tells of one process; here all are told.",
			Explains: untold(wholeGroup, func(k Kill) bool { return k.Kind == "group" }),
		},
		defect(noDeath, "The kubelet takes a dump after which nobody was killed for a kill, or for the begin of the next one; here it is none."),
		defect(imitation, "The kubelet believes what a program writes into the kernel's log; here only lines of the kernel count."),
		defect(torn, "The kubelet does not read a line that goes on in another record; here its parts are joined."),
		defect(taskInName, "A process or a cgroup whose name looks like a field of the line misleads the kubelet's expression; here the line is read from both ends."),
		defect(pathLikeLine, "A process or a cgroup whose name looks like a field of the line misleads the kubelet's expression; here the line is read from both ends."),
		defect(noName, "The kubelet does not see the death of a process without a name; here it is one."),
	}
}
