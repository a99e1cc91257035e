package imagegc

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A World is one scenario: the settings of an agent, a runtime, and the events of both.
type World struct {
	High, Low      *int
	MinAge         *time.Duration
	MaxAge         time.Duration
	Store          bool // our manager has a store
	Loop           bool // the loop runs the collections and records ImageGCFailed events
	Quiet          bool // our manager does not repeat events within an hour
	Handlers       bool // the runtime has images for a runtime handler
	Gate           bool // the kubelet's RuntimeClassInImageCriAPI is on
	Workers        int  // unused; removing it would change the worlds of recorded seeds
	Clock          time.Duration
	Capacity, Fill uint64 // of the disk; Fill is the content besides images
	Images         []*Image
	Steps          []Step

	seen  []view       // by step, for rules
	model *judge.Model // for rules
}

// An Image exists from a "pull" until its removal.
type Image struct {
	ID            string
	Tags, Digests []string
	Handler       string
	Size          uint64 // as the runtime reports it
	Takes         uint64 // space that the deletion frees
	Pinned        bool
	Stuck         bool          // its removal fails
	NotFound      bool          // the removal deletes it and returns not found
	Slow          time.Duration // duration of the removal
	Visitor       int           // image whose container starts to use this image during the removal, if above 0
}

// A Step is a set of changes, followed by one call of both managers.
type Step struct {
	After   time.Duration
	Changes []Change
	Faults  Faults
	Act     string
}

// A Change is an event of the node.
type Change struct {
	Do        string
	Image     int // index of the image
	Container int // index among the current containers
	Create    *Container
	Percent   int
	By        time.Duration
}

// A Container is a container to create.
type Container struct {
	Image   int
	Form    string // form of the image name in the list
	Other   int    // the image to which the name refers, if it is another image
	Handler string
	Volume  int    // image mounted as a volume, if above 0
	By      string // form of the volume's image name in the status
	Mute    bool   // the runtime returns no status for it
	Gone    bool   // the status call returns not found although the list has the container
}

// Faults are the failures of one step.
type Faults struct {
	Images, Sandboxes, Containers, Disk bool
	Later                               bool   // the second list of containers in the step fails
	Odd                                 string // fault of the measurement
	Save, Load                          bool
}

func newWorld(d *judge.Draw) *World {
	w := &World{Workers: 1}
	w.model = newModel(w)
	w.drawPolicy(d)
	w.Store, w.Handlers, w.Quiet = d.Chance(25), d.Chance(12), d.Chance(25)
	w.Gate = w.Handlers && d.Chance(70)
	if d.Chance(20) {
		w.Workers = d.Between(2, 3)
	}
	if w.Store && d.Chance(30) {
		w.Clock = -56 * 365 * 24 * time.Hour
	}
	unit := judge.Pick[uint64](d, 1<<20, 1<<30, 1, 1<<10)
	if d.Chance(3) {
		unit = 1 << 48 // percentages of such capacities overflow in the kubelet
	}
	w.Capacity = judge.Pick[uint64](d, 1000, 1024, 1025) * unit
	w.Fill = uint64(d.Int(1000)) * unit
	for i := range d.Between(1, 5) {
		w.Images = append(w.Images, w.drawImage(d, i, unit))
	}
	w.drawSteps(d)
	switch d.Int(50) {
	case 0:
		w.drawLate(d)
	case 1, 2:
		w.drawVisit(d)
	}
	w.boundClock()
	w.Loop = d.Chance(30) && (w.MinAge == nil || *w.MinAge > 0) && (w.MaxAge > 0 || w.High == nil || *w.High < 100)
	return w
}

// boundClock removes changes that would set the clock beyond 2157, the last year of times
// with a monotonic reading in package time.
func (w *World) boundClock() {
	shown := w.Clock
	for _, s := range w.Steps {
		for i := range s.Changes {
			if c := &s.Changes[i]; shown+c.By > 120*365*24*time.Hour {
				c.By = 0
			}
			shown += s.Changes[i].By
		}
	}
}

func (w *World) drawPolicy(d *judge.Draw) {
	w.High = judge.Maybe(d, 60, func() int { return judge.Pick(d, 50, 0, 20, 85, 99, 100, d.Int(101)) })
	high := 85
	if w.High != nil {
		high = *w.High
	}
	low := judge.Maybe(d, 60, func() int { return judge.Pick(d, high, 0, high/2, d.Int(high+1)) })
	if low == nil && high < 80 {
		low = &high
	}
	w.Low = low
	if d.Chance(2) {
		w.High, w.Low = new(judge.Pick(d, 101, -1, 30)), new(judge.Pick(d, 31, 101, -1))
	}
	w.MinAge = judge.Maybe(d, 40, func() time.Duration { return judge.Pick(d, 0, time.Second, time.Minute, 5*time.Minute, time.Hour) })
	if d.Chance(25) {
		w.MaxAge = judge.Pick(d, time.Hour, time.Minute, 5*time.Minute, 24*time.Hour)
	}
}

func (w *World) drawImage(d *judge.Draw, i int, unit uint64) *Image {
	name := fmt.Sprintf(judge.Pick(d, "docker.io/library/app-%d", "docker.io/team/app-%d", "example.com/app-%d", "docker.io/team/app-%d",
		"localhost/app-%d", "registry:5000/app-%d", "docker.io/old/app-%d", "docker.io/library/old-%d"), i)
	if d.Chance(6) {
		name = judge.Pick(d, "example.com/build-pause", "example.com/pause", "example.com/pause-menu", "example.com/pauses", "example.com/mirrored-pause", "example.com/pause-arm64")
	}
	im := &Image{ID: "sha256:" + strings.Repeat(fmt.Sprint(i+1), 64), Size: uint64(d.Between(1, 300)) * unit}
	for n := range judge.Pick(d, 1, 0, 2, 6) {
		im.Tags = append(im.Tags, name+judge.Pick(d, fmt.Sprintf(":%d", n), ":latest"))
	}
	for n := range judge.Pick(d, 1, 0, 2) {
		im.Digests = append(im.Digests, fmt.Sprintf("%s@sha256:%s", name, strings.Repeat(fmt.Sprintf("%d%c", i, 'a'+n), 32)))
	}
	im.Takes = im.Size
	if d.Chance(8) {
		im.Takes = judge.Pick(d, 0, im.Size/2, 2*im.Size)
	}
	if w.Workers > 1 { // otherwise the start of a deletion depends on which other deletion ends first
		im.Takes = min(im.Takes, im.Size)
	}
	if w.Handlers {
		im.Handler = judge.Pick(d, "", "kata", "runc")
	}
	if d.Chance(3) && i == 0 {
		im.ID = ""
	}
	im.Pinned, im.Stuck, im.NotFound = d.Chance(8), d.Chance(6), d.Chance(2)
	slow := 6
	if w.MaxAge > 0 {
		slow = 30
	}
	if d.Chance(slow) && w.Workers == 1 { // otherwise deletions overlap
		im.Slow = judge.Pick(d, 2*time.Second, 5*time.Second, 6*time.Second, 90*time.Second, 10*time.Minute)
		im.Visitor = d.Int(4)
	}
	return im
}

// drawLate draws a world in which the deletion of an old image fails, or lasts so long that
// another image reaches MinAge during it.
func (w *World) drawLate(d *judge.Draw) {
	w.MaxAge, w.MinAge, w.High, w.Low, w.Workers = time.Hour, new(2*time.Minute), new(0), new(0), 1
	old := &Image{ID: "sha256:" + strings.Repeat("a", 64), Tags: []string{"example.com/old:1"}, Size: 9, Takes: 9, Slow: 90 * time.Second}
	if d.Chance(50) {
		old.Slow, old.Stuck, w.MinAge = 0, true, new(time.Duration(0))
	}
	other := &Image{ID: "sha256:" + strings.Repeat("b", 64), Tags: []string{"example.com/new:1"}, Size: 7, Takes: 7}
	w.Images = []*Image{old, other}
	use := func(i int) []Change {
		return []Change{{Do: "pull", Image: i}, {Do: "create", Create: &Container{Image: i, Form: "id", Other: i, By: "id"}}}
	}
	w.Steps = []Step{
		{After: time.Minute, Act: "detect", Changes: use(0)},
		{After: time.Minute, Act: "detect", Changes: []Change{{Do: "remove"}}},
		{After: time.Hour, Act: "detect", Changes: use(1)},
		{After: time.Minute, Act: "collect", Changes: []Change{{Do: "remove"}}},
	}
}

// drawVisit draws a world in which a deletion lasts so long that our manager lists containers
// again before the next one. The next image may be in use by then, or the list may fail.
func (w *World) drawVisit(d *judge.Draw) {
	w.MaxAge, w.MinAge, w.High, w.Low, w.Workers = 0, new(time.Second), new(0), new(0), 1
	w.Images = nil
	for i := range 3 {
		im := &Image{ID: "sha256:" + strings.Repeat(fmt.Sprint(i+1), 64), Tags: []string{fmt.Sprintf("example.com/slow-%d:1", i)}, Size: 9, Takes: 9}
		if i < 2 && d.Chance(70) {
			im.Slow = judge.Pick(d, 6*time.Second, 5*time.Second, 5100*time.Millisecond, 3*time.Second)
			im.Visitor = d.Int(4)
		}
		w.Images = append(w.Images, im)
	}
	w.Steps = nil
	for i := range w.Images {
		w.Steps = append(w.Steps, Step{After: time.Minute, Act: "detect", Changes: []Change{{Do: "pull", Image: i}}})
	}
	for range d.Between(1, 3) {
		s := Step{After: time.Minute, Act: judge.Pick(d, "collect", "delete unused"), Faults: Faults{Later: d.Chance(30)}}
		if d.Chance(50) {
			s.Changes = append(s.Changes, w.drawChange(d))
		}
		w.Steps = append(w.Steps, s)
	}
}

func (w *World) drawSteps(d *judge.Draw) {
	pulled := 0
	for range d.Between(2, 9) {
		s := Step{After: judge.Pick(d, time.Minute, time.Millisecond, time.Second, 2*time.Minute, 5*time.Minute, 11*time.Minute, time.Hour, 25*time.Hour)}
		if pulled < len(w.Images) && d.Chance(70) {
			s.Changes = append(s.Changes, Change{Do: "pull", Image: pulled})
			s.After += time.Millisecond // two images must not be first seen at the same time
			pulled++
		}
		for range d.Int(3) {
			s.Changes = append(s.Changes, w.drawChange(d))
		}
		s.Act = judge.Pick(d, "detect", "collect", "collect", "delete unused")
		if d.Chance(8) || w.Store && d.Chance(20) {
			if w.Store && d.Chance(40) {
				s.Changes = append(s.Changes, Change{Do: "set clock", By: judge.Pick(d, time.Hour, -time.Hour, -time.Minute)})
			}
			s.Changes = append(s.Changes, Change{Do: "restart"})
		}
		if d.Chance(15) {
			s.Faults = Faults{Images: d.Chance(20), Sandboxes: d.Chance(10), Containers: d.Chance(20), Disk: d.Chance(20)}
			if d.Chance(30) {
				s.Faults.Odd = judge.Pick(d, "no capacity", "available above capacity")
			}
			s.Faults.Save, s.Faults.Load, s.Faults.Later = d.Chance(30), d.Chance(30), d.Chance(30)
		}
		w.Steps = append(w.Steps, s)
	}
}

func (w *World) drawChange(d *judge.Draw) Change {
	c := Change{
		Do:    judge.Pick(d, "create", "end", "remove", "fill", "remove", "create", "fill", "remove image", "pin", "unpin", "set clock", "move tag"),
		Image: d.Int(len(w.Images)), Container: d.Int(4), Percent: d.Int(101),
	}
	switch c.Do {
	case "create":
		c.Create = w.drawContainer(d, c.Image)
	case "set clock":
		if w.Store {
			c.By = judge.Pick(d, time.Hour, -time.Hour, 56*365*24*time.Hour)
		}
	}
	return c
}

func (w *World) drawContainer(d *judge.Draw, image int) *Container {
	c := &Container{Image: image, Form: "id", Other: image, By: "id"}
	if d.Chance(20) {
		c.Form = judge.Pick(d, "old runtime", "tag", "digest", "bare id", "short", "only the name", "only the name")
	}
	if d.Chance(6) {
		c.Other = d.Int(len(w.Images))
	}
	if w.Handlers {
		c.Handler = judge.Pick(d, w.Images[image].Handler, w.Images[image].Handler, w.Images[image].Handler, "", "kata")
	}
	if d.Chance(12) {
		c.Volume = d.Int(len(w.Images) + 1)
		if d.Chance(20) {
			c.By = judge.Pick(d, "tag", "user", "digest")
		}
	}
	if d.Chance(4) {
		c.Mute, c.Gone = true, d.Chance(30)
	}
	return c
}

// name returns the name of an image in facts.
func (w *World) name(id, handler string) string {
	for i, im := range w.Images {
		if im.ID == id && (im.Handler == handler || handler == "") {
			return fmt.Sprintf("image %d", i)
		}
	}
	return fmt.Sprintf("image %q %s", id, handler)
}

// String prints a scenario for readers.
func (w *World) String() string {
	var b strings.Builder
	line := func(v any) {
		text, _ := json.Marshal(v) // marshalling plain data never fails
		b.Write(append(text, '\n'))
	}
	line(map[string]any{
		"high": w.High, "low": w.Low, "minAge": w.MinAge, "maxAge": w.MaxAge.String(), "store": w.Store, "loop": w.Loop,
		"quiet": w.Quiet, "handlers": w.Handlers, "gate": w.Gate, "workers": w.Workers, "clock": w.Clock.String(), "capacity": w.Capacity, "fill": w.Fill,
	})
	for i, im := range w.Images {
		fmt.Fprintf(&b, "image %d: %+v\n", i, *im)
	}
	for i, s := range w.Steps {
		fmt.Fprintf(&b, "step %d: after %v %s, faults %+v\n", i, s.After, s.Act, s.Faults)
		for _, c := range s.Changes {
			fmt.Fprintf(&b, "    %s image %d container %d percent %d by %v", c.Do, c.Image, c.Container, c.Percent, c.By)
			if c.Create != nil {
				fmt.Fprintf(&b, " %+v", *c.Create)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
