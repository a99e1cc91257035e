package logrotate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// The behaviours in which our package differs from the kubelet.
const (
	statusOnce     judge.Traits = 1 << iota // asks once for the status of each container
	backsOff                                // backs off after failures
	compressGoesOn                          // continues to compress after a failure
	newNames                                // two logs never get the same name, and later names sort behind earlier ones
	keepsBoth                               // keeps a new file that the runtime has created
	ownNames                                // only files with a time in the name are rotated files
	regularOnly                             // a symbolic link is not a log
	insideOnly                              // ignores logs outside of the log directory
	finishesHalf                            // completes a rotation that stopped before the runtime reopened the log
	oneName                                 // a log never has two names, not even after a crash
	everyTrait     judge.Traits = 1<<iota - 1
)

// A file is a file that has a name or is open.
type file struct {
	text []string
	size int
	perm string
	gzip bool
}

// An entry is the file or directory with a name.
type entry struct {
	*file
	link, folder bool
}

// A pot is one container in a model.
type pot struct {
	*Container
	dir    string
	names  map[string]entry
	writer *file
	target *file // target of the log if it is a link
	ended  bool
	memory
}

// A memory is our rotator's state of a container.
type memory struct {
	path, visited, unsure bool
	delay                 time.Duration
	retryAt               time.Time
}

// A model plays a side for the rules.
type model struct {
	judge.Traits
	w     *World
	now   time.Time // monotonic
	clock time.Duration
	pots  []*pot
	lines int
	facts judge.Facts

	rotations []string // as the Observer receives them
	rotated   int
}

// predict returns the facts of each step for a side with these traits.
func (w *World) predict(t judge.Traits) (all []judge.Facts) {
	m := &model{Traits: t, w: w, now: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}
	for i := range w.Containers {
		m.pots = append(m.pots, m.newPot(i))
	}
	for _, s := range w.Steps {
		m.play(s)
		all = append(all, m.facts)
	}
	return all
}

const logName = "0.log"

func (m *model) newPot(i int) *pot {
	c := m.w.Containers[i]
	p := &pot{Container: c, dir: strings.TrimSuffix(m.w.file(i), logName), names: map[string]entry{}, writer: &file{perm: "-rw-r-----"}}
	for _, end := range c.Folders {
		p.names[logName+"."+end] = entry{folder: true}
	}
	for k, end := range c.Beside {
		p.names[logName+"."+end] = entry{file: &file{text: []string{fmt.Sprintf("beside %d", k)}, perm: "-rw-------", gzip: strings.HasSuffix(end, ".gz")}}
	}
	p.names[logName] = entry{file: p.writer, link: c.Kind == "link"}
	if c.Kind == "link" {
		p.target = p.writer
	}
	for _, name := range c.Others {
		p.names[name] = entry{file: &file{text: []string{"another"}, perm: "-rw-------"}}
	}
	if c.Twin != "" {
		p.names[logName+"."+c.Twin] = entry{file: p.writer}
	}
	m.grow(p, c.Size)
	return p
}

func (m *model) grow(p *pot, size int) {
	if size > 0 {
		m.lines++
		p.writer.text = append(p.writer.text, fmt.Sprint(m.lines))
		p.writer.size += size
	}
}

func (m *model) play(s Step) {
	m.now, m.clock, m.facts = m.now.Add(s.After), m.clock+s.Clock, judge.Facts{"error": ""}
	for i, p := range m.pots {
		h := s.Logs[i]
		if m.grow(p, h.Grow); h.Lost {
			delete(p.names, logName)
		}
		p.ended = p.ended || h.Ends
		if s.Restart {
			p.memory = memory{}
		}
	}
	if s.List {
		m.facts["error"] = "fault:list"
	}
	running, failing := 0, false
	m.rotations, m.rotated = nil, 0
	for i, p := range m.pots {
		if !s.List && p.Running && !p.ended {
			running++
		}
		if !s.List && p.Running && !p.ended && (!m.Has(backsOff) || !m.now.Before(p.retryAt)) {
			rotated := m.rotated
			failed := m.visit(i, p, s.Logs[i])
			failing = failing || failed
			p.later(m.now, failed && m.rotated == rotated)
		}
		for name, e := range p.names {
			if !e.folder {
				m.facts[p.dir+name] = e.fact()
			}
		}
		if p.target != nil {
			m.facts[fmt.Sprintf("targets/%d", i)] = entry{file: p.target}.fact()
		}
	}
	text := toldText(running, m.rotated, failing, m.rotations)
	switch {
	case s.List && m.w.Known:
		text = "0 running: list running containers: fault:list"
	case s.List:
		text = "0 running: list containers: fault:list"
	}
	m.facts["told"] = text + "; 1 checked, 0 descriptors"
}

func (e entry) fact() string {
	if e.link {
		return "a link"
	}
	kind := "plain"
	if e.gzip {
		kind = "gzip"
	}
	return fmt.Sprintf("%s %s: %s", kind, e.perm, strings.Join(e.text, " "))
}

func (p *pot) later(now time.Time, failed bool) {
	if !failed {
		p.delay, p.retryAt = 0, time.Time{}
		return
	}
	p.delay = min(max(10*time.Second, 2*p.delay), 5*time.Minute)
	p.retryAt = now.Add(p.delay)
}

// visit processes one log and reports whether that failed.
func (m *model) visit(i int, p *pot, h Happening) (failed bool) {
	p.path = p.path || m.w.Known && m.Has(statusOnce)
	if h.Mute && (!p.path || !m.Has(statusOnce)) {
		return true
	}
	if p.path = true; p.Kind == "outside" && m.Has(insideOnly) {
		return false
	}
	e, there := p.names[logName]
	if there && !p.visited {
		p.visited = true
		p.unsure = m.Has(finishesHalf) && !e.link && e.size == 0 && p.rotatedBefore()
	}
	if !there || p.unsure {
		if fails := m.reopen(i, p, h); fails != "" {
			return fails != "not found"
		}
		p.unsure = false
		if e, there = p.names[logName]; !there {
			return false
		}
	}
	switch {
	case e.link && m.Has(regularOnly):
		return true
	case e.size < maxSize:
		return false
	}
	size := e.size
	to, failed := m.rotate(i, p, h)
	if to != "" {
		to = strings.TrimPrefix(p.dir, "pods/") + to
	}
	if to != "" && !p.unsure {
		m.rotated++
	}
	m.rotations = append(m.rotations, rotationText(fmt.Sprint(i), p.dir+logName, size, to, failed))
	return failed
}

// rotatedBefore reports whether the last rotated file is not compressed.
func (p *pot) rotatedBefore() bool {
	stamped := p.rotated(true)
	return len(stamped) > 0 && !strings.HasSuffix(stamped[len(stamped)-1], ".gz")
}

// rotated returns the names of rotated files, oldest first.
func (p *pot) rotated(stampedOnly bool) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(p.names)) {
		rest, ok := strings.CutPrefix(name, logName+".")
		_, twin := p.names[name+".gz"]
		switch {
		case !ok, strings.HasSuffix(name, ".tmp"), stampedOnly && !isStamp(strings.TrimSuffix(rest, ".gz")):
		case twin && (stampedOnly || !strings.HasSuffix(name, ".gz")):
		default:
			all = append(all, name)
		}
	}
	return all
}

const stamp = "20060102-150405"

func isStamp(text string) bool {
	_, err := time.Parse(stamp, text)
	return err == nil && len(text) == len(stamp) && text < "9999"
}

// reopen makes the runtime write to a new file and returns the failure, "" if it succeeded.
func (m *model) reopen(i int, p *pot, h Happening) (fails string) {
	m.facts[fmt.Sprintf("container %d calls", i)] += "reopen;"
	switch h.Reopen {
	case "fails", "not found":
		return h.Reopen
	case "creates no file":
		return ""
	}
	if e, ok := p.names[logName]; ok {
		p.writer = e.file
	} else {
		p.writer = &file{perm: "-rw-r-----"}
		p.names[logName] = entry{file: p.writer}
	}
	return h.Reopen
}

// rotate rotates a log. It returns its new name, and whether anything failed.
func (m *model) rotate(i int, p *pot, h Happening) (to string, failed bool) {
	own := m.Has(ownNames)
	rotated := p.rotated(own)
	if n := len(rotated); n > 0 && m.Has(oneName) && p.names[rotated[n-1]].file == p.names[logName].file {
		delete(p.names, rotated[n-1])
		rotated = rotated[:n-1]
	}
	for name := range p.names {
		rest, ok := strings.CutPrefix(name, logName+".")
		if !ok || slices.Contains(rotated, name) {
			continue
		}
		rest = strings.TrimSuffix(strings.TrimSuffix(rest, ".tmp"), ".gz")
		if !own || isStamp(rest) {
			delete(p.names, name)
		}
	}
	for ; len(rotated) > max(m.w.MaxFiles-2, 0); rotated = rotated[1:] {
		if p.names[rotated[0]].folder {
			return "", true
		}
		delete(p.names, rotated[0])
	}
	for _, name := range rotated {
		e := p.names[name]
		switch {
		case strings.HasSuffix(name, ".gz"):
		case e.folder && !m.Has(compressGoesOn):
			return "", true
		case e.folder:
			failed = true
		default:
			p.names[name+".gz"] = entry{file: &file{text: slices.Clone(e.text), size: e.size, perm: e.perm, gzip: true}}
			delete(p.names, name)
		}
	}
	to = m.newName(rotated)
	if e, there := p.names[to]; e.folder || there && m.Has(newNames) { // the name is already used
		return "", true
	}
	p.names[to] = p.names[logName]
	delete(p.names, logName)
	p.unsure = false
	fails := m.reopen(i, p, h)
	if fails == "" {
		return to, failed
	}
	if _, made := p.names[logName]; made && m.Has(keepsBoth) {
		p.unsure = m.Has(finishesHalf)
		return to, true
	}
	p.names[logName] = p.names[to]
	delete(p.names, to)
	return "", fails != "not found" // the failure of the rotation hides a failed compression
}

// newName returns the name under which a log is rotated now.
func (m *model) newName(rotated []string) string {
	now := m.now.Add(m.clock).Format(stamp)
	for _, name := range slices.Backward(rotated) {
		last := strings.TrimSuffix(strings.TrimPrefix(name, logName+"."), ".gz")
		if t, err := time.Parse(stamp, last); err == nil && now <= last && m.Has(newNames) {
			now = t.Add(time.Second).Format(stamp)
		}
		break
	}
	return logName + "." + now
}
