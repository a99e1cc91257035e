package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// asker returns the first container of the spec that asks for a restart of all.
func (s *State) asker() *Container {
	for _, name := range s.names() {
		if c := s.here(name); c != nil && asks(s, c) && !s.isKind(name, podrunner.Ephemeral) {
			return c
		}
	}
	return nil
}

func restartAllForgotten() deviation {
	return deviation{
		Rule: defect("restart of all that is forgotten", "23c", "The kubelet carries a restart of all containers through when the sandbox dies first, or the container that asked for it is gone; ours forgets it."),
		state: func(s *State) bool {
			if s.usable() && s.asker() != nil {
				return false
			}
			s.notRestarting = true
			return s.Restarting || slices.ContainsFunc(s.Containers, func(c *Container) bool { return asks(s, c) })
		},
	}
}

func restartAllMessage() deviation {
	return deviation{
		Rule: rule("reason of a restart of all", judge.Deliberate, "When all containers are restarted, the kubelet's event for each that is stopped reads \"killing\"; ours has the cause."),
		facts: func(s *State, f judge.Facts) {
			for name, value := range f {
				if id, isKill := strings.CutPrefix(name, "kill "); isKill && f["restart all"] != "" {
					f[name] = strings.Replace(value, "killing", fmt.Sprintf("Container %s is restarted with all others", s.find(id).Name), 1)
				}
			}
		},
	}
}

func restartAllCreated() deviation {
	return deviation{
		Rule: rule("created containers in a restart of all", judge.Deliberate, "When all containers are restarted, the kubelet stops those that were created but not started, too; ours only removes them."),
		facts: func(s *State, f judge.Facts) {
			for _, c := range s.Containers {
				if f["restart all"] != "" && c.State == created {
					delete(f, "kill "+c.ID)
				}
			}
		},
	}
}

func restartAllEphemeral() deviation {
	return deviation{
		Rule: defect("ephemeral containers and a restart of all", "new", "A restart of all containers leaves ephemeral containers running in the kubelet; ours stops them."),
		facts: func(s *State, f judge.Facts) {
			for _, c := range s.Containers {
				if f["restart all"] != "" && live(c) && s.isKind(c.Name, podrunner.Ephemeral) {
					f["kill "+c.ID] = fmt.Sprintf("Container %s is restarted with all others (2s)", c.Name)
				}
			}
		},
	}
}

func restartAllBackoff() deviation {
	return deviation{
		Rule: rule("back-off of a restart of all", judge.Deliberate, "What a restart of all containers (KEP-5532) asks for backs off like any other restart, with everything stopped meanwhile."),
		facts: func(s *State, f judge.Facts) {
			c := s.asker()
			if f["restart all"] == "" || c == nil {
				return
			}
			if s.backOff(f, c.Name) {
				forget(f, "restart all", "remove ")
				s.restartAllWaits = true
			}
		},
	}
}

func forgottenEphemeral() deviation {
	return deviation{
		Rule: rule("ephemeral container that the runtime forgot", judge.Deliberate, "The kubelet starts an ephemeral container again that the runtime has forgotten; ours recalls from its log that it has run."),
		facts: func(s *State, f judge.Facts) {
			for _, name := range s.names() {
				if s.isKind(name, podrunner.Ephemeral) && s.newest(name) == nil && s.Logs[name] > 0 {
					delete(f, "start "+name)
				}
			}
		},
	}
}
