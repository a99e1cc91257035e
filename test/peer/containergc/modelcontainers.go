package containergc

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A unit is all dead containers of one name in one pod, newest first.
type unit struct {
	uid  string
	dead []*container
}

// cleanContainers removes dead containers.
func (m *model) cleanContainers() {
	ends := m.findEnds()
	units := m.units(ends)
	var remove []*container
	trim := func(u *unit, keep int) {
		if keep >= 0 && len(u.dead) > keep {
			remove = append(remove, u.dead[keep:]...)
			u.dead = u.dead[:keep]
		}
	}
	for _, u := range units {
		if !m.step.NotReady && m.gone(u.uid) {
			trim(u, 0)
		}
	}
	for _, u := range units {
		trim(u, m.w.MaxPerPodContainer)
	}
	total, some := 0, 0
	for _, u := range units {
		total += len(u.dead)
		some += min(len(u.dead), 1)
	}
	if most := m.w.MaxContainers; most >= 0 && total > most {
		flat := &unit{}
		for _, u := range units {
			trim(u, max(1, most/some))
			flat.dead = append(flat.dead, u.dead...)
		}
		slices.SortFunc(flat.dead, func(a, b *container) int {
			if m.Has(ageFromEnd) {
				return cmp.Or(ends[b].Compare(ends[a]), m.newest(a, b))
			}
			return b.made.Compare(a.made)
		})
		trim(flat, most)
	}
	for _, c := range remove {
		if !m.held(c.ID) {
			m.note(c.ID, m.removeContainer(c))
		}
	}
}

// newest orders containers of one name, newest first.
func (m *model) newest(a, b *container) int {
	if m.Has(attemptsTell) && a.Attempt != b.Attempt {
		return cmp.Compare(b.Attempt, a.Attempt)
	}
	return cmp.Or(b.made.Compare(a.made), cmp.Compare(b.ID, a.ID))
}

// units returns the containers that may be removed.
func (m *model) units(ends map[*container]time.Time) (units []*unit) {
	byName := map[[2]string]*unit{}
	for _, c := range m.containers {
		uid, ok := m.uid(c)
		if !ok || !m.isDead(c, uid) {
			continue
		}
		age := c.made
		if m.Has(ageFromEnd) {
			age = m.own(c, ends)
		}
		if m.wall().Add(-m.w.MinAge).Before(age) {
			continue
		}
		key := [2]string{uid, c.Name}
		if byName[key] == nil {
			byName[key] = &unit{uid: uid}
			units = append(units, byName[key])
		}
		byName[key].dead = append(byName[key].dead, c)
	}
	for _, u := range units {
		slices.SortFunc(u.dead, m.newest)
		latest := m.wall()
		for _, c := range u.dead {
			end, seen := m.shown[c]
			if !seen {
				end = m.own(c, ends)
			}
			if end.Before(latest) {
				latest = end
			}
			ends[c] = latest
		}
	}
	return units
}

// isDead reports whether a container is neither running nor about to start.
func (m *model) isDead(c *container, uid string) bool {
	switch c.state {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return false
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		if !m.Has(createdStays) || m.ShouldPodRuntimeBeRemoved(types.UID(uid)) {
			return true
		}
		return slices.ContainsFunc(m.containers, func(other *container) bool {
			uid2, ok := m.uid(other)
			return ok && uid2 == uid && other.Name == c.Name && m.newest(other, c) < 0
		})
	case runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		return true
	default:
		return !m.Has(knownStates)
	}
}

// findEnds returns when containers ended, as our package determines it: at the latest when
// the container was first seen dead.
func (m *model) findEnds() map[*container]time.Time {
	ends := map[*container]time.Time{}
	m.shown = map[*container]time.Time{}
	if m.w.MinAge == 0 && m.w.MaxContainers < 0 || !m.Has(ageFromEnd) {
		return ends
	}
	known := map[string]end{}
	for _, c := range m.containers {
		exited := c.state == runtimeapi.ContainerState_CONTAINER_EXITED
		if !exited && c.state != runtimeapi.ContainerState_CONTAINER_UNKNOWN {
			continue
		}
		e, ok := m.ends[c.ID]
		if !ok && exited {
			if !m.w.Snapshot && m.held(c.ID) {
				continue // our package does not ask for the status during the back-off either
			}
			if c.Mute && !c.fixed && !m.w.Snapshot {
				m.causes["fault:status"] = true
				continue
			}
			e.at = c.ended
		}
		if e.at.IsZero() || !e.seen && e.at.After(m.wall()) {
			e = end{m.now, true, m.offset}
		}
		known[c.ID], ends[c] = e, e.at
		if e.seen {
			ends[c], m.shown[c] = e.at.Add(m.offset), e.at.Add(e.offset)
		}
	}
	m.ends = known
	return ends
}

// own returns the end of a container that the container itself reports.
func (m *model) own(c *container, ends map[*container]time.Time) time.Time {
	end := ends[c]
	if end.IsZero() && c.state == runtimeapi.ContainerState_CONTAINER_CREATED {
		end = c.made
	}
	if end.IsZero() || end.After(m.wall()) {
		return m.wall()
	}
	return end
}

// removeContainer removes a container and returns the fault, "" if it succeeded.
func (m *model) removeContainer(c *container) (fault string) {
	object := "container " + c.ID[:2]
	if c.Mute && !c.fixed && !m.Has(noStatus) {
		return "fault:status"
	}
	if c.state == runtimeapi.ContainerState_CONTAINER_UNKNOWN {
		grace := m.grace(c)
		m.events = append(m.events, "Killing Container is in unknown state, try killing it before removal")
		if c.PreStop && grace > 0 {
			m.call(object, "exec [bye]")
			if c.hookFails() {
				m.events = append(m.events, "FailedPreStopHook PreStopHook failed")
			}
		}
		m.call(object, fmt.Sprint("stop ", max(grace, 2)))
		if c.StopFails && !c.fixed {
			return "fault:stop"
		}
		c.state, c.ended = runtimeapi.ContainerState_CONTAINER_EXITED, m.wall()
	}
	if !m.Has(logsApart) {
		log := m.w.log(c.Container)
		for file := range m.files {
			if strings.HasPrefix(file, log) {
				delete(m.files, file)
			}
		}
	}
	if m.w.LinkFolder == "a file" && !m.Has(readsLinks) {
		return "fault:link" // the kubelet cannot remove the link
	}
	if !m.Has(logsApart) && !c.Unlabelled {
		delete(m.links, m.w.link(c.Container))
	}
	m.call(object, "remove")
	if c.RemoveFails && !c.fixed {
		return "fault:remove"
	}
	m.remove(c)
	return ""
}

// grace returns a container's grace period.
func (m *model) grace(c *container) int64 {
	if n, err := strconv.ParseInt(c.DeletionGrace, 10, 64); err == nil {
		return n
	}
	if n, err := strconv.ParseInt(c.Grace, 10, 64); err == nil {
		return n
	}
	return 2
}

// cleanBoxes removes sandboxes that have no containers.
func (m *model) cleanBoxes() {
	used := map[string]bool{}
	for _, c := range m.containers {
		used[m.boxOf(c.Container)] = true
	}
	for _, b := range slices.Clone(m.boxes) {
		ready := b.Ready == "ready" || b.Ready == "unknown" && m.Has(knownStates)
		newest := !slices.ContainsFunc(m.boxes, func(other *box) bool { return other.UID == b.UID && m.newestBox(other, b) < 0 })
		switch {
		case b.UID == "" && m.Has(needsPod), ready, used[b.ID], newest && !m.gone(b.UID), m.held(b.ID):
		default:
			m.note(b.ID, m.removeBoxOf(b))
		}
	}
}

func (m *model) newestBox(a, b *box) int {
	if m.Has(attemptsTell) && a.Attempt != b.Attempt {
		return cmp.Compare(b.Attempt, a.Attempt)
	}
	return cmp.Or(b.made.Compare(a.made), cmp.Compare(b.ID, a.ID))
}

func (m *model) removeBoxOf(b *box) (fault string) {
	object := "sandbox " + b.ID[len("box-"):]
	m.call(object, "stop")
	if b.StopFails {
		return "fault:box stop"
	}
	m.call(object, "remove")
	if b.RemoveFails {
		return "fault:box remove"
	}
	m.removeBox(b.ID)
	return ""
}
