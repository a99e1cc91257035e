package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// keeper is a container that keeps the kubelet from ending a pod, or from beginning
// it again.
const keeper = "keeper"

func (s *State) keep() {
	spec := corev1.Container{Name: keeper, Image: "image:1"}
	s.Pod.Spec.Containers = append(s.Pod.Spec.Containers, spec)
	c := s.create(s.box().ID, keeper, 0, nil)
	c.State = running
}

// regular returns the newest instances of regular containers in the sandbox in use.
func (s *State) regular() (all []*Container) {
	for i := range s.Pod.Spec.Containers {
		if c := s.here(s.Pod.Spec.Containers[i].Name); c != nil && c.Name != keeper {
			all = append(all, c)
		}
	}
	return all
}

func initialized() deviation {
	return deviation{
		Rule: defect("initialized by containers that have ended", "23", "For the kubelet only a regular container that is running or created proves that a pod is initialized; for ours any in its sandbox, also one that has ended or is in an unknown state."),
		state: func(s *State) bool {
			begun := s.regular()
			if !s.usable() || len(begun) == 0 || len(s.Pod.Spec.InitContainers) == 0 ||
				slices.ContainsFunc(begun, func(c *Container) bool { return c.State == running || c.State == created }) {
				return false
			}
			s.keep()
			return true
		},
		facts: func(s *State, f judge.Facts) { s.forgetKeeper(f) },
	}
}

func (s *State) forgetKeeper(f judge.Facts) {
	if c := s.newest(keeper); c != nil {
		forget(f, "resize memory "+c.ID, "resize cpu "+c.ID, "resize nothing "+c.ID, "kill "+c.ID, "remove "+c.ID)
	}
}

// held reports whether a container runs for which ours lets the pod go on.
func (s *State) held() bool {
	return slices.ContainsFunc(slices.Concat(s.Containers, s.hidden), func(c *Container) bool {
		return live(c) && c.Name != keeper && !s.isKind(c.Name, podrunner.Sidecar) && (!s.inSpec(c.Name) || !s.isKind(c.Name, podrunner.Ephemeral))
	})
}

func straysHold() deviation {
	return deviation{
		Rule: rule("pod with a container that ought not to run", judge.Deliberate, "A pod in which a container runs that ought not to is not over for ours before that is stopped; the kubelet stops the pod with it."),
		state: func(s *State) bool {
			begun := s.regular()
			if s.current["stop pod"] == "" || !s.usable() || len(begun) == 0 && !s.pastLastInit() ||
				slices.ContainsFunc(begun, live) || s.newest(keeper) != nil || !s.held() {
				return false
			}
			s.keep()
			return true
		},
		facts: func(s *State, f judge.Facts) { s.forgetKeeper(f) },
	}
}

// pastLastInit reports whether the last init container has completed or, a sidecar,
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
		return c.State == exited && c.Code == 0
	}
}

func ending() deviation {
	return deviation{
		Rule: defect("last container of a pod that is ending", "23e", "The kubelet stops the whole pod when its last regular container fails a probe and is not restarted; ours stops that container, and starts sidecars beside it."),
		state: func(s *State) bool {
			if s.current["stop pod"] == "" || !s.usable() || !slices.ContainsFunc(s.regular(), live) || s.newest(keeper) != nil {
				return false
			}
			s.keep()
			return true
		},
		facts: func(s *State, f judge.Facts) { s.forgetKeeper(f) },
	}
}

// over reports whether every regular container has ended for good, and nothing
// runs for which the pod goes on.
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
		Rule: rule("end of a pod", judge.Deliberate, "The kubelet's plan goes on with init containers and sidecars of a pod whose regular containers have all ended for good, until the pod's phase ends it; ours stops the pod."),
		facts: func(s *State, f judge.Facts) {
			if s.usable() && s.over() {
				s.stop(f)
			}
		},
	}
}

// stop makes ours stop the pod.
func (s *State) stop(f judge.Facts) {
	forget(f, "start", "wait", "retry", "kill", "restart all", "sandbox", "resize")
	f["stop pod"] = "yes"
}

// failedInit reports whether an init container has failed for good.
func (s *State) failedInit(fails func(*corev1.Container, *Container) bool) bool {
	if slices.ContainsFunc(s.regular(), func(c *Container) bool { return s.usable() && c != nil }) {
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
		Rule: rule("failed init container", judge.Deliberate, "The kubelet looks at the init container that was begun last; for ours a pod is over when any of its init containers has failed for good, also one of an earlier sandbox; the kubelet leaves that to the phase."),
		facts: func(s *State, f judge.Facts) {
			if s.failedInit(func(spec *corev1.Container, c *Container) bool {
				code, ended := s.outcome(c)
				if c.was != nil && c.was.State == unknownState {
					code, ended = killed, true
				}
				return ended && code != 0 && !s.restarts(spec.Name, code)
			}) {
				s.stop(f)
			}
		},
	}
}

func unknownInit() deviation {
	return deviation{
		Rule: defect("init container in an unknown state", "23", "The kubelet asks the policy of an init container in an unknown state, and not its rules, whether the pod has failed; ours asks both as if it had exited with 137."),
		state: func(s *State) (changed bool) {
			for i := range s.Pod.Spec.InitContainers {
				spec := &s.Pod.Spec.InitContainers[i]
				if c := s.here(spec.Name); c != nil && c.State == unknownState && len(spec.RestartPolicyRules) > 0 && s.usable() {
					spec.RestartPolicy, changed = new(corev1.ContainerRestartPolicyNever), true
					if s.restarts(spec.Name, killed) {
						spec.RestartPolicy = new(corev1.ContainerRestartPolicyOnFailure)
					}
				}
			}
			return changed
		},
	}
}

// turn returns the init container that was begun last, nil if the pod is initialized.
func (s *State) turn() *Container {
	if len(s.regular()) > 0 {
		return nil
	}
	for _, spec := range slices.Backward(s.Pod.Spec.InitContainers) {
		if c := s.here(spec.Name); c != nil {
			return c
		}
	}
	return nil
}

// goesOn reports whether the pod goes on in its sandbox.
func goesOn(s *State, f judge.Facts) bool {
	return s.usable() && f["stop pod"] == "" && f["restart all"] == ""
}

func changedInit() deviation {
	return deviation{
		Rule: defect("running init container whose definition changed", "23", "The kubelet leaves a running init container alone whose definition changed; ours replaces it."),
		facts: func(s *State, f judge.Facts) {
			if c := s.turn(); c != nil && goesOn(s, f) && c.State == running && s.isKind(c.Name, podrunner.Init) && s.changed(c) {
				f["kill "+c.ID] = fmt.Sprintf("Container %s definition changed, will be restarted (30s)", c.Name)
				s.startNow(f, c.Name, c.Attempt+1)
			}
		},
	}
}

func sidecarResizeMessage() deviation {
	return deviation{
		Rule: defect("message of a sidecar that a resize restarts", "new", "The kubelet's event reads \"Container X resize requires restart\" for a sidecar as for any container; ours begins with \"Init container\"."),
		facts: func(s *State, f judge.Facts) {
			for _, c := range s.Containers {
				if s.isKind(c.Name, podrunner.Sidecar) && strings.HasPrefix(f["kill "+c.ID], "Container "+c.Name+" resize") {
					f["kill "+c.ID] = "Init c" + f["kill "+c.ID][1:]
				}
			}
		},
	}
}

func changedSidecar() deviation {
	return deviation{
		Rule: defect("sidecar whose definition changed before it started", "new", "The kubelet replaces a sidecar whose definition changed when its startup probe has succeeded; ours at once."),
		facts: func(s *State, f judge.Facts) {
			for i := range s.Pod.Spec.InitContainers {
				c := s.here(s.Pod.Spec.InitContainers[i].Name)
				if c == nil || !goesOn(s, f) || !s.isKind(c.Name, podrunner.Sidecar) || c.State != running || !s.changed(c) {
					continue
				}
				f["kill "+c.ID] = fmt.Sprintf("Init container %s definition changed (30s)", c.Name)
				if f["start "+c.Name] == "" {
					s.startNow(f, c.Name, c.Attempt+1)
				}
			}
		},
	}
}

func nextAfterSidecar() deviation {
	return deviation{
		Rule: defect("init container after a sidecar that is replaced", "23", "The kubelet starts the next init container while it replaces a sidecar; ours waits until the new sidecar has started."),
		facts: func(s *State, f judge.Facts) {
			c := s.turn()
			if c == nil || !goesOn(s, f) || !s.isKind(c.Name, podrunner.Sidecar) || f["kill "+c.ID] == "" {
				return
			}
			i := slices.IndexFunc(s.Pod.Spec.InitContainers, func(spec corev1.Container) bool { return spec.Name == c.Name })
			for _, spec := range slices.Concat(s.Pod.Spec.InitContainers[i+1:], s.Pod.Spec.Containers) {
				delete(f, "start "+spec.Name)
				delete(f, "wait "+spec.Name)
			}
			s.renewRetry(f)
		},
	}
}
