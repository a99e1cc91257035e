package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// keeper is the name of an added container that prevents the kubelet from ending or
// restarting a pod.
const keeper = "keeper"

// oomKilled is the reason of a container that was OOM killed.
const oomKilled = "OOMKilled"

func (s *State) keep() {
	spec := corev1.Container{Name: keeper, Image: "image:1"}
	s.Pod.Spec.Containers = append(s.Pod.Spec.Containers, spec)
	c := s.create(s.box().ID, keeper, 0, nil)
	c.State = running
}

// initialized reports whether a regular container proves that all init containers have
// succeeded.
func (s *State) initialized() bool {
	return s.usable() && slices.ContainsFunc(s.Pod.Spec.Containers, func(spec corev1.Container) bool {
		c := s.here(spec.Name)
		return c != nil && c.Name != keeper && (c.State == running || c.State == created)
	})
}

func (s *State) forgetKeeper(f judge.Facts) {
	if c := s.newest(keeper); c != nil {
		forget(f, "resize memory "+c.ID, "resize cpu "+c.ID, "resize nothing "+c.ID, "kill "+c.ID, "remove "+c.ID)
	}
}

// held reports whether a running container keeps our plan from ending the pod.
func (s *State) held() bool {
	return slices.ContainsFunc(slices.Concat(s.Containers, s.hidden), func(c *Container) bool {
		inPlace := s.isKind(c.Name, podrunner.Regular) && s.here(c.Name) == c
		return live(c) && c.Name != keeper && !inPlace && !s.isKind(c.Name, podrunner.Sidecar) && (!s.inSpec(c.Name) || !s.isKind(c.Name, podrunner.Ephemeral))
	})
}

func straysHold() deviation {
	return deviation{
		Rule: rule("pod end delayed by superfluous containers", judge.Deliberate, "If the pod's containers have ended for good, and a container runs that should not run, this package first stops this container, and stops the pod in a later plan. The kubelet stops the pod together with this container."),
		state: func(s *State) bool {
			if s.current["stop pod"] == "" || s.restartsAll() || !s.usable() || !s.initialized() && !s.pastLastInit() || !s.held() {
				return false
			}
			s.Restarting = false // the restart of all containers waits for no other container
			s.keep()
			return true
		},
		facts: func(s *State, f judge.Facts) { s.forgetKeeper(f) },
	}
}

// pastLastInit reports whether the last init container has completed or, if it is a sidecar,
// has started.
func (s *State) pastLastInit() bool {
	all := s.Pod.Spec.InitContainers
	if len(all) == 0 {
		return true
	}
	last := &all[len(all)-1]
	switch c := s.here(last.Name); {
	case c == nil:
		return false
	case isSidecar(last):
		return c.State == running && c.Startup == Succeeded
	default:
		return c.State == exited && c.Code == 0 && c.Reason != oomKilled
	}
}

// over reports whether every regular container has terminated for good and no running
// container keeps our plan from ending the pod.
func (s *State) over() bool {
	if s.held() {
		return false
	}
	for i := range s.Pod.Spec.Containers {
		if c := &s.Pod.Spec.Containers[i]; c.Name != keeper && !s.done(c) {
			return false
		}
	}
	return true
}

func over() deviation {
	return deviation{
		Rule: rule("pod stop once regular containers ended", judge.Deliberate, "When all regular containers of a pod have ended for good, this package stops the pod. The kubelet's plan continues with the pod's init containers and sidecars until the pod's phase is terminal."),
		facts: func(s *State, f judge.Facts) {
			if s.usable() && !s.restartsAll() && s.over() {
				s.stop(f)
			}
		},
	}
}

// stop sets our actions that stop the pod.
func (s *State) stop(f judge.Facts) {
	forget(f, "start", "wait", "retry", "kill", "restart all", "sandbox", "resize")
	f["stop pod"] = "yes"
}

// failedInit reports whether an init container has failed for good.
func (s *State) failedInit(fails func(*corev1.Container, *Container) bool) bool {
	if s.initialized() || s.restartsAll() {
		return false
	}
	return slices.ContainsFunc(s.Pod.Spec.InitContainers, func(spec corev1.Container) bool {
		c := s.newest(spec.Name)
		if c == nil {
			c = s.newestHidden(spec.Name)
		}
		return c != nil && fails(&spec, c)
	})
}

func pastInitContainers() deviation {
	return deviation{
		Rule: rule("failure of any init container", judge.Deliberate, "Here a pod has ended when any of its init containers has failed for good, also an init container of an earlier sandbox. The kubelet's plan checks only the init container that was started last. In the kubelet, the pod's phase decides whether the pod has ended."),
		facts: func(s *State, f judge.Facts) {
			if s.failedInit(func(spec *corev1.Container, c *Container) bool {
				if c.was != nil && c.was.State == unknownState {
					return !s.comesAgain(spec.Name)
				}
				code, ended := s.outcome(c)
				again := isSidecar(spec) || s.Pod.DeletionTimestamp == nil && s.restarts(spec.Name, code)
				return ended && (code != 0 || c.Reason == oomKilled) && !again
			}) {
				s.stop(f)
			}
		},
	}
}

// goesOn reports whether the pod continues in its sandbox.
func goesOn(s *State, f judge.Facts) bool {
	return s.usable() && f["stop pod"] == "" && f["restart all"] == ""
}
