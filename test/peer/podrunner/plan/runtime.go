package plan

import (
	"time"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// drawRuntime draws the runtime's objects of a pod that has existed for a while.
func drawRuntime(d *judge.Draw, s *State) {
	now := s.Now
	s.Now = now.Add(-time.Hour)
	for i := range max(1, d.Int(4)) {
		if i > 0 || !d.Chance(10) {
			drawBox(d, s, uint32(i))
		}
		drawInstances(d, s)
	}
	for _, b := range s.Boxes {
		if b != s.box() && !d.Chance(15) {
			s.stopSandbox(b.ID)
		}
	}
	if d.Chance(20) && len(s.Boxes) > 0 {
		s.box().Ready = false
		if !d.Chance(30) {
			s.stopSandbox(s.box().ID)
		}
	}
	if s.Now.After(now) {
		s.Now = s.Now.Add(time.Second)
	} else {
		s.Now = now
	}
}

func drawBox(d *judge.Draw, s *State, attempt uint32) {
	b := s.runSandbox(attempt)
	if d.Chance(5) {
		b.IP = ""
	}
	b.Network = !d.Chance(5)
	b.NoLinux = d.Chance(4)
	if d.Chance(4) {
		b.Host = !b.Host
	}
	s.Now = s.Now.Add(time.Second)
}

// drawInstances draws instances of containers in the newest sandbox. Init containers come
// first, as in reality, but any of them can be missing.
func drawInstances(d *judge.Draw, s *State) {
	var names []string
	for i := range s.Pod.Spec.InitContainers {
		names = append(names, s.Pod.Spec.InitContainers[i].Name)
	}
	life := d.Chance(60) // realistic: containers that start later have not started
	for i := range s.Pod.Spec.Containers {
		names = append(names, s.Pod.Spec.Containers[i].Name)
	}
	for i := range s.Pod.Spec.EphemeralContainers {
		names = append(names, s.Pod.Spec.EphemeralContainers[i].Name)
	}
	if d.Chance(4) {
		names = append(names, "stray")
	}
	for _, name := range names {
		if life && d.Chance(25) {
			return
		}
		if !life && d.Chance(35) {
			continue
		}
		for range max(1, d.Int(5)-2) {
			drawInstance(d, s, name, life)
		}
	}
}

func drawInstance(d *judge.Draw, s *State, name string, life bool) {
	box := "gone"
	if len(s.Boxes) > 0 {
		box = s.Boxes[len(s.Boxes)-1].ID
	}
	if before := s.newest(name); before != nil && before.Box == box && !d.Chance(4) {
		s.end(before, 1, "Error")
	}
	attempt := s.Logs[name]
	from := name
	if name == "stray" {
		from = s.Pod.Spec.Containers[0].Name
	}
	spec, _ := s.spec(from)
	c := s.create(box, from, attempt, linuxOf(s.Pod, spec))
	if from != name {
		c.Name, c.From.Name = name, name
	}
	if d.Chance(4) {
		c.Created = c.Created.Add(-10 * time.Minute) // the clock was set in between
	}
	if d.Chance(6) {
		c.From.Image = "image:0"
	}
	if d.Chance(2) {
		c.From.WorkingDir = "/before"
	}
	c.Hash = judge.Pick(d, OwnHash, OwnHash, OwnHash, OwnHash, OwnHash, OwnHash, OwnHash, OwnHash, OwnHash, OwnHash, OwnHash, OwnHash, OtherHash, NoHash)
	if d.Chance(6) {
		c.From.Resources = drawResources(d)
		c.Linux = linuxOf(s.Pod, &c.From)
	}
	c.Has = s.actuated(&c.From)
	s.Now = s.Now.Add(time.Second)
	drawLife(d, s, c, life)
	drawProbes(d, c)
	s.Now = s.Now.Add(judge.Pick(d, time.Second, 20*time.Minute))
	if d.Chance(4) && c.State == exited {
		s.remove(c.ID)
	}
}

// drawLife draws the state of a container.
func drawLife(d *judge.Draw, s *State, c *Container, life bool) {
	if d.Chance(6) {
		return // created
	}
	c.State, c.Started = running, s.Now
	likely := 40
	if life && c.Name[0] == 'i' && !isSidecar(&c.From) {
		likely = 90
	}
	switch {
	case d.Chance(likely):
		drawExit(d).apply(s, c)
	case d.Chance(9):
		c.State = unknownState
	}
}

func drawProbes(d *judge.Draw, c *Container) {
	switch {
	case c.From.StartupProbe == nil, d.Chance(60):
		c.Startup = Succeeded
	default:
		c.Startup = judge.Pick(d, NotProbed, Unknown, Failed)
		return
	}
	if c.From.LivenessProbe != nil && d.Chance(20) {
		c.Liveness = Failed
	}
}

// An exit is the result of a container.
type exit struct {
	code            int32
	reason, message string
	neverStarted    bool
}

func drawExit(d *judge.Draw) exit {
	code := judge.Pick[int32](d, 0, 0, 1, 42, 43, 137)
	e := exit{code: code, reason: "Error"}
	if code == 0 {
		e.reason = "Completed"
	}
	switch {
	case d.Chance(6):
		e.reason = "OOMKilled"
	case d.Chance(4):
		e = exit{code: 128, reason: "StartError", message: "failed to start: context canceled", neverStarted: true}
	case d.Chance(2):
		e = exit{code: 128, reason: "StartError", message: "no such file or directory", neverStarted: true}
	}
	return e
}

func (e exit) apply(s *State, c *Container) {
	s.end(c, e.code, e.reason)
	c.Message = e.message
	if e.neverStarted {
		c.Started = time.Time{}
	}
}
