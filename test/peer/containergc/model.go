package containergc

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// The behaviours in which our package differs from the kubelet.
const (
	waitsForSources   judge.Traits = 1 << iota
	oneSnapshot                    // one snapshot instead of separate lists of containers and sandboxes
	needsPod                       // removes a container or sandbox only if its pod is known
	createdStays                   // keeps a created container, which may be about to start
	knownStates                    // treats unknown states as running and ready
	ageFromEnd                     // counts the minimum age from the end, not from the creation
	attemptsTell                   // attempts determine which container is the newest
	noStatus                       // removes a container without asking for its status
	backsOff                       // after failed removals
	failuresAreErrors              // failed removals make the pass fail
	tellsReclaim                   // also records events about failed reclaims
	quiets                         // does not repeat events
	logsApart                      // finds logs on the disk, not through containers
	folderLast                     // removes a pod's log directory when nothing else of the pod exists
	namedFolders                   // removes only directories with the name of a pod's log directory
	missingFolder                  // a missing log directory is no failure
	linksDespite                   // cleans links although the log directory could not be read
	readsLinks                     // fails if the directory of links cannot be read
	snapshotTells                  // takes the state of the container of a dead link from the snapshot
	everyTrait        judge.Traits = 1<<iota - 1
)

// A model plays a side for the rules.
type model struct {
	judge.Traits
	*cluster
	files map[string]bool   // files and directories, relative to the root
	links map[string]string // name -> target file, or "" if the target does not exist
	now   time.Time         // monotonic

	ends     map[string]end
	shown    map[*container]time.Time // when a container was first seen dead, by the wall clock of that time
	failures map[string]failure
	failing  bool
	eventAt  time.Time

	facts  judge.Facts
	events []string
	causes map[string]bool
	uids   map[*container]string // pod UID of each container, before the pass
}

// An end is the time at which a container ended. It is the runtime's time, by the wall clock.
// If seen is set, it is the monotonic time at which the container was first seen dead.
type end struct {
	at     time.Time
	seen   bool
	offset time.Duration // of the wall clock at that time
}

type failure struct {
	delay time.Duration
	until time.Time
}

// predict returns the facts of each step for a side with these traits.
func (w *World) predict(t judge.Traits) (all []judge.Facts) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &model{
		Traits: t, now: now, files: map[string]bool{".": true, "pods": true, "containers": true}, links: map[string]string{},
		ends: map[string]end{}, failures: map[string]failure{},
	}
	m.cluster = newCluster(w, now, m)
	m.prepare()
	for i, s := range w.Steps {
		m.now = m.now.Add(s.After)
		_ = m.begin(i, s, m.now) // cannot fail: the model is in memory
		m.pass()
		all = append(all, m.facts)
	}
	return all
}

func (m *model) prepare() {
	if m.w.Folder == "missing" {
		delete(m.files, "pods")
	}
	for _, name := range m.w.Strays {
		if m.w.Folder == "" {
			_ = m.write("pods/" + name + "/app/0.log") // cannot fail: the model is in memory
		}
	}
	if m.w.LinkFolder == "missing" {
		delete(m.files, "containers")
	}
	for _, l := range m.w.Links {
		if m.w.LinkFolder != "" {
			break
		}
		m.links[l.Name] = map[string]string{".": "."}[l.Target]
	}
}

func (m *model) write(file string) error {
	parts := strings.Split(file, "/")
	for i := range parts {
		m.files[strings.Join(parts[:i+1], "/")] = true
	}
	return nil
}

func (m *model) link(name, file string) error {
	if _, ok := m.links[name]; !ok && m.w.LinkFolder == "" {
		m.links[name] = file
	}
	return nil
}

// wall returns the time of the wall clock.
func (m *model) wall() time.Time { return m.now.Add(m.offset) }

func (m *model) pass() {
	m.facts, m.events, m.causes = judge.Facts{}, nil, map[string]bool{}
	m.uids = map[*container]string{}
	for _, c := range m.containers {
		if uid, ok := m.uid(c); ok {
			m.uids[c] = uid
		}
	}
	switch {
	case m.step.NotReady && m.Has(waitsForSources):
		m.failing = false
		if m.step.All {
			m.causes[notReady] = true
		}
	case m.Has(oneSnapshot) && m.step.ListBoxes:
		m.causes["fault:sandboxes"] = true
		m.report()
	case m.Has(oneSnapshot) && m.step.ListContainers:
		m.causes["fault:containers"] = true
		m.report()
	default:
		if m.clean(); m.w.LinkFolder == "a file" && m.Has(readsLinks) {
			m.causes["read container logs"] = true
		}
		m.report()
	}
	m.facts["error"] = m.text()
	m.facts["events"] = strings.Join(slices.Sorted(slices.Values(m.events)), ";")
	for file := range m.files {
		m.facts[shorten(file)] = "there"
	}
	for name := range m.links {
		m.facts[shorten("containers/"+name)] = "there"
	}
}

func (m *model) clean() {
	if m.step.ListContainers {
		m.causes["fault:containers"] = true
	} else {
		m.cleanContainers()
		if m.step.ListBoxes {
			m.causes["fault:sandboxes"] = true
		} else {
			m.cleanBoxes()
		}
	}
	if !m.step.NotReady && !m.cleanLogs() {
		return
	}
	m.cleanLinks()
}

func (m *model) report() {
	failed := len(m.causes) > 0
	again := m.Has(quiets) && m.failing && m.now.Sub(m.eventAt) < 10*time.Minute
	if failed && !again && (!m.step.All || m.Has(tellsReclaim)) {
		m.events = append(m.events, "ContainerGCFailed "+m.text())
		m.eventAt = m.now
	}
	m.failing = failed
}

func (m *model) text() string {
	var found []string
	for _, fault := range faultNames() {
		if m.causes[fault] {
			found = append(found, fault)
		}
	}
	return strings.Join(found, "; ")
}

func (m *model) call(object, what string) { m.facts[object+" calls"] += what + ";" }

// held reports whether a removal is in back-off after a failure.
func (m *model) held(id string) bool { return m.Has(backsOff) && m.failures[id].until.After(m.now) }

// note records the result of a removal. fault is "" if it succeeded.
func (m *model) note(id, fault string) {
	if fault == "" {
		delete(m.failures, id)
		return
	}
	if m.Has(failuresAreErrors) {
		m.causes[fault] = true
	}
	delay := min(max(time.Minute, 2*m.failures[id].delay), 15*time.Minute)
	m.failures[id] = failure{delay, m.now.Add(delay)}
}

// uid returns the pod UID of a container, and whether it is known.
func (m *model) uid(c *container) (string, bool) {
	if !c.Unlabelled {
		return m.w.Pods[c.Pod].UID, true
	}
	if !m.Has(needsPod) {
		return "", true
	}
	for _, b := range m.boxes {
		if b.ID == m.boxOf(c.Container) {
			return b.UID, b.UID != ""
		}
	}
	return "", false
}

// gone reports whether this pass removes everything of a pod.
func (m *model) gone(uid string) bool {
	return m.ShouldPodContentBeRemoved(types.UID(uid)) || m.step.All && m.ShouldPodRuntimeBeRemoved(types.UID(uid))
}
