package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// drawEvent draws what may happen at any time.
func drawEvent(d *judge.Draw) Event {
	e := Event{Which: d.Int(60)}
	switch n := d.Int(100); {
	case n < 45:
		x := drawExit(d)
		return Event{What: "exit", Which: e.Which, exit: x}
	case n < 53:
		return Event{What: "probe", Which: e.Which, found: judge.Pick(d, Succeeded, Failed, Unknown), startup: d.Chance(50)}
	case n < 58:
		e.What = judge.Pick(d, "container state unknown", "container state known again")
	case n < 61:
		e.What = "runtime forgets container"
	case n < 68:
		e.What = judge.Pick(d, "sandbox dies", "sandbox dies, containers run on", "sandbox is removed", "sandbox loses its IP", "second sandbox", "sandbox network mode changes")
	case n < 76:
		e.What = "image"
	case n < 78:
		e.What = "definition"
	case n < 90:
		e.What, e.resources = "resources", drawResources(d)
	case n < 92:
		e.What, e.resources = "pod resources", drawPodResources(d)
	case n < 94:
		e.What = "add ephemeral container"
	case n < 95:
		e.What = "delete"
	case n < 96:
		e.What = "container removed from spec"
	case n < 97:
		e.What = "agent restarts"
	case n < 98:
		e.What, e.resources = "resize in mid-initialization", drawResources(d)
	default:
		e.What = "memory in use"
	}
	return e
}

// An Event is a change of the pod or of the runtime.
type Event struct {
	What  string
	Which int // index of the object among those to which the event can apply

	exit      exit
	found     Found
	startup   bool
	resources corev1.ResourceRequirements
}

func (e Event) String() string {
	text := fmt.Sprintf("%s (%d)", e.What, e.Which)
	switch e.What {
	case "exit":
		text += fmt.Sprintf(" %+v", e.exit)
	case "probe":
		text += fmt.Sprintf(" startup=%v found=%d", e.startup, e.found)
	case "resources", "pod resources", "resize in mid-initialization":
		text += " " + resourcesText(e.resources)
	}
	return text
}

// pick returns the object to which an event applies, or the zero value.
func pick[T any](e Event, all []T, fits func(T) bool) (v T) {
	var some []T
	for _, v := range all {
		if fits(v) {
			some = append(some, v)
		}
	}
	if len(some) == 0 {
		return v
	}
	return some[e.Which%len(some)]
}

func (s *State) apply(e Event) {
	switch e.What {
	case "exit":
		if c := pick(e, s.Containers, func(c *Container) bool { return c.State == running }); c != nil {
			e.exit.apply(s, c)
		}
	case "probe":
		s.applyProbe(e)
	case "container state unknown":
		if c := pick(e, s.Containers, func(c *Container) bool { return c.State == running }); c != nil {
			c.State = unknownState
		}
	case "container state known again":
		if c := pick(e, s.Containers, func(c *Container) bool { return c.State == unknownState }); c != nil {
			c.State = running
		}
	case "runtime forgets container":
		if c := pick(e, s.Containers, func(c *Container) bool { return c.State != running }); c != nil {
			s.remove(c.ID)
		}
	case "agent restarts":
		s.Starts, s.BoxStarts = nil, nil
		for _, c := range s.Containers {
			c.Startup, c.Liveness = NotProbed, Succeeded
			if c.From.StartupProbe == nil {
				c.Startup = Succeeded
			}
		}
	case "memory in use":
		s.Used = 1 << 30
	case "resize in mid-initialization":
		s.resizeInMidInitialization(e)
	default:
		s.applyBox(e)
		s.applyEdit(e)
	}
}

// resizeInMidInitialization makes an init container fail and changes the resources of a
// running sidecar.
func (s *State) resizeInMidInitialization(e Event) {
	s.Pod = s.Pod.DeepCopy()
	runs := func(k kind) *Container {
		return pick(e, s.Containers, func(c *Container) bool { return c.State == running && s.inSpec(c.Name) && s.isKind(c.Name, k) })
	}
	init, sidecar := runs(podrunner.Init), runs(podrunner.Sidecar)
	if init == nil || sidecar == nil {
		return
	}
	s.end(init, 1, "Error")
	spec, _ := s.spec(sidecar.Name)
	spec.Resources = e.resources
}

func (s *State) applyProbe(e Event) {
	c := pick(e, s.Containers, func(c *Container) bool {
		return c.State == running && (e.startup && c.From.StartupProbe != nil || !e.startup && c.From.LivenessProbe != nil)
	})
	switch {
	case c == nil:
	case e.startup:
		c.Startup, c.Liveness = e.found, Succeeded
	case c.Startup == Succeeded:
		c.Liveness = e.found
	}
}

func (s *State) applyBox(e Event) {
	b := s.box()
	if b == nil {
		return
	}
	switch e.What {
	case "sandbox dies":
		s.stopSandbox(b.ID)
	case "sandbox dies, containers run on":
		b.Ready = false
	case "sandbox is removed":
		s.stopSandbox(b.ID)
		for i := range s.Boxes {
			if s.Boxes[i] == b {
				s.Boxes = append(s.Boxes[:i:i], s.Boxes[i+1:]...)
				break
			}
		}
	case "sandbox loses its IP":
		b.IP = ""
	case "second sandbox":
		s.runSandbox(b.Attempt + 1)
	case "sandbox network mode changes":
		b.Host = !b.Host
	}
}

// applyEdit changes the pod.
func (s *State) applyEdit(e Event) {
	s.Pod = s.Pod.DeepCopy()
	spec := &s.Pod.Spec
	var all []*corev1.Container
	for i := range spec.InitContainers {
		all = append(all, &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		all = append(all, &spec.Containers[i])
	}
	c := all[e.Which%len(all)]
	switch e.What {
	case "image":
		c.Image += "0"
	case "definition":
		c.WorkingDir += "/x"
	case "resources":
		c.Resources = e.resources
	case "pod resources":
		spec.Resources = &e.resources
	case "add ephemeral container":
		spec.EphemeralContainers = append(spec.EphemeralContainers, ephemeral(len(spec.EphemeralContainers)))
	case "delete":
		s.Pod.DeletionTimestamp = &metav1.Time{Time: s.Now}
	case "container removed from spec":
		if len(spec.Containers) > 1 {
			spec.Containers = spec.Containers[1:]
		}
	}
}
