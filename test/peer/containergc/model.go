package containergc

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// Traits are what ours does otherwise than the kubelet, one bit each. A model with no
// trait is the kubelet, one with all is ours. So a difference has a trait as its cause
// if the model without it has another outcome.
type traits uint64

const (
	waitsForSources   traits = 1 << iota
	oneSnapshot              // instead of lists for containers and for sandboxes
	needsPod                 // to remove a container or sandbox
	createdStays             // a container that may be about to start
	knownStates              // unknown ones are running and ready
	ageFromEnd               // and not from the creation
	attemptsTell             // which is the newest
	noStatus                 // is needed to remove a container
	backsOff                 // after failures
	failuresAreErrors        // of removals
	tellsReclaim             // makes events about failing reclaims, too
	quiets                   // events
	logsApart                // are found on the disk, and not by containers
	folderLast               // of a pod, when nothing else is left
	namedFolders             // those with the name of a pod's
	missingFolder            // of logs is no failure
	linksDespite             // failures to read the folder of logs
	readsLinks               // or fails
	snapshotTells            // whether the container of a dead link is running
	everyTrait        traits = 1<<iota - 1
)

// A model plays a side as a rule sees it.
type model struct {
	traits
	*cluster
	files map[string]bool   // and folders, below the root
	links map[string]string // name -> file, or "" if that is nowhere
	now   time.Time         // monotonic

	ends     map[string]end
	shown    map[*container]time.Time // of those seen dead, on the wall as it was then
	failures map[string]failure
	failing  bool
	eventAt  time.Time

	facts  judge.Facts
	events []string
	causes map[string]bool
	uids   map[*container]string // of the pods of containers, before the pass
}

// An end is when a container ended: on the wall, or monotonic if that is when it was
// first seen dead.
type end struct {
	at     time.Time
	seen   bool
	offset time.Duration // of the wall when it was seen
}

type failure struct {
	delay time.Duration
	until time.Time
}

// predict returns what a side with some traits does in a step.
func (w *World) predict(step int, t traits) judge.Facts {
	if w.cache == nil {
		w.cache = map[traits][]judge.Facts{}
	}
	if all, ok := w.cache[t]; ok {
		return all[step]
	}
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &model{
		traits: t, now: now, files: map[string]bool{".": true, "pods": true, "containers": true}, links: map[string]string{},
		ends: map[string]end{}, failures: map[string]failure{},
	}
	m.cluster = newCluster(w, now, m)
	m.prepare()
	for i, s := range w.Steps {
		m.now = m.now.Add(s.After)
		_ = m.begin(i, s, m.now) // in memory
		m.pass()
		w.cache[t] = append(w.cache[t], m.facts)
	}
	return w.cache[t][step]
}

func (m *model) prepare() {
	if m.w.Folder == "missing" {
		delete(m.files, "pods")
	}
	for _, name := range m.w.Strays {
		if m.w.Folder == "" {
			_ = m.write("pods/" + name + "/app/0.log") // in memory
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

func (m *model) has(t traits) bool { return m.traits&t == t }

// wall returns what the clock shows.
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
	case m.step.NotReady && m.has(waitsForSources):
		m.failing = false
		if m.step.All {
			m.causes[notReady] = true
		}
	case m.has(oneSnapshot) && m.step.ListBoxes:
		m.causes["fault:sandboxes"] = true
		m.report()
	case m.has(oneSnapshot) && m.step.ListContainers:
		m.causes["fault:containers"] = true
		m.report()
	default:
		if m.clean(); m.w.LinkFolder == "a file" && m.has(readsLinks) {
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
	again := m.has(quiets) && m.failing && m.now.Sub(m.eventAt) < 10*time.Minute
	if failed && !again && (!m.step.All || m.has(tellsReclaim)) {
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

// held reports whether a removal failed not long ago.
func (m *model) held(id string) bool { return m.has(backsOff) && m.failures[id].until.After(m.now) }

// note records the result of a removal, which may be a fault.
func (m *model) note(id, fault string) {
	if fault == "" {
		delete(m.failures, id)
		return
	}
	if m.has(failuresAreErrors) {
		m.causes[fault] = true
	}
	delay := min(max(time.Minute, 2*m.failures[id].delay), 15*time.Minute)
	m.failures[id] = failure{delay, m.now.Add(delay)}
}

// uid returns the pod of a container, and whether there is one.
func (m *model) uid(c *container) (string, bool) {
	if !c.Unlabelled {
		return m.w.Pods[c.Pod].UID, true
	}
	if !m.has(needsPod) {
		return "", true
	}
	for _, b := range m.boxes {
		if b.ID == m.boxOf(c.Container) {
			return b.UID, b.UID != ""
		}
	}
	return "", false
}

// gone reports whether everything of a pod goes in this pass.
func (m *model) gone(uid string) bool {
	return m.ShouldPodContentBeRemoved(types.UID(uid)) || m.step.All && m.ShouldPodRuntimeBeRemoved(types.UID(uid))
}
