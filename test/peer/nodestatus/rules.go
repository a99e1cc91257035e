package nodestatus

import (
	"slices"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type (
	rule  = judge.Rule[*World]
	scene = judge.Scene[*World]
)

const doc = "status/nodestatus/doc.go"

// A difference is a fact with both values.
type difference struct{ fact, kubelet, ours string }

// because makes a predicate for a fact. The predicate also explains the facts "changed" and
// "due" if the explained fact is a change for one side only.
func because(explains func(scene, *Step, difference) bool) func(scene) bool {
	return func(s scene) bool {
		if s.Step >= len(s.World.Steps) {
			return false
		}
		step := s.World.Steps[s.Step]
		if s.Fact != "changed" && s.Fact != "due" {
			return explains(s, step, difference{s.Fact, s.Kubelet, s.Ours})
		}
		kubelet, ours := s.KubeletFacts[s.Step], s.OursFacts[s.Step]
		for _, facts := range []judge.Facts{kubelet, ours} {
			for fact := range facts {
				d := difference{fact, kubelet[fact], ours[fact]}
				if fact != "changed" && fact != "due" && d.kubelet != d.ours && explains(s, step, d) {
					return true
				}
			}
		}
		return false
	}
}

// before returns the last reported value of a fact on our side.
func before(s scene, fact string) string {
	for i := s.Step - 1; i >= 0; i-- {
		if s.OursFacts[i]["due"] == "true" {
			return s.OursFacts[i][fact]
		}
	}
	return ""
}

// wasReady reports whether the runtime was ready since the last restart.
func wasReady(s scene) bool {
	for i := s.Step; i >= 0; i-- {
		step := s.World.Steps[i]
		if a := step.Status; step.Asked && a != nil {
			for _, c := range a.Status.Conditions {
				if c.Type == "RuntimeReady" && c.Status {
					return true
				}
			}
		}
		if step.Restart {
			break
		}
	}
	return false
}

func rules() []rule {
	return []rule{
		{
			Name: "removed swap still reported", Class: judge.KubeletDefect, Doc: doc, Ends: true,
			Sentence: "The kubelet continues to report swap that the machine no longer has; here it is removed from the status.",
			Explains: because(func(s scene, step *Step, d difference) bool {
				return d.fact == "info/swap" && step.Machine != nil && step.Machine.Swap == 0 && d.ours == "" && d.kubelet == before(s, d.fact)
			}),
		},
		{
			Name: "runtime handlers after a restart", Class: judge.Deliberate, Doc: doc, Ends: true,
			Sentence: "A kubelet that has just started reports no runtime handlers until the runtime is ready; here the previous runtime handlers stay.",
			Explains: because(func(s scene, _ *Step, d difference) bool {
				return d.fact == "handlers" && !wasReady(s) && d.kubelet == "" && d.ours == before(s, d.fact)
			}),
		},
		{
			Name: "device plugins without machine info", Class: judge.KubeletDefect, Doc: doc, Ends: true,
			Sentence: "While the kubelet cannot measure the machine it ignores device plugins, so that unhealthy devices are allocatable; here the state of device plugins is always used.",
			Explains: because(func(_ scene, step *Step, d difference) bool {
				kind, name, _ := strings.Cut(d.fact, " ")
				if step.Machine != nil {
					return false
				}
				number := step.Devices.Whole
				if kind == "allocatable" {
					number = step.Devices.Healthy
				}
				n, offered := number[name]
				removed := slices.Contains(step.Devices.Removed, name)
				return (kind == "capacity" || kind == "allocatable") && (offered || removed) && d.ours == milli(n)
			}),
		},
		{
			Name: "unknown container runtime version", Class: judge.Deliberate, Doc: doc, Ends: true,
			Sentence: "If the version of the runtime is unknown, the kubelet reports Unknown; here the previous version stays.",
			Explains: because(func(s scene, step *Step, d difference) bool {
				return d.fact == "info/runtime" && step.NoVersion && d.kubelet == step.Name+"://Unknown" && d.ours == before(s, d.fact)
			}),
		},
		{
			Name: "unreadable machine ID or system UUID", Class: judge.Deliberate, Doc: doc, Ends: true,
			Sentence: "If the kubelet cannot read an ID of the machine, it reports an empty ID; here the previous ID stays.",
			Explains: because(func(s scene, step *Step, d difference) bool {
				m := step.Machine
				return m != nil && (d.fact == "info/machine" && m.ID == "" || d.fact == "info/system" && m.System == "") &&
					d.kubelet == "" && d.ours == before(s, d.fact)
			}),
		},
		{
			Name: "repeated Rebooted events", Class: judge.Deliberate, Doc: doc,
			Sentence: "The kubelet reports a reboot at most once per process; [Events] reports a reboot whenever the boot ID differs from the previous boot ID.",
			Explains: func(s scene) bool {
				reboot, rest, ok := strings.Cut(s.Ours, "; ")
				return ok && s.Fact == "events" && strings.HasPrefix(reboot, rebooted) && rest == s.Kubelet && rebootedBefore(s)
			},
		},
	}
}

const rebooted = "Warning Rebooted "

// rebootedBefore reports whether the kubelet has reported a reboot since its start.
func rebootedBefore(s scene) bool {
	for i := s.Step; i > 0 && !s.World.Steps[i].Restart; i-- {
		if strings.HasPrefix(s.KubeletFacts[i-1]["events"], rebooted) {
			return true
		}
	}
	return false
}
