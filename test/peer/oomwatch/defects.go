package oomwatch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// defects are those of ours.
func defects() []rule {
	return []rule{
		{
			Name: "continuation before 5.0", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "Before 5.0, a line that goes on in another record is not joined: the cgroups of the kill are lost.",
			Explains: func(s scene) bool {
				step := s.World.Steps[s.Step]
				k, ok := step.find(s.Fact)
				if !ok || !k.Old || k.Machine || !step.Causes[torn] {
					return false
				}
				if cut := step.limitCut(k); cut > 0 {
					k.Limit = ""
					return s.Ours == "" && (strings.HasSuffix(s.Fact, "/limit cgroup") || strings.HasSuffix(s.Fact, "event about "+strconv.Itoa(k.PID)) || strings.HasSuffix(s.Fact, "event without a process")) ||
						strings.HasSuffix(s.Fact, "/sequence") && s.Ours == strconv.Itoa(cut) ||
						strings.HasPrefix(s.Fact, "pod event") && s.Ours == s.World.podMessage(k)
				}
				return unchosen(s, k)
			},
		},
		{
			Name: "restart within a line", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "A restart at the saved position after the first part of a choice that is in several records reads the later parts only: the cgroup and the constraint of the kill are lost.",
			Explains: func(s scene) bool {
				step := s.World.Steps[s.Step]
				k, ok := step.find(s.Fact)
				torn := slices.IndexFunc(step.Records, func(r Record) bool { return strings.Contains(r.Text, ",c;") })
				return ok && !k.Old && step.Restart == resumes && torn > 0 && torn <= step.At && unchosen(s, k)
			},
		},
		{
			Name: "kill without a dump after a group", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "A kill without a dump right after the kill of a group is taken for one of the group.",
			Explains: func(s scene) bool {
				step := s.World.Steps[s.Step]
				if !step.Causes[noDump] || !step.Causes[wholeGroup] {
					return false
				}
				all, isNameless := 0, false
				for _, other := range step.Kills {
					if other.Kind == "group" || other.Victim == "" {
						all++
					}
					isNameless = isNameless || other.Kind == "group" && other.Process == ""
				}
				k, ok := step.find(s.Fact)
				if !ok { // the event about a process without a name has the number in its place
					number := strconv.Itoa(all)
					return isNameless && s.Fact == "pod event about "+number && s.Kubelet == "" && strings.HasSuffix(s.Ours, ": "+number)
				}
				return k.Victim == "" && memberOfGroup(step, s) || strings.HasSuffix(s.Fact, "/number") && k.Kind == "group" && s.Ours == strconv.Itoa(all) ||
					strings.Contains(s.Fact, "event about") && (s.Ours == "" || strings.Contains(s.Ours, fmt.Sprintf("killed %d processes", all)))
			},
		},
		{
			Name: "cgroup with a field in its name", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "A cgroup whose name has \",task=\" in it is cut off there.",
			Explains: func(s scene) bool {
				k, ok := s.World.Steps[s.Step].find(s.Fact)
				first, _, cut := strings.Cut(k.Victim, ",task=")
				return ok && cut && strings.HasSuffix(s.Fact, "/victim cgroup") && s.Ours == first
			},
		},
		{
			Name: "restart between two lines", Class: judge.DefectOfOurs, Item: "new",
			Sentence: "Before 5.3, a restart at the saved position between the line that says whose memory ran out and that of the death loses what the first said, and with it the event about the node.",
			Explains: func(s scene) bool {
				step := s.World.Steps[s.Step]
				k, ok := step.find(s.Fact)
				if !ok || s.World.Era == since53 || step.Restart != resumes || !step.splits(k.PID) {
					return false
				}
				_, field, _ := strings.Cut(s.Fact, "/")
				return s.Ours == "" && (field == "kind" || field == "constraint" || field == "limit cgroup" || strings.Contains(s.Fact, "event")) ||
					field == "constraint" && s.Ours == "" || strings.HasPrefix(s.Fact, "pod event") && s.Ours == withoutLimit(s.World, k)
			},
		},
	}
}

// unchosen reports whether ours tells of a kill what it knows from the line of the death
// alone.
func unchosen(s scene, k Kill) bool {
	switch _, field, _ := strings.Cut(s.Fact, "/"); field {
	case "victim cgroup":
		return s.Ours == ""
	case "limit cgroup":
		return s.Ours == "" && !k.Machine
	case "constraint":
		return s.Ours == "" && k.Machine
	case "sequence":
		step := s.World.Steps[s.Step]
		return s.Ours == strconv.Itoa(step.death(k.PID)) || k.Kind == "group" && s.Ours == strconv.Itoa(step.death(k.Of))
	case "figures":
		// The user may stand in the choice alone.
		k.Figures.User = 0
		return s.Ours == fmt.Sprint(k.Figures)
	}
	return strings.HasPrefix(s.Fact, "pod event") && s.Ours == withoutLimit(s.World, k) ||
		s.Ours == "" && (strings.HasSuffix(s.Fact, "event about "+strconv.Itoa(k.PID)) || strings.HasSuffix(s.Fact, "event without a process"))
}

// withoutLimit returns the event about the pod if the cgroups of a kill are not known.
func withoutLimit(w *World, k Kill) string {
	k.Victim, k.Limit = "", ""
	return w.podMessage(k)
}

// limitCut returns the number of the record with the first part of the line that tells
// of a kill, if that breaks off before the limit.
func (s Step) limitCut(k Kill) (cut int) {
	for _, r := range s.Records {
		head, text, _ := strings.Cut(r.Text, ";")
		switch {
		case strings.HasPrefix(text, fmt.Sprintf("Killed process %d (", k.PID)):
			return cut
		case strings.HasPrefix(text, "Killed process "):
			cut = 0
		case text == "Task in "+escape(k.Victim)+" killed as a result of limit of \n":
			cut, _ = strconv.Atoi(strings.Split(head, ",")[1])
		}
	}
	return 0
}

// death returns the number of the first record with the death of a process.
func (s Step) death(pid int) (sequence int) {
	for _, r := range s.Records {
		if sequence == 0 && strings.Contains(r.Text, fmt.Sprintf("Killed process %d (", pid)) {
			_, rest, _ := strings.Cut(r.Text, ",")
			text, _, _ := strings.Cut(rest, ",")
			sequence, _ = strconv.Atoi(text)
		}
	}
	return sequence
}

// splits reports whether the restart is between the line that says whose memory ran out
// and the death of a process.
func (s Step) splits(pid int) bool {
	announced := false
	for i, r := range s.Records {
		switch {
		case strings.Contains(r.Text, fmt.Sprintf("Killed process %d (", pid)):
			return announced
		case strings.Contains(r.Text, "(evil)"): // it can't be the kernel
		case strings.Contains(r.Text, "total-vm:"):
			announced = false
		case strings.Contains(r.Text, ": Kill process "):
			announced = i < s.At
		}
	}
	return false
}
