package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// since returns the end time from which the back-off of a container counts.
func (s *State) since(name string) time.Time {
	if c := (&State{Containers: slices.Concat(s.Containers, s.hidden)}).ended(name); c != nil {
		return c.Finished
	}
	return time.Time{}
}

// delays returns the initial and the maximum back-off.
func (s *State) delays() (initial, longest time.Duration) {
	if s.MaxDelay == 0 {
		return lifecycle.DefaultInitialBackoff, lifecycle.DefaultMaxBackoff
	}
	return min(lifecycle.DefaultInitialBackoff, s.MaxDelay), s.MaxDelay
}

// delay returns the back-off of a container, and whether it is in progress.
func (s *State) delay(name string) (delay time.Duration, waiting bool) {
	spec, _ := s.spec(name)
	b, key := s.kubeletBackoff(), kuberuntime.GetBackoffKey(s.Pod, spec)
	return b.Get(key), b.IsInBackOffSince(key, s.since(name))
}

// backOff turns the start of a container into a wait if its back-off is in progress.
func (s *State) backOff(f judge.Facts, name string) bool {
	delay, waiting := s.delay(name)
	if waiting {
		delete(f, "start "+name)
		f["wait "+name] = lifecycle.CrashLoopBackOff + ": " + lifecycle.CrashLoopMessage(delay, name, s.Pod)
		s.renewRetry(f)
	}
	return waiting
}

// startNow turns the wait of a container into a start.
func (s *State) startNow(f judge.Facts, name string, attempt int) {
	delete(f, "wait "+name)
	f["start "+name] = attemptText(uint32(attempt))
	s.renewRetry(f)
}

// renewRetry recomputes the time of the next plan after waits were added or removed.
func (s *State) renewRetry(f judge.Facts) {
	delete(f, "retry")
	var first time.Duration
	for name := range f {
		name, isWait := strings.CutPrefix(name, "wait ")
		if !isWait {
			continue
		}
		delay, _ := s.delay(name)
		left := s.since(name).Add(delay).Sub(s.Now)
		if f["retry"] == "" || left < first {
			first = left
			f["retry"] = left.Round(time.Second).String()
		}
	}
}

func initBackoff() deviation {
	return deviation{
		Rule: rule("init container back-off across sandboxes", judge.Deliberate, "After a new sandbox was created, the kubelet does not know when the init containers of the old sandbox ended. It therefore starts the new init containers at once; this package applies the back-off."),
		facts: func(s *State, f judge.Facts) {
			for _, c := range s.hidden {
				if f["start "+c.Name] != "" {
					s.backOff(f, c.Name)
				}
			}
		},
	}
}

func createdBefore() deviation {
	return deviation{
		Rule: rule("containers created but not started", judge.Deliberate, "If a container was created but not started, the kubelet creates another instance after the back-off. It never starts an ephemeral container in this state. This package starts the existing instance at once, with its restart count."),
		facts: func(s *State, f judge.Facts) {
			for _, name := range s.names() {
				c := s.here(name)
				if c == nil || c.State != created || c.brokenOff || newSandbox(f) || f["stop pod"] != "" || f["restart all"] != "" {
					continue
				}
				if f["start "+name]+f["wait "+name] != "" || s.isKind(name, podrunner.Ephemeral) && !s.ran(name) {
					s.startNow(f, name, c.Attempt)
					if s.changed(c) {
						continue
					}
					f["start "+name] += fmt.Sprintf(", made before as %s", c.ID)
				}
			}
		},
	}
}

// ran reports whether an instance of that name was started.
func (s *State) ran(name string) bool {
	return slices.ContainsFunc(s.Containers, func(c *Container) bool { return c.Name == name && c.State != created })
}

// changed reports whether a container was created from another definition than the current
// one.
func (s *State) changed(c *Container) bool {
	spec, k := s.spec(c.Name)
	return k != podrunner.Ephemeral && c.Hash != NoHash && c.From.Image != spec.Image
}

// housekeeping deletes old entries from the kubelet's back-off. If a rule has set waitsOut, it
// deletes only the entry of key, and only if our back-off would also delete it: the last start
// and the end of the following wait are both long ago.
func (s *State) housekeeping(b *flowcontrol.Backoff, now time.Time, key string, since time.Time, before []Start) {
	if !s.waitsOut {
		b.GC()
		return
	}
	var last time.Time
	for _, st := range before {
		if kuberuntime.GetBackoffKey(s.Pod, &st.From) == key {
			last = st.At
		}
	}
	if last.IsZero() {
		return
	}
	if end := since.Add(b.Get(key)); end.After(last) {
		last = end
	}
	if _, longest := s.delays(); now.Sub(last) > 2*longest {
		b.DeleteEntry(key)
	}
}

func waitsOut() deviation {
	return deviation{
		Rule: rule("back-off entry deleted during the wait", judge.KubeletDefect, "The kubelet forgets a container's back-off ten minutes after the container's last start, even if the container has ended since then and still waits. Here the container waits until the back-off ends."),
		state: func(s *State) bool {
			s.waitsOut = true
			_, longest := s.delays()
			return slices.ContainsFunc(s.Starts, func(st Start) bool { return s.Now.Sub(st.At) > longest })
		},
	}
}
