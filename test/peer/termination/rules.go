package termination

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const doc = "lifecycle/doc.go"

// A deviation is a rule, and a change to the world after which the kubelet does what our side
// does. The function change reports whether it changed the world.
type deviation struct {
	judge.Rule[*world]

	change func(*world) bool
}

func deviations() []deviation {
	rule := func(name string, class judge.Class, sentence string) judge.Rule[*world] {
		return judge.Rule[*world]{Name: name, Class: class, Sentence: sentence, Doc: doc}
	}
	return []deviation{
		{
			Rule: rule("preStop hook after an agent restart", judge.Deliberate,
				"After its own restart, the kubelet runs a preStop hook again. Here the hook runs once, if the caller sets ContainerState.PreStopped."),
			change: hooksRanBefore,
		},
		{
			Rule: rule("preStop hook of an exited container", judge.Deliberate,
				"If a container ends while its preStop hook runs, for example a sleep, the kubelet waits for the hook; here the hook is cancelled."),
			change: hooksEnd,
		},
		{
			Rule: rule("sidecar order with stopped sidecars", judge.KubeletDefect,
				"When the kubelet stops a pod, a sidecar waits only for the next sidecar in the spec. If the next sidecar does not run, the sidecar waits for no other sidecar. Here a sidecar waits for all sidecars that come after it."),
			change: sidecarsInRow,
		},
		{
			Rule: rule("sidecars while an init container runs", judge.KubeletDefect,
				"The kubelet stops sidecars while an init container still runs and may need them; here the sidecars are stopped after the init container."),
			change: initContainersFirst,
		},
		{
			Rule: rule("sidecars after a failed stop", judge.KubeletDefect,
				"In the kubelet, sidecars wait until the end of the grace period for a container that can't be stopped. Here they wait only until the stop has failed."),
			change: func(w *world) bool {
				w.quiet = true
				return slices.ContainsFunc(w.Containers, func(c *container) bool { return c.Fails > 0 })
			},
		},
		{
			Rule: rule("fractional seconds of grace periods", judge.Deliberate,
				"From a container's grace period, the kubelet subtracts the duration of the preStop hook and of the wait for other containers. It rounds each duration down to whole seconds, so a container may get up to two seconds more than the grace period of its pod. Here the time left until the deadline is rounded up."),
			change: func(w *world) bool {
				w.scale = 10_000 // makes all durations whole seconds
				return true
			},
		},
	}
}

func rules() (all []judge.Rule[*world]) {
	for _, d := range deviations() {
		all = append(all, d.Rule)
	}
	return all
}

func predict(t *testing.T) func(judge.Scene[*world]) []judge.Prediction {
	t.Helper()
	return func(sc judge.Scene[*world]) []judge.Prediction {
		if sc.World.predicted == nil {
			sc.World.predicted = sc.World.predict(t, sc.KubeletFacts[0])
		}
		return sc.World.predicted
	}
}

func (w *world) predict(t *testing.T, kubelet judge.Facts) []judge.Prediction {
	t.Helper()
	p := []judge.Prediction{{Facts: kubelet, By: -1}}
	changed := w.clone()
	for i, d := range deviations() {
		f := p[len(p)-1].Facts
		if d.change(changed) {
			f = w.kubelet.play(t, changed.clone())[0]
		}
		p = append(p, judge.Prediction{Facts: f, By: i})
	}
	return p
}

func (w *world) clone() *world {
	c := *w
	c.Pod, c.Containers, c.predicted = w.Pod.DeepCopy(), nil, nil
	for _, one := range w.Containers {
		c.Containers = append(c.Containers, new(*one))
	}
	return &c
}

// hooksRanBefore removes the hooks that have already run according to our side.
func hooksRanBefore(w *world) (changed bool) {
	for _, list := range [][]corev1.Container{w.Pod.Spec.Containers, w.Pod.Spec.InitContainers} {
		for i := range list {
			if w.container(list[i].Name).HookRan {
				list[i].Lifecycle, changed = nil, true
			}
		}
	}
	return changed
}

// hooksEnd ends hooks with their containers.
func hooksEnd(w *world) (changed bool) {
	for _, c := range w.Containers {
		if c.Survives {
			c.Survives, changed = false, true
		}
	}
	return changed
}

// sidecarsInRow removes sidecars that are not running.
func sidecarsInRow(w *world) bool {
	before := len(w.Pod.Spec.InitContainers)
	w.Pod.Spec.InitContainers = slices.DeleteFunc(w.Pod.Spec.InitContainers, func(c corev1.Container) bool { return !w.container(c.Name).Running })
	return len(w.Pod.Spec.InitContainers) < before
}

// initContainersFirst makes init containers regular ones.
func initContainersFirst(w *world) bool {
	spec := &w.Pod.Spec
	before := len(spec.Containers)
	for _, c := range spec.InitContainers {
		if c.RestartPolicy == nil {
			spec.Containers = append(spec.Containers, c)
		}
	}
	spec.InitContainers = slices.DeleteFunc(spec.InitContainers, func(c corev1.Container) bool { return c.RestartPolicy == nil })
	return len(spec.Containers) > before
}

// left returns our grace period for a container that is stopped now: whole seconds, at least
// two.
func (n *node) left() time.Duration {
	left := time.Duration(n.w.Grace)*time.Second - n.elapsed()
	return max(2*time.Second, left+(time.Second-left%time.Second)%time.Second)
}
