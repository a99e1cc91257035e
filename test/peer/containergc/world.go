package containergc

import (
	"fmt"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A World is one scenario: a policy, a node, and what happens to it.
type World struct {
	MinAge                            time.Duration
	MaxPerPodContainer, MaxContainers int
	Pods                              []*Pod
	Boxes                             []*Box
	Containers                        []*Container
	Strays                            []string // entries of the log directory that belong to no pod
	Links                             []Link   // unusual entries of the directory of links
	Folder                            string   // "" or the fault of the directory of pod logs
	LinkFolder                        string   // "" or the fault of the directory of links
	Snapshot                          bool     // our manager receives statuses instead of calling list methods
	Plans                             bool     // our manager makes a Plan before each periodic pass
	Steps                             []Step

	model *judge.Model // for rules
}

// A Pod is the state of a pod in the pod workers.
type Pod struct {
	UID, Name string
	State     string // running, ended, evicted or gone
}

// A Box is a sandbox. It exists from step From on, until it is removed.
type Box struct {
	ID, UID                string
	Pod                    int
	Attempt                uint32
	Ready                  string        // ready, not ready or unknown
	Made                   time.Duration // duration before the start of the world
	StopFails, RemoveFails bool
	From                   int
}

// A Container is a container in the runtime, with its log and a link to the log.
type Container struct {
	ID                     string
	Pod, Box               int
	Name                   string
	Attempt                uint32
	State                  runtimeapi.ContainerState
	Made, Ended            time.Duration // durations before the start of the world, by the clock of that time
	Unlabelled             bool
	Grace, DeletionGrace   string // annotations
	PreStop                bool
	Mute                   bool // the runtime returns no status for it
	StopFails, RemoveFails bool
	Log                    string // "", "rotated", "none" or "missing" (during a rotation)
	Odd                    bool   // the directory also contains files that are no logs
	From                   int
}

// hookFails reports whether the container's preStop hook fails.
func (c *Container) hookFails() bool { return c.Attempt%2 == 1 }

// A Link is an unusual link.
type Link struct{ Name, Target string }

// A Step is a set of changes, followed by one pass.
type Step struct {
	After                               time.Duration
	Clock                               time.Duration // by how much the clock is set
	Pods                                map[int]string
	End, Heal, Vanish                   int // index of the container that ends, becomes removable, or is removed by another program
	NotReady, ListContainers, ListBoxes bool
	All                                 bool
	LogsAppear                          int // index of the container whose missing log appears again
}

func newWorld(d *judge.Draw) *World {
	w := &World{MaxPerPodContainer: judge.Pick(d, 1, 1, 0, 2, -1), MaxContainers: judge.Pick(d, -1, -1, 0, 1, 2, 4)}
	w.model = newModel(w)
	if d.Chance(25) {
		w.MinAge = judge.Pick(d, time.Minute, time.Hour, time.Second)
	}
	steps := d.Between(1, 5)
	for i := range d.Between(1, 3) {
		w.drawPod(d, i, steps)
	}
	if d.Chance(8) {
		w.Strays = append(w.Strays, judge.Pick(d, "note", "default_old_gone-uid", "a_b_c_uid-0", "default_x_uid-0", "lost+found",
			"default__gone-uid", "_old_gone-uid", "default_old_", "_gone-uid", "default_gone-uid"))
	}
	if d.Chance(10) {
		w.Links = append(w.Links, judge.Pick(d,
			Link{"odd.log", "nowhere"}, Link{"odd-abc.log", "nowhere"}, Link{"odd-abcdef0.log", "nowhere"}, Link{"odd-abcdef0.txt", "nowhere"},
			Link{"odd-abcdef0.log", "."}, Link{"odd-.log", "nowhere"}, Link{".log", "nowhere"}, Link{"odd-a.log", "nowhere"}))
	}
	if d.Chance(5) {
		w.Folder = judge.Pick(d, "missing", "a file")
		w.Links = append(w.Links, Link{"lost-abcdef0.log", "nowhere"})
	}
	for range steps {
		w.Steps = append(w.Steps, w.drawStep(d))
	}
	w.Snapshot, w.Plans = d.Chance(20), d.Chance(20)
	if d.Chance(4) {
		w.LinkFolder = judge.Pick(d, "missing", "a file")
	}
	return w
}

func (w *World) drawPod(d *judge.Draw, i, steps int) {
	p := &Pod{UID: fmt.Sprintf("uid-%d", i), Name: fmt.Sprintf("pod-%d", i), State: judge.Pick(d, "running", "running", "ended", "evicted", "gone")}
	if d.Chance(8) { // long names, so that the names of links are shortened
		p.Name += strings.Repeat("x", judge.Pick(d, 150, 160, 168, 172, 180))
	}
	w.Pods = append(w.Pods, p)
	boxes := d.Between(0, 3)
	first := len(w.Boxes)
	for n := range boxes {
		b := &Box{ID: fmt.Sprintf("box-%d-%d", i, n), UID: p.UID, Pod: i, Attempt: uint32(n), Ready: "not ready", Made: w.made(d, n)}
		if n == boxes-1 {
			b.Ready = judge.Pick(d, "ready", "not ready")
		}
		switch {
		case d.Chance(2):
			b.Ready = "unknown"
		case d.Chance(1):
			b.UID = ""
		}
		b.StopFails, b.RemoveFails = d.Chance(4), d.Chance(4)
		if d.Chance(10) {
			b.From = d.Int(steps)
		}
		w.Boxes = append(w.Boxes, b)
	}
	bare := d.Chance(3)
	for n := range d.Int(6) {
		at := -1
		if boxes > 0 {
			at = first + d.Int(boxes)
		}
		w.drawContainer(d, i, at, n, steps)
		if bare { // only a ready sandbox identifies the pod
			w.Containers[len(w.Containers)-1].Unlabelled = true
		}
	}
	if bare && boxes > 0 {
		w.Boxes[first].Ready = "ready"
	}
}

// made draws a creation time. No two are equal, and the times mostly ascend.
func (w *World) made(d *judge.Draw, n int) time.Duration {
	at := time.Duration(10-n) * 10 * time.Minute
	if d.Chance(6) {
		at = time.Duration(n+1) * 7 * time.Minute
	}
	return at - time.Duration(len(w.Boxes)+100*len(w.Containers))*time.Millisecond
}

func (w *World) drawContainer(d *judge.Draw, pod, box, n, steps int) {
	c := &Container{
		ID:  fmt.Sprintf("%c%d%s", 'a'+pod, n, strings.Repeat(fmt.Sprintf("%x%x", pod+1, n+1), 31)),
		Pod: pod, Box: box, Name: judge.Pick(d, "app", "app", "side-car"), State: runtimeapi.ContainerState_CONTAINER_EXITED, Made: w.made(d, n),
	}
	for _, other := range w.Containers {
		if other.Pod == pod && other.Name == c.Name {
			c.Attempt++
		}
	}
	c.Ended = c.Made - judge.Pick(d, time.Minute, time.Second, 5*time.Minute, 0) - time.Duration(n)*time.Microsecond
	if d.Chance(35) {
		c.State = judge.Pick(d, runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_RUNNING,
			runtimeapi.ContainerState_CONTAINER_CREATED, runtimeapi.ContainerState_CONTAINER_UNKNOWN)
	}
	if d.Chance(1) {
		c.State = 7
	}
	c.Unlabelled, c.Mute = d.Chance(2), d.Chance(3)
	c.StopFails, c.RemoveFails = d.Chance(10), d.Chance(4)
	if d.Chance(15) {
		c.Grace, c.DeletionGrace = judge.Pick(d, "30", "0", "1", "x", "-5"), judge.Pick(d, "", "", "", "10")
		c.PreStop = d.Chance(30)
	}
	c.Log = judge.Pick(d, "", "", "", "rotated", "none", "missing")
	c.Odd = d.Chance(5)
	if d.Chance(10) {
		c.From = d.Int(steps)
	}
	w.Containers = append(w.Containers, c)
}

func (w *World) drawStep(d *judge.Draw) Step {
	s := Step{After: judge.Pick(d, time.Minute, time.Second, 30*time.Second, 2*time.Minute, 16*time.Minute, 2*time.Hour), End: -1, Heal: -1, Vanish: -1, LogsAppear: -1}
	if d.Chance(20) {
		s.Pods = map[int]string{d.Int(len(w.Pods)): judge.Pick(d, "ended", "running", "evicted", "gone")}
	}
	one := func(percent int) int {
		if !d.Chance(percent) || len(w.Containers) == 0 {
			return -1
		}
		return d.Int(len(w.Containers))
	}
	s.End, s.Heal, s.Vanish, s.LogsAppear = one(20), one(10), one(5), one(10)
	s.NotReady, s.ListContainers, s.ListBoxes = d.Chance(5), d.Chance(3), d.Chance(3)
	s.All = d.Chance(25)
	if d.Chance(8) {
		s.Clock = judge.Pick(d, time.Hour, -time.Hour, 24*time.Hour, -24*time.Hour, 5*time.Minute, -5*time.Minute)
	}
	return s
}

func (w *World) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "MinAge %v, MaxPerPodContainer %d, MaxContainers %d, strays %q, links %q, folders %q %q, snapshot %t, plans %t\n", w.MinAge, w.MaxPerPodContainer, w.MaxContainers, w.Strays, w.Links, w.Folder, w.LinkFolder,
		w.Snapshot, w.Plans)
	for _, p := range w.Pods {
		fmt.Fprintf(&b, "pod %+v\n", *p)
	}
	for _, x := range w.Boxes {
		fmt.Fprintf(&b, "sandbox %+v\n", *x)
	}
	for i, c := range w.Containers {
		fmt.Fprintf(&b, "container %d %+v\n", i, *c)
	}
	for _, s := range w.Steps {
		fmt.Fprintf(&b, "step %+v\n", s)
	}
	return b.String()
}
