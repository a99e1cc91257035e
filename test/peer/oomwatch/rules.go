package oomwatch

import (
	"strconv"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type (
	rule  = judge.Rule[*World]
	scene = judge.Scene[*World]
)

const doc = "oomwatch/doc.go"

// right makes a predicate: ours tells what the kernel did, and explains decides why
// the kubelet does not.
func right(explains func(scene, Step) bool) func(scene) bool {
	return func(s scene) bool {
		return s.Step < len(s.World.Steps) && s.Ours == s.World.truth(s.Step)[s.Fact] && explains(s, s.World.Steps[s.Step])
	}
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
		return step.Causes[c] || c == noDeath && s.Step > 0 && s.World.Steps[s.Step-1].Causes[c]
	})
}

func rules() []rule {
	return append(startRules(), append(killRules(), lineRules()...)...)
}

// memberOfGroup reports whether ours has a fact of a group's other members.
func memberOfGroup(step Step, s scene) bool {
	_, field, _ := strings.Cut(s.Fact, "/")
	for _, k := range step.Kills {
		if k.Of != 0 && s.Ours == s.World.truth(s.Step)["kill "+strconv.Itoa(k.PID)+"/"+field] {
			return true
		}
	}
	return false
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
					over = over || step.Overrun
				}
				// What it had begun to read it tells, without a process.
				return over && (s.Kubelet == "" || strings.HasPrefix(s.Fact, "kill 0/") || s.Fact == "event about without a process")
			}),
		},
	}
}

func killRules() []rule {
	return []rule{
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
			Name: "constraint before 5.0", Class: judge.Deliberate, Doc: doc,
			Sentence: "The kubelet has no constraint for kernels before 5.0; here it is CONSTRAINT_MEMCG where a cgroup had reached its limit.",
			Explains: about(func(s scene, k Kill) bool {
				return !k.Machine && strings.HasSuffix(s.Fact, "/constraint") && s.Kubelet == ""
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
		defect(noDump, "The kubelet does not see a kill of which the kernel left out the dump; here it is one."),
		defect(wholeGroup, "Of a cgroup that the kernel kills as a whole, the kubelet tells of one process; here all are told."),
		defect(noDeath, "The kubelet takes a dump after which nobody was killed for a kill, or for the begin of the next one; here it is none."),
		defect(imitation, "The kubelet believes what a program writes into the kernel's log; here only lines of the kernel count."),
		defect(torn, "The kubelet does not read a line that goes on in another record; here its parts are joined."),
		{
			Name: "continuation before 5.0", Class: judge.DefectOfOurs, Item: "new",
			Explains: func(s scene) bool {
				k, ok := s.World.Steps[s.Step].find(s.Fact)
				if !ok || k.Machine || s.World.Era != before50 || !s.World.Steps[s.Step].Causes[torn] {
					return false
				}
				return strings.HasSuffix(s.Fact, "/victim cgroup") && s.Ours == "" || strings.HasSuffix(s.Fact, "/limit cgroup") && s.Ours == ""
			},
		},
		{
			Name: "kill without a dump after a group", Class: judge.DefectOfOurs, Item: "new",
			Explains: func(s scene) bool {
				step := s.World.Steps[s.Step]
				k, ok := step.find(s.Fact)
				return ok && k.Victim == "" && step.Causes[noDump] && step.Causes[wholeGroup] && memberOfGroup(step, s)
			},
		},
		{
			Name: "cgroup with a field in its name", Class: judge.DefectOfOurs, Item: "new",
			Explains: func(s scene) bool {
				k, ok := s.World.Steps[s.Step].find(s.Fact)
				first, _, cut := strings.Cut(k.Victim, ",task=")
				return ok && cut && strings.HasSuffix(s.Fact, "/victim cgroup") && s.Ours == first
			},
		},
		defect(noUser, "The kubelet does not read the summary of the first kernels 5.0, which has no uid, and takes the kill for one for want of the machine's memory; here it is read."),
		defect(child, "If a child dies in the place of the process that was chosen, the kubelet tells of that process; here of the child."),
		defect(taskInName, "A process or a cgroup whose name looks like a field of the line misleads the kubelet's expression; here the line is read from both ends."),
		defect(pathLikeLine, "A process or a cgroup whose name looks like a field of the line misleads the kubelet's expression; here the line is read from both ends."),
	}
}
