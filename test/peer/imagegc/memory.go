package imagegc

import (
	"maps"
	"slices"
	"time"
)

// An age is the times that a manager records for an image.
type age struct{ first, last time.Time }

// The kinds of memory: the kubelet's, and four versions of ours. In a version ByName, an image
// is in use if a container names it in any way; in a version byID, it is in use by the
// kubelet's rule. A stored version survives a restart. The versions let rules distinguish these
// two causes.
const (
	theirMemory = iota
	plainByID
	plainByName
	storedByID
	storedByName
	memories
)

// A memory holds the ages of images.
type memory struct {
	ages, saved map[int]age
	used        map[int]bool
	changed     bool
	savedAt     time.Time // when this process saved
	asOf        time.Time // the time to which the saved ages refer
}

func newMemory() memory { return memory{ages: map[int]age{}, used: map[int]bool{}} }

// restart starts with an empty memory, or with the saved ages if the kind of memory is
// stored.
func (m *memory) restart(n *node, kind int) {
	saved, asOf := m.saved, m.asOf
	*m = newMemory()
	m.saved, m.asOf = saved, asOf
	if kind < storedByID || n.faults.Load {
		return
	}
	for i, a := range saved { // with the ages at the time of saving
		a.first = a.first.Add(time.Since(asOf))
		if !a.last.IsZero() {
			a.last = a.last.Add(time.Since(asOf))
		}
		m.ages[i] = a
	}
}

// look updates the memory from the current images and containers.
func (m *memory) look(n *node, v *view, kind int) {
	blind := v.faults.Images || v.faults.Containers
	if kind == theirMemory {
		blind = v.failed()
	}
	for i := range v.images {
		im := &v.images[i]
		if !blind {
			m.note(im, kind, v.at)
		}
		im.ages[kind] = m.ages[im.index]
	}
	if !blind {
		for i := range m.ages {
			if !slices.Contains(n.present, i) {
				delete(m.ages, i)
				m.changed = true
			}
		}
	}
}

func (m *memory) note(im *imageView, kind int, now time.Time) {
	a, known := m.ages[im.index]
	if !known {
		a.first = now
		m.changed = true
	}
	used := im.used
	if kind == plainByName || kind == storedByName {
		used = im.inUse()
	}
	if used {
		a.last = now
	}
	m.changed = m.changed || used != m.used[im.index]
	m.used[im.index], m.ages[im.index] = used, a
}

// save saves the ages as our manager does at the end of each pass.
func (m *memory) save(n *node) {
	for i := range m.ages { // deleted in this pass
		if !slices.Contains(n.present, i) {
			delete(m.ages, i)
			m.changed = true
		}
	}
	if !m.changed && !m.savedAt.IsZero() && (n.w.Loop || time.Since(m.savedAt) < 5*time.Minute) || n.faults.Save {
		return
	}
	m.saved, m.changed, m.savedAt = maps.Clone(m.ages), false, time.Now()
	m.asOf = m.savedAt
}
