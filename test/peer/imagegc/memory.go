package imagegc

import (
	"maps"
	"slices"
	"time"
)

// An age is what a manager remembers of an image. A time that was loaded has no
// monotonic reading: it is one on the wall, and fixed is how far that was off then.
type age struct {
	first, last           time.Time
	firstLoaded, lastLoad bool
}

// The kinds of memory. Ours differs in what counts as use, and in whether it survives
// a restart; one that does not, and counts as the kubelet, tells the causes apart.
const (
	theirMemory = iota
	plainByID
	plainByName
	storedByID
	storedByName
	wrongByID // stored, with the clock on the wall
	wrongByName
	memories
)

// A memory holds the ages of images.
type memory struct {
	ages, saved map[int]age
	used        map[int]bool
	changed     bool
	savedAt     time.Time
	offset      time.Duration // of the wall when it was saved
}

func newMemory() memory { return memory{ages: map[int]age{}, used: map[int]bool{}} }

// restart begins anew, with what was saved if the kind of memory is stored.
func (m *memory) restart(n *node, kind int) {
	saved, offset := m.saved, m.offset
	*m = newMemory()
	m.saved, m.offset = saved, offset
	if kind < storedByID || n.faults.Load {
		return
	}
	moved := time.Duration(0)
	if kind >= wrongByID {
		moved = n.offset - offset
	}
	for i, a := range saved {
		a.first, a.firstLoaded = loaded(a.first, moved)
		if !a.last.IsZero() {
			a.last, a.lastLoad = loaded(a.last, moved)
		}
		if kind < wrongByID {
			a.firstLoaded, a.lastLoad = false, false
		}
		m.ages[i] = a
	}
}

// loaded returns what becomes of a time when it is loaded: one that is yet to come is
// now, and no longer what was loaded.
func loaded(t time.Time, moved time.Duration) (time.Time, bool) {
	if t, now := t.Add(-moved), time.Now(); t.After(now) {
		return now, false
	}
	return t.Add(-moved), true
}

// set moves loaded times when the clock on the wall is set.
func (m *memory) set(by time.Duration) {
	for i, a := range m.ages {
		if a.firstLoaded {
			a.first = a.first.Add(-by)
		}
		if a.lastLoad && !a.last.IsZero() {
			a.last = a.last.Add(-by)
		}
		m.ages[i] = a
	}
}

// look takes in what there is.
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
	if kind == plainByName || kind == storedByName || kind == wrongByName {
		used = im.inUse()
	}
	if used {
		a.last, a.lastLoad = now, false
	}
	m.changed = m.changed || used != m.used[im.index]
	m.used[im.index], m.ages[im.index] = used, a
}

// save does what ours does at the end of each pass.
func (m *memory) save(n *node) {
	for i := range m.ages { // deleted in the pass
		if !slices.Contains(n.present, i) {
			delete(m.ages, i)
			m.changed = true
		}
	}
	if !m.changed && !m.savedAt.IsZero() && (n.w.Loop || time.Since(m.savedAt) < 5*time.Minute) || n.faults.Save {
		return
	}
	m.saved, m.offset, m.changed, m.savedAt = maps.Clone(m.ages), n.offset, false, time.Now()
}
