package containergc

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// cleanLogs removes the log directories of pods, and for our side also the logs of
// containers. It reports whether the pass continues with the links.
func (m *model) cleanLogs() bool {
	switch {
	case m.w.Folder == "missing" && m.Has(missingFolder):
		return true
	case m.w.Folder != "":
		m.causes["read pod logs"] = true
		return m.Has(linksDespite)
	}
	for _, folder := range m.below("pods") {
		name := strings.TrimPrefix(folder, "pods/")
		if !m.files[folder] || m.Has(namedFolders) && !named(name) {
			continue
		}
		uid := name[strings.LastIndex(name, "_")+1:]
		switch {
		case !m.ShouldPodContentBeRemoved(types.UID(uid)):
			if m.Has(logsApart) {
				m.cleanPodLogs(folder, uid)
			}
		case m.Has(folderLast) && m.left(uid):
		default:
			m.removeAll(folder)
		}
	}
	return true
}

func named(name string) bool {
	parts := strings.Split(name, "_")
	return len(parts) == 3 && !slices.Contains(parts, "")
}

// below returns the direct children of a directory, sorted.
func (m *model) below(folder string) (all []string) {
	for _, file := range slices.Sorted(maps.Keys(m.files)) {
		if rest, ok := strings.CutPrefix(file, folder+"/"); ok && !strings.Contains(rest, "/") {
			all = append(all, file)
		}
	}
	return all
}

func (m *model) removeAll(path string) {
	for file := range m.files {
		if file == path || strings.HasPrefix(file, path+"/") {
			delete(m.files, file)
		}
	}
}

// left reports whether the runtime has any object of a pod.
func (m *model) left(uid string) bool {
	return slices.ContainsFunc(m.containers, func(c *container) bool { u, ok := m.uid(c); return ok && u == uid }) ||
		slices.ContainsFunc(m.boxes, func(b *box) bool { return b.UID == uid })
}

// cleanPodLogs removes the logs of removed containers of a pod that still exists.
func (m *model) cleanPodLogs(folder, uid string) {
	for _, sub := range m.below(folder) {
		name := sub[len(folder)+1:]
		newest := -1
		for c, u := range m.uids {
			if u == uid && c.Name == name {
				newest = max(newest, int(c.Attempt))
			}
		}
		for _, file := range m.below(sub) {
			n := attempt(file)
			here := slices.ContainsFunc(m.containers, func(c *container) bool {
				u, ok := m.uids[c]
				return ok && u == uid && c.Name == name && int(c.Attempt) == n
			})
			switch {
			case n < 0, here, newest >= 0 && n > newest,
				newest < 0 && !m.ShouldPodRuntimeBeRemoved(types.UID(uid)):
			default:
				delete(m.files, file)
			}
		}
	}
}

// attempt returns the attempt number in the name of a log file, or -1.
func attempt(path string) int {
	n := -1
	_, _ = fmt.Sscanf(path[strings.LastIndex(path, "/")+1:], "%d.log", &n) // stays -1 if the name has no number
	return n
}

// deadLinks returns the links whose target does not exist.
func (m *model) deadLinks() (dead []string) {
	for _, name := range slices.Sorted(maps.Keys(m.links)) {
		if file := m.links[name]; file != "." && !m.files[file] {
			dead = append(dead, name)
		}
	}
	return dead
}

// cleanLinks removes dead links.
func (m *model) cleanLinks() {
	for _, name := range m.deadLinks() {
		base, isLog := strings.CutSuffix(name, ".log")
		dash := strings.LastIndexByte(base, '-')
		id := base[dash+1:]
		switch {
		case !isLog:
		case m.mayWrite(id):
		default:
			delete(m.links, name)
		}
	}
}

// mayWrite reports whether the container of a link may still write to its log.
func (m *model) mayWrite(id string) bool {
	c := m.find(id)
	switch {
	case len(id) < 6, c == nil, c.Mute && !c.fixed && !m.Has(snapshotTells):
		return false
	default:
		return c.state != runtimeapi.ContainerState_CONTAINER_EXITED
	}
}
