package plan

import (
	"fmt"
	"strings"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// restartsAll reports whether our plan restarts all containers.
func (s *State) restartsAll() bool {
	asked, left := s.Restarting, false
	for _, name := range s.names() {
		if c := s.newest(name); c != nil && !s.isKind(name, podrunner.Ephemeral) {
			asked, left = asked || asks(s, c), true
		}
	}
	return asked && left && !s.notRestarting
}

// asker returns the first container of the spec that requests a restart of all containers.
func (s *State) asker() *Container {
	for _, name := range s.names() {
		if c := s.newest(name); c != nil && asks(s, c) && !s.isKind(name, podrunner.Ephemeral) {
			return c
		}
	}
	return nil
}

func restartAllMessage() deviation {
	return deviation{
		Rule: rule("kill event during RestartAllContainers", judge.Deliberate, "When all containers are restarted, the kubelet's event for each stopped container reads \"killing\"; the event of this package has the cause."),
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
		Rule: rule("created containers during RestartAllContainers", judge.Deliberate, "When all containers are restarted, the kubelet also stops containers that were created but not started; this package only removes such containers."),
		facts: func(s *State, f judge.Facts) {
			for _, c := range s.Containers {
				if f["restart all"] != "" && c.State == created {
					delete(f, "kill "+c.ID)
				}
			}
		},
	}
}

func restartAllBackoff() deviation {
	return deviation{
		Rule: rule("back-off of RestartAllContainers", judge.Deliberate, "Here a restart of all containers (KEP-5532) waits for a back-off like any other restart; the kubelet does not wait. During the back-off all containers of the pod except ephemeral containers are stopped."),
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
		Rule: rule("ephemeral container missing in the runtime", judge.Deliberate, "If an ephemeral container is no longer in the runtime, the kubelet starts it again. This package recognizes by the container's log that the container has run, and does not start it again."),
		facts: func(s *State, f judge.Facts) {
			for _, name := range s.names() {
				if s.isKind(name, podrunner.Ephemeral) && s.newest(name) == nil && s.Logs[name] > 0 {
					delete(f, "start "+name)
				}
			}
		},
	}
}
