package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// killed is the exit code of a container whose end was not observed.
const killed = 137

// usable reports whether the newest sandbox continues to be used.
func (s *State) usable() bool {
	b := s.box()
	ready := 0
	for _, other := range s.Boxes {
		if other.Ready {
			ready++
		}
	}
	return b != nil && b.Ready && ready == 1 && (s.Pod.Spec.HostNetwork || !b.Network || b.IP != "") &&
		(b.NoLinux || b.Host == s.Pod.Spec.HostNetwork)
}

// outcome returns a container's exit code for our plan: a container that runs in an unused
// sandbox counts as killed.
func (s *State) outcome(c *Container) (code int32, ended bool) {
	switch {
	case c == nil || c.was == nil || c.State == created:
		return 0, false
	case c.was.State == exited:
		return c.was.Code, true
	default:
		return killed, !s.usable() || s.here(c.Name) != c
	}
}

// done reports whether a container has terminated or fails a probe, and is not restarted.
func (s *State) done(spec *corev1.Container) bool {
	c := s.here(spec.Name)
	if s.fails(c) || s.Pod.DeletionTimestamp != nil && s.usable() && (c == nil || c.State != running) {
		return true
	}
	code, ended := s.outcome(s.newest(spec.Name))
	return ended && !s.restarts(spec.Name, code)
}

// fails reports whether c is running and fails a probe, and is not restarted because of it.
func (s *State) fails(c *Container) bool {
	if c == nil || !s.usable() || s.here(c.Name) != c || c.State != running || s.changed(c) {
		return false
	}
	spec, _ := s.spec(c.Name)
	return (spec.LivenessProbe != nil && c.Liveness == Failed || spec.StartupProbe != nil && c.Startup == Failed) && !s.comesAgain(c.Name)
}

// comesAgain reports whether a container without a known exit code is restarted.
func (s *State) comesAgain(name string) bool {
	spec, _ := (&State{Pod: s.policies}).spec(name)
	if spec.RestartPolicy != nil {
		return *spec.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	return s.policies.Spec.RestartPolicy != corev1.RestartPolicyNever
}

// restarts reports whether the pod's restart policies and rules restart a container.
func (s *State) restarts(name string, code int32) bool {
	spec, _ := (&State{Pod: s.policies}).spec(name)
	return podspec.ShouldRestart(s.policies, spec, code)
}

func noNamespaces() deviation {
	return deviation{
		Rule: rule("sandbox without namespaces", judge.KubeletDefect, "If a pod uses the host's network and the runtime does not report the namespaces of the sandbox, the kubelet creates the sandbox again and again. This package uses the existing sandbox."),
		state: func(s *State) bool {
			b := s.box()
			if b == nil || !b.NoLinux {
				return false
			}
			b.NoLinux, b.Host = false, s.Pod.Spec.HostNetwork
			return true
		},
	}
}

// ownPolicies makes the kubelet apply the containers' own restart policies when it replaces a
// sandbox.
func ownPolicies() deviation {
	return deviation{
		Rule: rule("container restart policies in new sandboxes", judge.KubeletDefect, "When the kubelet creates the sandbox of a pod without init containers again, it starts a container that has ended, even if the container's own policy forbids a restart. It does not start a container that has ended with exit code 0, even if the container's rules require a restart. This package always follows policy and rules."),
		state: func(s *State) (changed bool) {
			if s.usable() || s.restartsAll() {
				return false
			}
			for i := range s.Pod.Spec.Containers {
				c := &s.Pod.Spec.Containers[i]
				if c.RestartPolicy != nil {
					s.settle(c)
					c.RestartPolicy, changed = new(corev1.ContainerRestartPolicyOnFailure), true
				}
			}
			return changed
		},
	}
}

// settle changes a container so that the kubelet with OnFailure skips or starts it as our
// plan does.
func (s *State) settle(spec *corev1.Container) {
	c := s.newest(spec.Name)
	if c == nil {
		return
	}
	s.notRestarting = true // because of an exit code that the container does not have
	if s.done(spec) {
		c.State, c.Code, c.Reason = exited, 0, "Completed"
	} else if c.State == exited {
		c.Code = 1
	}
}

func neverRemoved() deviation {
	return deviation{
		Rule:  rule("removed sandbox with restartPolicy Never", judge.KubeletDefect, "If the sandbox of a pod with restartPolicy Never was removed from the runtime, the kubelet runs all containers of the pod again. This package runs only the containers that had never been created."),
		state: func(s *State) bool { return len(s.Boxes) == 0 && s.runOnce() },
	}
}

func never() deviation {
	return deviation{
		Rule:  rule("dead sandbox with restartPolicy Never", judge.Deliberate, "If a container of a pod with restartPolicy Never had not been created when the sandbox ended, this package starts the container in the new sandbox. The kubelet leaves the pod Pending for ever."),
		state: func(s *State) bool { return len(s.Boxes) > 0 && s.runOnce() },
	}
}

// runOnce changes the kubelet's input for a new sandbox of a pod with Never: the policy
// becomes OnFailure, and all terminated containers have succeeded.
func (s *State) runOnce() bool {
	if s.usable() || s.restartsAll() || s.Pod.Spec.RestartPolicy != corev1.RestartPolicyNever || len(s.Containers) == 0 {
		return false
	}
	for i := range s.Pod.Spec.Containers {
		s.settle(&s.Pod.Spec.Containers[i])
	}
	s.Pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	return true
}

// hide removes all instances of a name from the kubelet's input.
func (s *State) hide(name string) {
	s.Logs[name] = s.newest(name).Attempt + 1
	for _, c := range s.Containers {
		if c.Name == name {
			s.hidden = append(s.hidden, c)
		}
	}
	s.Containers = slices.DeleteFunc(s.Containers, func(c *Container) bool { return c.Name == name })
}

// find returns a container that may be hidden.
func (s *State) find(id string) *Container {
	return (&State{Containers: slices.Concat(s.Containers, s.hidden)}).container(id)
}

// newestHidden returns the newest of the instances that are hidden.
func (s *State) newestHidden(name string) *Container {
	return (&State{Containers: s.hidden}).newest(name)
}

// otherSandbox removes everything outside of the current sandbox from the kubelet's input.
func otherSandbox() deviation {
	return deviation{
		Rule: rule("containers of an earlier sandbox", judge.KubeletDefect, "If the kubelet could not stop or remove containers of an earlier sandbox, it treats them as containers of the current sandbox; this package does not."),
		state: func(s *State) (changed bool) {
			if !s.usable() || s.restartsAll() {
				return false
			}
			for _, name := range s.names() {
				c := s.newest(name)
				if c == nil || s.here(name) != nil || s.isKind(name, podrunner.Ephemeral) {
					continue
				}
				switch {
				case !s.isKind(name, podrunner.Regular) || c.State == created:
					s.hide(name)
					changed = true
				case live(c):
					s.notRestarting = true
					c.State, c.Code, c.Finished, changed = exited, killed, s.since(name), true
				}
			}
			return changed
		},
	}
}

// overAgain is about terminated pods in which nothing is left to stop.
func overAgain() deviation {
	return deviation{
		Rule: rule("repeated stop of dead sandboxes", judge.Deliberate, "The kubelet stops the dead sandboxes of an ended pod in each sync; this package stops them only while a part of the pod runs."),
		facts: func(s *State, f judge.Facts) {
			if f["stop pod"] != "" && !newSandbox(f) && !s.runs() {
				delete(f, "stop pod")
			}
		},
	}
}

// runs reports whether anything of the pod is running or in an unknown state.
func (s *State) runs() bool {
	return slices.ContainsFunc(s.Boxes, func(b *Box) bool { return b.Ready }) || slices.ContainsFunc(s.Containers, live) || slices.ContainsFunc(s.hidden, live)
}

func unknownWithoutSandbox() deviation {
	return deviation{
		Rule: rule("unknown-state containers without a sandbox", judge.KubeletDefect, "When the kubelet stops a pod, it does not stop containers in an unknown state. If their sandbox does not exist, these containers continue to run. This package stops them."),
		facts: func(s *State, f judge.Facts) {
			if !s.usable() && s.runs() {
				f["stop pod"] = "yes"
			}
		},
	}
}

func sandboxBackoff() deviation {
	return deviation{
		Rule: rule("back-off of a sandbox", judge.Deliberate, "If a sandbox ends soon after its creation, this package creates a new sandbox only after the restart back-off; the kubelet creates a new sandbox at once."),
		facts: func(s *State, f judge.Facts) {
			if !newSandbox(f) || len(s.Boxes) == 0 {
				return
			}
			clock := testingclock.NewFakeClock(s.Now)
			initial, longest := s.delays()
			b := flowcontrol.NewFakeBackOff(initial, longest, clock)
			for _, st := range s.BoxStarts {
				clock.SetTime(st.At)
				b.GC()
				b.Next(sandboxKey, st.Since)
			}
			clock.SetTime(s.Now)
			since := s.box().Created
			if !b.IsInBackOffSince(sandboxKey, since) {
				return
			}
			delay := b.Get(sandboxKey)
			for _, name := range s.names() {
				if f["start "+name] != "" {
					delete(f, "start "+name)
					f["wait "+name] = fmt.Sprintf("%s: back-off %s re-creating failed sandbox of pod=pod_ns(%s)", lifecycle.CrashLoopBackOff, delay, podUID)
				}
			}
			left := since.Add(delay).Sub(s.Now)
			if until, err := time.ParseDuration(f["retry"]); err == nil {
				left = min(left, until)
			}
			f["retry"] = left.Round(time.Second).String()
			delete(f, "sandbox")
			if !s.runs() {
				delete(f, "stop pod")
			}
		},
	}
}

func ephemeralOfStopped() deviation {
	return deviation{
		Rule: rule("ephemeral container in a stopped pod", judge.KubeletDefect, "After the kubelet has stopped a pod because the pod has failed, it still starts a new ephemeral container in the pod's sandbox; this package does not."),
		facts: func(s *State, f judge.Facts) {
			for _, name := range s.names() {
				if f["stop pod"] != "" && !newSandbox(f) && s.isKind(name, podrunner.Ephemeral) {
					delete(f, "start "+name)
				}
			}
		},
	}
}
