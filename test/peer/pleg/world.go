package pleg

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A World is the history of a runtime, and the relists of both sides.
type World struct {
	// Capacity is the capacity of the kubelet's event channel.
	Capacity int
	// Unfiltered is set if the runtime ignores the filters of lists.
	Unfiltered bool
	// Places is the number of pods that our Generator inspects concurrently.
	Places int
	// Selector is set if our Generator has a label selector, and other agents share the
	// runtime.
	Selector bool
	Steps    []Step

	model *model // made by the kubelet's side, for the rules
}

// A Step changes the runtime and then relists it.
type Step struct {
	At      time.Duration // since the start of the world
	Changes []Change
	// Reinspect is the pods that are inspected even if they have not changed.
	Reinspect []string
	// Waiters begin to wait before the relist.
	Waiters []Waiter
	Look    Look
	// Cut is the number of events after which our relist is cancelled and repeated; 0 means
	// never.
	Cut int
	// Turn is the number of positions by which lists are rotated.
	Turn int
}

// A Look is a relist, and its failures.
type Look struct {
	Pod   string // relist of this pod; "" for all pods
	None  bool   // no relist
	Fails string // the list that fails: "sandboxes" or "containers"
}

// A Change puts an object into the runtime or removes it.
type Change struct {
	Phase  int // 0 before the look, 1 between the lists, 2 after them
	Put    *Object
	Remove string
}

// A Waiter requests a status that is newer than a time.
type Waiter struct {
	Pod string
	For time.Duration // since the start of the world
}

// An Object is a sandbox or a container in the runtime.
type Object struct {
	ID, Pod string // Pod is empty if nothing identifies the pod
	Sandbox string // of a container only
	Name    string // of a container only
	NoName  bool   // of a container, the label with the name is missing; of a sandbox, the name
	// Unlabelled is set if it has no labels at all.
	Unlabelled bool
	Attempt    uint32
	Restarts   string // value of the restart count annotation; empty if missing
	// State is the CRI state: for a sandbox, 0 is ready and 1 is not ready.
	State                      int32
	Created, Started, Finished int64
	Exit                       int32
	Reason, Message            string
	Memory                     int64
	IP, More                   string // addresses; More is separated by blanks
	// Fails is the failure of its status call: "error", or "empty".
	Fails string
	Slow  int // duration of the status call in seconds
}

const (
	ready   = int32(runtimeapi.PodSandboxState_SANDBOX_READY)
	created = int32(runtimeapi.ContainerState_CONTAINER_CREATED)
	running = int32(runtimeapi.ContainerState_CONTAINER_RUNNING)
	exited  = int32(runtimeapi.ContainerState_CONTAINER_EXITED)
	lost    = int32(runtimeapi.ContainerState_CONTAINER_UNKNOWN)
	strange = int32(7) // a value that is unknown to both sides
)

// String describes a world.
func (w *World) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "channel of %d, %d inspections at a time, unfiltered lists %t, selector %t\n", w.Capacity, w.Places, w.Unfiltered, w.Selector)
	for i, s := range w.Steps {
		look := cmp.Or(s.Look.Pod, "all pods")
		if s.Look.None {
			look = "nothing"
		}
		fmt.Fprintf(&b, "step %d at %v: look at %s", i, s.At, look)
		if s.Look.Fails != "" {
			fmt.Fprintf(&b, ", the list of %s fails", s.Look.Fails)
		}
		if s.Cut > 0 {
			fmt.Fprintf(&b, ", cut short after %d events", s.Cut)
		}
		fmt.Fprintf(&b, ", lists turned by %d\n", s.Turn)
		for _, c := range s.Changes {
			when := [...]string{"", " between the lists", " after the lists"}[c.Phase]
			if c.Put == nil {
				fmt.Fprintf(&b, "    remove %s%s\n", c.Remove, when)
				continue
			}
			fmt.Fprintf(&b, "    put%s %+v\n", when, *c.Put)
		}
		if len(s.Reinspect) > 0 {
			fmt.Fprintf(&b, "    reinspect %v\n", s.Reinspect)
		}
		for _, waiter := range s.Waiters {
			fmt.Fprintf(&b, "    wait for %s as of %v\n", waiter.Pod, waiter.For)
		}
	}
	return b.String()
}

func (o *Object) isSandbox() bool { return o.Sandbox == "" }

// uids are the pods of a world.
func uids() []string { return []string{"p1", "p2", "p3"} }

// A maker draws a world and tracks the resulting state of the runtime.
type maker struct {
	*judge.Draw
	node    *node
	made    int
	now     time.Duration
	created int64
	slow    bool // the world has slow objects
	bare    bool // the world has objects without labels
	plain   bool // our relists can be cancelled, and no status changes without its state
	pods    []string
	fresh   []string // sandboxes made in this step
}

func newWorld(d *judge.Draw) *World {
	m := maker{Draw: d, node: newNode(&World{}), created: 1000}
	w := &World{
		Capacity: judge.Pick(d, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1),
		Places:   judge.Pick(d, 8, 1, 2, 4),
	}
	w.Unfiltered = d.Chance(10)
	m.slow = w.Places > 1 && d.Chance(20) // otherwise the order is random
	m.plain = !m.slow && d.Chance(15)
	m.bare = !m.slow && !m.plain && d.Chance(8)
	if w.Selector = !m.bare && d.Chance(15); w.Selector {
		w.Unfiltered = d.Chance(50)
	}
	if m.pods = uids()[:d.Between(1, 3)]; m.slow {
		m.pods = uids() // more pods than places
	}
	for range d.Between(2, 10) {
		w.Steps = append(w.Steps, m.step())
	}
	return w
}

func (m *maker) step() Step {
	s := Step{Look: m.look(), Turn: judge.Pick(m.Draw, 0, 0, 0, 1, 2, 3)}
	m.now += judge.Pick(m.Draw, time.Second, time.Second, 200*time.Millisecond, 0, 3*time.Second, 70*time.Second, 200*time.Second)
	if m.now += m.node.slowest(); m.slow {
		m.now += time.Second // leaves time for observations
	}
	s.At, m.fresh = m.now, nil
	for range m.Between(0, 4) {
		if c, ok := m.change(); ok {
			if c.Phase = judge.Pick(m.Draw, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2); len(s.Changes) > 0 {
				c.Phase = max(c.Phase, s.Changes[len(s.Changes)-1].Phase)
			}
			m.node.apply(c)
			s.Changes = append(s.Changes, c)
		}
	}
	if m.Chance(15) {
		s.Reinspect = append(s.Reinspect, judge.Pick(m.Draw, uids()...))
	}
	if m.Chance(25) {
		after := judge.Pick(m.Draw, 0, -time.Second, 100*time.Millisecond, time.Second, time.Minute)
		s.Waiters = append(s.Waiters, Waiter{judge.Pick(m.Draw, uids()...), m.now + after})
	}
	late := slices.ContainsFunc(s.Changes, func(c Change) bool { return c.Phase > 0 })
	if m.plain && !late && s.Look.Fails == "" && m.Chance(50) {
		s.Cut = m.Between(1, 3)
	}
	return s
}

func (m *maker) look() (l Look) {
	switch m.Int(10) {
	default:
	case 7, 8:
		l.Pod = judge.Pick(m.Draw, uids()...)
	case 9:
		l.None = true
	}
	if !l.None && m.Chance(8) {
		l.Fails = judge.Pick(m.Draw, "sandboxes", "containers")
	}
	return l
}

// change draws one change. ok is false if nothing can be changed.
func (m *maker) change() (c Change, ok bool) {
	if m.Chance(3) {
		return m.stray(), true
	}
	pod := judge.Pick(m.Draw, m.pods...)
	kind := m.Int(16)
	sandboxes, containers := m.node.of(pod)
	put := func(o Object) (Change, bool) { return Change{Put: &o}, true }
	any := func(all []*Object) (o Object, ok bool) {
		if len(all) == 0 {
			return Object{}, false
		}
		return *judge.Pick(m.Draw, all...), true
	}
	if m.slow && m.Chance(50) {
		if o, found := any(slices.Concat(sandboxes, containers)); found {
			return put(m.trouble(o))
		}
	}
	switch {
	case len(sandboxes) == 0 && kind < 8, kind == 8:
		return put(m.newSandbox(pod, sandboxes))
	case kind < 3 && len(sandboxes) > 0:
		return put(m.newContainer(pod, sandboxes))
	case kind < 7:
		if o, found := any(containers); found {
			return put(m.newState(o))
		}
	case kind == 9:
		if o, found := any(sandboxes); found {
			o.State = judge.Pick(m.Draw, 1-o.State, ready, strange)
			if !m.plain && m.Chance(50) {
				o.IP, o.More = "", ""
			}
			return put(o)
		}
	case kind == 10 && !m.plain:
		if o, found := any(sandboxes); found {
			o.IP, o.More = m.addresses()
			return put(o)
		}
	case kind == 11 && !m.plain:
		if o, found := any(containers); found {
			return put(m.touch(o))
		}
	case (kind == 12 || kind == 13) && !m.plain:
		if o, found := any(append(sandboxes, containers...)); found {
			return put(m.trouble(o))
		}
	default:
		if o, found := any(append(sandboxes, containers...)); found && !m.node.holdsUnlabelled(o.ID) {
			return Change{Remove: o.ID}, true
		}
	}
	return Change{}, false
}

// stray changes an object that nothing assigns to a pod.
func (m *maker) stray() Change {
	sandboxes, containers := m.node.of("")
	all := append(sandboxes, containers...)
	if len(all) > 0 && m.Chance(60) {
		o := *judge.Pick(m.Draw, all...)
		switch {
		case m.Chance(40):
			return Change{Remove: o.ID}
		case o.isSandbox():
			o.State = judge.Pick(m.Draw, 1-o.State, ready, strange)
		default:
			o = m.newState(o)
		}
		return Change{Put: &o}
	}
	o := Object{ID: m.id("x", "s"), Created: m.nextCreated(), Attempt: uint32(len(sandboxes))}
	if m.Chance(50) {
		o = m.newState(Object{ID: m.id("x", "c"), Created: o.Created, Name: "main", Restarts: "0", Sandbox: "gone"})
		if len(sandboxes) > 0 {
			o.Sandbox = sandboxes[0].ID
		}
	}
	return Change{Put: &o}
}

// nextCreated returns a creation time: mostly later than the last.
func (m *maker) nextCreated() int64 {
	m.created += judge.Pick(m.Draw, int64(10), 10, 10, 10, 10, 10, -25, 0)
	return m.created
}

func (m *maker) id(pod, kind string) string {
	m.made++
	return fmt.Sprintf("%s%s%d", pod, kind, judge.Pick(m.Draw, m.made, m.made, 1000-m.made))
}

func (m *maker) newSandbox(pod string, before []*Object) Object {
	o := Object{ID: m.id(pod, "s"), Pod: pod, Created: m.nextCreated()}
	for _, b := range before {
		o.Attempt = max(o.Attempt, b.Attempt+1)
	}
	if m.Chance(5) {
		o.Attempt = 0
	}
	if m.Chance(10) {
		o.State = judge.Pick(m.Draw, 1, strange)
	}
	o.IP, o.More = m.addresses()
	noName := 4
	if m.bare {
		noName = 50 // the pod's name then comes from a container
	}
	o.Unlabelled, o.NoName = m.bare && m.Chance(30), m.Chance(noName)
	m.fresh = append(m.fresh, o.ID)
	return o
}

func (m *maker) addresses() (ip, more string) {
	ip = judge.Pick(m.Draw, "10.0.0.1", "10.0.0.2", "10.0.0.3", "", "fd00::1", "010.0.0.1", "bad")
	if m.Chance(30) {
		more = judge.Pick(m.Draw, "fd00::2", "fd00::2 10.1.0.1", "bad", "bad fd00::3", "fd00::4 010.1.0.1")
	}
	return ip, more
}

func (m *maker) newContainer(pod string, sandboxes []*Object) Object {
	newest := slices.MaxFunc(sandboxes, func(a, b *Object) int { return int(a.Attempt) - int(b.Attempt) })
	o := Object{
		ID: m.id(pod, "c"), Pod: pod, Sandbox: newest.ID,
		Name: judge.Pick(m.Draw, "main", "main", "side"), Created: m.nextCreated(), Restarts: "0",
	}
	if m.Chance(10) {
		o.Sandbox = judge.Pick(m.Draw, "gone", sandboxes[0].ID)
	}
	_, containers := m.node.of(pod)
	for _, c := range containers {
		if c.Name == o.Name {
			o.Attempt = max(o.Attempt, c.Attempt+1)
			o.Restarts = fmt.Sprint(o.Attempt)
		}
	}
	if m.Chance(8) {
		o.Restarts = judge.Pick(m.Draw, "0", "0", "0", "", "many", "-2", "7")
	}
	o.Unlabelled = m.bare && o.Sandbox != "gone" && !slices.Contains(m.fresh, o.Sandbox) && m.Chance(30)
	o.NoName = m.Chance(2) || o.Unlabelled
	return m.newState(o)
}

// newState draws a container's next state.
func (m *maker) newState(o Object) Object {
	was := o
	o.State = judge.Pick(m.Draw, running, exited, running, exited, running, exited, created, lost, strange)
	if o.State != created {
		o.Started = o.Created + 1
	}
	if o.State == exited {
		o.Finished, o.Exit = o.Created+int64(m.Between(2, 5)), int32(judge.Pick(m.Draw, 0, 1, 137))
		o.Reason = judge.Pick(m.Draw, "Completed", "Error", "OOMKilled")
	}
	if m.plain && o.class() == was.class() {
		return was
	}
	return o
}

// touch changes a field that no list contains: a resize, or a reason that is set late.
func (m *maker) touch(o Object) Object {
	if m.Chance(50) {
		o.Reason = judge.Pick(m.Draw, "OOMKilled", "Error")
		return o
	}
	o.Memory += 64 << 20
	return o
}

// trouble makes the status call of an object fail or slow, or normal again.
func (m *maker) trouble(o Object) Object {
	if o.Fails != "" || o.Slow != 0 {
		o.Fails, o.Slow = "", 0
		return o
	}
	if m.node.troubled(o.Pod) { // the order of the lists decides which of two errors is returned
		return o
	}
	if m.slow {
		o.Slow = judge.Pick(m.Draw, 25, 25, 4)
		return o
	}
	o.Fails = judge.Pick(m.Draw, "error", "error", "empty")
	return o
}
