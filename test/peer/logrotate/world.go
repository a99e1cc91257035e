package logrotate

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A World is one scenario: a policy, containers with logs, and their events.
type World struct {
	MaxFiles   int
	Known      bool // our rotator receives the running containers with their log paths
	Containers []*Container
	Steps      []Step

	model *judge.Model // for rules
}

// maxSize is the size in bytes from which logs are rotated.
const maxSize = 100

// A Container is a container with its log and the files next to the log.
type Container struct {
	Running bool
	Kind    string // kind of the log: a file, a link to a file, or a file outside of the log directory
	Size    int
	Beside  []string // name suffixes of files next to the log
	Folders []string // name suffixes of directories that are not empty
	Others  []string // names of unrelated files in the directory of the log
	Twin    string   // suffix of the log's second name, if any
}

// A Step is a set of events, followed by one pass.
type Step struct {
	After, Clock time.Duration
	List         bool // the list call fails
	Restart      bool
	Logs         []Happening // events of each container
}

// A Happening is the events of one container and its log.
type Happening struct {
	Grow   int
	Mute   bool   // the runtime returns no status for it
	Reopen string // failure of reopening, or ""
	Lost   bool   // its log is removed
	Ends   bool
}

func newWorld(d *judge.Draw) *World {
	w := &World{MaxFiles: judge.Pick(d, 5, 2, 3, 4), Known: d.Chance(15)}
	w.model = newModel(w)
	for range d.Between(1, 2) {
		c := &Container{Running: !d.Chance(10), Kind: "file", Size: judge.Pick(d, 150, 0, 99, 100, 101)}
		if d.Chance(8) {
			c.Kind = judge.Pick(d, "link", "outside")
		}
		for range d.Int(4) {
			end := judge.Pick(d, "19990101-000000.gz", "19990101-000000", "19991231-235959", "19991231-235959.gz", "20000101-000000", "19980101-000000.gz")
			if d.Chance(15) {
				end = judge.Pick(d, "19990101-000000.gz.tmp", "19990101-000000.tmp", "note", "19990101.gz", "20500101-000000", "99991231-235959", "tmp", "gz")
			}
			c.Beside = append(c.Beside, end)
		}
		if d.Chance(2) { // the last names in sort order
			c.Beside = append(c.Beside, "99981231-235959", "99990101-000000")
		}
		if d.Chance(5) {
			c.Folders = append(c.Folders, judge.Pick(d, "19970101-000000", "19991231-235958"))
		}
		if d.Chance(10) {
			c.Others = append(c.Others, judge.Pick(d, "19990101-000000", "1.log.19990101-000000", "19990101-000000.gz", "x0.log.19990101-000000.tmp"))
		}
		if c.Kind == "file" && d.Chance(5) {
			c.Twin = judge.Pick(d, "20000101-000002", "19991231-235957")
		}
		w.Containers = append(w.Containers, c)
	}
	for range d.Between(1, 8) {
		w.Steps = append(w.Steps, w.drawStep(d))
	}
	return w
}

func (w *World) drawStep(d *judge.Draw) Step {
	s := Step{After: judge.Pick(d, 10*time.Second, time.Second, 300*time.Millisecond, 20*time.Second, time.Minute, 10*time.Minute)}
	if d.Chance(8) {
		s.Clock = judge.Pick(d, time.Hour, -time.Hour, -time.Second, -10*time.Second)
	}
	s.List, s.Restart = d.Chance(3), d.Chance(8)
	for range w.Containers {
		h := Happening{Grow: judge.Pick(d, 120, 120, 0, 30, 100, 99), Mute: d.Chance(3), Lost: d.Chance(3), Ends: d.Chance(2)}
		if d.Chance(10) {
			h.Reopen = judge.Pick(d, "fails", "fails after creating the file", "not found", "creates no file")
		}
		s.Logs = append(s.Logs, h)
	}
	return s
}

// file returns the path of a container's log in its directory.
func (w *World) file(i int) string {
	if w.Containers[i].Kind == "outside" {
		return fmt.Sprintf("outside/%d/0.log", i)
	}
	return fmt.Sprintf("pods/pod/%d/0.log", i)
}

func (w *World) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "MaxFiles %d, known %t\n", w.MaxFiles, w.Known)
	for i, c := range w.Containers {
		fmt.Fprintf(&b, "container %d %+v\n", i, *c)
	}
	for _, s := range w.Steps {
		fmt.Fprintf(&b, "step %+v\n", s)
	}
	return b.String()
}
