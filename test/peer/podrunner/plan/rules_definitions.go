package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

func clockSetBack() deviation {
	return deviation{
		Rule: rule("newest instance by restart count", judge.Deliberate, "For the kubelet, the newest instance of a container has the latest creation time. For this package, the newest instance has the highest restart count, because clocks may be set back (kubernetes#134153)."),
		state: func(s *State) bool {
			all := slices.Clone(s.Containers)
			slices.SortStableFunc(all, func(a, b *Container) int {
				return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Attempt, b.Attempt), a.Created.Compare(b.Created))
			})
			changed := false
			for i, c := range all {
				if i > 0 && all[i-1].Name == c.Name && c.Created.Before(all[i-1].Created) {
					c.Created, changed = all[i-1].Created.Add(time.Nanosecond), true
				}
			}
			return changed
		},
	}
}

func noHash() deviation {
	return deviation{
		Rule: rule("containers without a hash", judge.Deliberate, "The kubelet replaces a container that has no hash. This package does not replace it, because another agent created it."),
		state: func(s *State) (changed bool) {
			for _, c := range s.Containers {
				spec, _ := s.spec(c.Name)
				if c.Hash == NoHash && spec != nil {
					c.Hash, c.From.Image, changed = OtherHash, spec.Image, true
				}
			}
			return changed
		},
	}
}

func wholeDefinition() deviation {
	return deviation{
		Rule: rule("hash of the whole container definition", judge.Deliberate, "The kubelet's hash of a container's definition covers its name and image. The hash of this package covers everything except resources and the resize policy, because pods from files may change in other ways."),
		state: func(s *State) (changed bool) {
			for _, c := range s.Containers {
				spec, _ := s.spec(c.Name)
				if c.Hash == OwnHash && spec != nil && c.From.Image == spec.Image && podspec.ContainerHash(&c.From) != podspec.ContainerHash(spec) {
					c.From.Image, changed = "another", true
				}
			}
			return changed
		},
	}
}

func failedStarts() deviation {
	return deviation{
		Rule: rule("back-off after failed starts", judge.Deliberate, "The kubelet's restart back-off grows with each attempt to start a container; here it grows with each instance that was created."),
		state: func(s *State) bool {
			n := len(s.Starts)
			s.Starts = slices.DeleteFunc(s.Starts, func(st Start) bool { return st.Failed })
			return n != len(s.Starts)
		},
	}
}

// brokenOff reports whether c's start was interrupted.
func brokenOff(c *Container) bool {
	return c.State == exited && c.Reason == "StartError" && strings.HasSuffix(c.Message, "context canceled")
}

// markBrokenOff changes containers whose start was interrupted to created ones.
func (s *State) markBrokenOff() (changed bool) {
	for _, c := range s.Containers {
		if brokenOff(c) {
			c.State, c.brokenOff, changed = created, true, true
		}
	}
	return changed
}

func startBrokenOff() deviation {
	return deviation{
		Rule:  rule("interrupted container start", judge.Deliberate, "If an agent is killed while it starts a container, the kubelet counts the container as exited with code 128. Here the container has not failed, and the same attempt is made again."),
		state: (*State).markBrokenOff,
		facts: func(s *State, f judge.Facts) {
			for _, name := range s.names() {
				c := s.here(name)
				if c != nil && c.brokenOff && goesOn(s, f) &&
					(f["start "+name]+f["wait "+name] != "" || s.isKind(name, podrunner.Ephemeral) && !s.ran(name)) {
					s.startNow(f, name, c.Attempt)
				}
				if c := s.ended(name); c == nil || !c.brokenOff {
					continue
				}
				if last := s.newest(name); f["wait "+name] != "" { // since the previous end
					s.startNow(f, name, last.Attempt+1)
				}
				if f["start "+name] != "" {
					s.backOff(f, name)
				}
			}
		},
	}
}

// backoffKeyDefinition assigns the starts before a change of the definition to another
// back-off entry.
func backoffKeyDefinition() deviation {
	return deviation{
		Rule: rule("back-off of a changed definition", judge.Deliberate, "The kubelet resets the restart back-off of a container when its image or resources change; this package resets it when any part of the container's definition changes."),
		state: func(s *State) bool {
			return s.startsOf(func(was, is *corev1.Container) bool {
				return was.Image == is.Image && podspec.ContainerHash(was) != podspec.ContainerHash(is)
			}, func(st *Start, _ *corev1.Container) { st.From.Image = "another" })
		},
	}
}

// startsOf changes the recorded starts of containers whose definition differs from the spec.
func (s *State) startsOf(differs func(was, is *corev1.Container) bool, change func(*Start, *corev1.Container)) (changed bool) {
	for i := range s.Starts {
		st := &s.Starts[i]
		if is, _ := s.spec(st.From.Name); is != nil && differs(&st.From, is) {
			change(st, is)
			changed = true
		}
	}
	return changed
}
