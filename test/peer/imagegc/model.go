package imagegc

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// The behaviours in which our package differs from the kubelet.
const (
	ageFromFirst    judge.Traits = 1 << iota // the age of an image that was never used counts from its first detection
	minAgeAlways                             // MinAge also applies to the deletion by maximum age
	agesSurvive                              // ages survive a restart
	namesCount                               // a container's image names count as use
	keepsPause                               // keeps the pause image
	measures                                 // measures the disk after each deletion
	ageGoesOn                                // failed deletions by age do not end a pass
	enoughIsFine                             // failures are no error if enough space was freed
	backsOff                                 // backs off after failures
	quiets                                   // does not repeat events
	hooksAll                                 // calls the hook after each attempt, with all remaining images
	nothingIsEnough                          // deletes nothing if nothing must be freed
	looksAgain                               // checks for new containers between deletions
	inspectsOnce                             // asks for the status of each container once, and ignores failures
	noSandboxes                              // does not list sandboxes
	goneIsFine                               // an image that is not found counts as deleted
	needsID                                  // deletes an image only if it has an ID
	wideNumbers                              // computes percentages without overflow
	anyVolume                                // an image volume protects the image, for every runtime handler
	tellsNoID                                // records the event about images without an ID also without the feature gate
	everyTrait      judge.Traits = 1<<iota - 1
)

// A model plays a side for the rules.
type model struct {
	judge.Traits
	w *World
	view
	facts                    judge.Facts
	now                      time.Time
	order                    []string
	failures                 map[int]int
	retryAt                  map[int]time.Time
	quiet                    map[string]time.Time
	failing                  bool
	present                  map[int]bool
	visitors                 map[int]time.Time // image -> since
	listedAt                 time.Time
	tried, failed, failedAge bool
	stopped                  bool // the second list of containers failed
	causes                   map[string]bool
	freed                    uint64
	kept                     []string
}

// predict returns the facts of each step for a side with these traits.
func (w *World) predict(t judge.Traits) (all []judge.Facts) {
	m := model{Traits: t, w: w}
	for _, v := range w.seen {
		m.play(v)
		all = append(all, m.facts)
	}
	return all
}

// play plays one step.
func (m *model) play(v view) {
	if v.restart {
		m.failures, m.retryAt, m.quiet, m.failing = map[int]int{}, map[int]time.Time{}, map[string]time.Time{}, false
	}
	m.view, m.now, m.listedAt, m.facts, m.order = v, v.at, v.at, judge.Facts{"act": v.act}, nil
	m.tried, m.failed, m.failedAge, m.stopped, m.freed, m.kept = false, false, false, false, 0, nil
	m.causes, m.present, m.visitors = map[string]bool{}, map[int]bool{}, map[int]time.Time{}
	for _, im := range v.images {
		m.present[im.index] = true
	}
	full := ""
	if m.lists() {
		m.invalid()
		switch v.act {
		case "collect":
			full = m.collect()
		case "delete unused":
			m.space(everything, nil)
			m.theirHook()
		}
	}
	if m.Has(hooksAll) && m.tried {
		m.facts["hook"] = m.hook(m.there())
	}
	if m.w.Workers == 1 {
		m.facts["order"] = strings.Join(m.order, ", ")
	}
	m.facts["error"] = m.text(full)
	m.loop()
}

// loop plays the actions of the loop after a collection.
func (m *model) loop() {
	if !m.w.Loop || m.act != "collect" {
		return
	}
	failed := m.facts["error"] != ""
	if failed && m.failing {
		m.event("ImageGCFailed", m.facts["error"])
	}
	if m.failing = failed; !failed {
		clear(m.quiet)
	}
}

func (m *model) text(full string) string {
	var found []string
	for _, cause := range faultNames() {
		if m.causes[cause] {
			found = append(found, cause)
		}
	}
	if full != "" {
		found = append(found, full)
	}
	return strings.Join(found, "; ")
}

// lists reports whether the calls that a pass needs succeed.
func (m *model) lists() bool {
	f := m.faults
	for _, list := range []struct {
		fails bool
		cause string
	}{
		{f.Images, "fault:images"},
		{f.Sandboxes && !m.Has(noSandboxes), "fault:sandboxes"},
		{f.Containers, "fault:containers"},
	} {
		if list.fails {
			m.causes[list.cause] = true
			return false
		}
	}
	// The kubelet asks for the status of the newest container first.
	for _, b := range slices.Backward(m.boxes) {
		switch {
		case b.gone && !m.Has(inspectsOnce):
			m.causes["fault:status"] = true
		case b.mute && (!m.Has(inspectsOnce) || !b.ended && m.at.Sub(b.since) < 10*time.Minute):
			m.causes["fault:status"] = true
		default:
			continue
		}
		return false
	}
	return true
}

func (m *model) age(im imageView) age {
	kind := theirMemory
	switch {
	case m.Has(agesSurvive) && m.w.Store:
		kind = storedByID
	case m.Has(inspectsOnce | noSandboxes):
		kind = plainByID
	}
	if kind != theirMemory && m.Has(namesCount) {
		kind++
	}
	return im.ages[kind]
}

func (m *model) used(im imageView) bool {
	if im.ID == "" && m.Has(needsID) {
		return m.Has(namesCount) && im.named
	}
	return im.used || m.Has(anyVolume) && im.volume || m.Has(namesCount) && im.named
}

// candidates returns the images that may be deleted, in the order of deletion.
func (m *model) candidates() []imageView {
	var all []imageView
	for _, im := range m.images {
		switch {
		case !m.present[im.index], im.pinned, m.used(im),
			m.Has(keepsPause) && im.pause,
			(m.Has(needsID) || m.w.Gate) && im.ID == "",
			m.Has(backsOff) && m.at.Before(m.retryAt[im.index]):
		default:
			all = append(all, im)
		}
	}
	slices.SortFunc(all, func(a, b imageView) int {
		x, y := m.age(a), m.age(b)
		if c := x.last.Compare(y.last); c != 0 {
			return c
		}
		if c := x.first.Compare(y.first); c != 0 {
			return c
		}
		return int(b.Size) - int(a.Size)
	})
	return all
}

// invalid records the kubelet's event about images without an ID.
func (m *model) invalid() {
	for _, im := range m.images {
		if (m.w.Gate || m.Has(tellsNoID)) && m.act != "detect" && im.ID == "" && !im.pinned && !m.used(im) {
			key := ""
			if im.Handler != "" {
				key = "," + im.Handler
			}
			m.event("InvalidImageID", "ImageID is not valid, skipping, image: "+key)
		}
	}
}

func (m *model) minAge() time.Duration { return value(m.w.MinAge, 2*time.Minute) }

func value[T any](p *T, other T) T {
	if p == nil {
		return other
	}
	return *p
}

// collect plays a pass: first over old images, then for space. It returns the error text
// about missing space.
func (m *model) collect() (full string) {
	m.oldAge()
	if m.failedAge && !m.Has(ageGoesOn) {
		return ""
	}
	capacity := m.capacity
	switch {
	case m.faults.Disk:
		m.causes["fault:disk"] = true
		return ""
	case m.faults.Odd == "no capacity":
		m.causes[invalidCapacity] = true
		m.event("InvalidDiskCapacity", invalidCapacity)
		return ""
	}
	percent, want := m.wanted(capacity)
	if percent < value(m.w.High, 85) || want <= 0 && m.Has(nothingIsEnough) {
		return ""
	}
	before := m.available()
	m.failed, m.stopped, m.freed = false, false, 0
	aged := maps.Clone(m.causes)
	m.space(uint64(max(want, 0)), &before)
	m.theirHook()
	freed := m.freed
	if m.Has(measures) {
		freed = m.available() - before
	}
	if m.failed && (int64(freed) < want || !m.Has(enoughIsFine)) {
		m.facts["amounts"] = fmt.Sprintf("wanted to free %d bytes, but freed %d", want, freed)
	}
	if int64(freed) >= want {
		if m.Has(enoughIsFine) {
			m.causes = aged
		}
		return ""
	}
	if m.failed {
		return ""
	}
	full = fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.", percent, m.size(capacity), freed)
	m.event("FreeDiskSpaceFailed", full)
	return full
}

const invalidCapacity = "invalid capacity 0 on image filesystem"

// wanted returns the usage of the disk in percent and the number of bytes to free.
func (m *model) wanted(capacity uint64) (percent int, want int64) {
	low := uint64(100 - m.low())
	if !m.Has(wideNumbers) {
		c, a := int64(capacity), int64(m.available())
		return 100 - int(a*100/c), c*int64(low)/100 - a
	}
	return 100 - int(share(m.available(), 100, capacity)), int64(share(capacity, low, 100)) - int64(m.available())
}

func (m *model) low() int { return value(m.w.Low, 80) }

// share returns a*b/c.
func share(a, b, c uint64) uint64 {
	high, low := bits.Mul64(a, b)
	q, _ := bits.Div64(high, low, c)
	return q
}

func (m *model) size(bytes uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	size, at := float64(bytes), 0
	for ; size >= 1024 && at < 4; at++ {
		size /= 1024
	}
	if at == 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", size, units[at])
}

func (m *model) oldAge() {
	if m.w.MaxAge > 0 && m.Has(measures) {
		m.measureAgain()
	}
	if m.w.MaxAge == 0 || !m.Has(agesSurvive) && m.at.Sub(m.began) <= m.w.MaxAge {
		return
	}
	for _, im := range m.candidates() {
		a := m.age(im)
		since := a.last
		if m.Has(ageFromFirst) && a.first.After(since) {
			since = a.first
		}
		if m.at.Sub(since) <= m.w.MaxAge || m.Has(minAgeAlways) && m.at.Sub(a.first) < m.minAge() {
			continue
		}
		if m.try(im, "age") {
			m.failedAge = true
		}
		if m.stopped {
			break
		}
	}
}

const everything = math.MaxInt64

// space deletes images until want bytes are free. before is the available amount before the
// pass.
func (m *model) space(want uint64, before *uint64) {
	for _, im := range m.candidates() {
		if m.at.Sub(m.age(im).first) < m.minAge() {
			m.kept = append(m.kept, im.name)
			continue
		}
		if before != nil && m.Has(measures) && m.available()-*before >= want {
			return
		}
		failed := m.try(im, "space")
		if m.stopped {
			return
		}
		if failed {
			m.kept = append(m.kept, im.name)
			continue
		}
		if before != nil && !m.Has(measures) && m.freed >= want {
			return
		}
	}
}

// try deletes an image and reports whether the deletion failed.
func (m *model) try(im imageView, reason string) (failed bool) {
	if m.now.Sub(m.listedAt) > 5*time.Second && m.Has(looksAgain) {
		if m.faults.Later {
			m.causes["fault:containers"], m.stopped, m.failed = true, true, true
			return true
		}
		m.listedAt = m.now
	}
	if since, ok := m.visitors[im.index]; ok && m.Has(looksAgain) && since.Before(m.listedAt) {
		return false
	}
	m.tried = true
	m.order = append(m.order, im.name)
	cause := ""
	if im.Slow > 0 {
		m.visit(im.guest)
		m.now = m.now.Add(min(im.Slow, callLimit))
	}
	switch {
	case im.Slow > callLimit:
		cause = "fault:hang"
	case im.Stuck:
		cause = "fault:stuck"
	default:
		delete(m.present, im.index)
		m.filled -= im.Takes
		if im.NotFound {
			cause = "fault:not found"
		}
	}
	text := reason
	if cause != "" {
		text += ", failed"
	}
	m.facts[im.name+" deletion"] += text + ";"
	if cause == "" || cause == "fault:not found" && m.Has(goneIsFine) {
		m.freed += im.Size
		m.measureAgain()
		return false
	}
	m.retryAt[im.index] = m.now.Add(min(time.Minute<<min(m.failures[im.index], 10), time.Hour))
	m.failures[im.index]++
	m.causes[cause], m.failed = true, true
	return true
}

// visit records the images of a container that starts now.
func (m *model) visit(g guest) {
	if !m.present[g.of] {
		return
	}
	used := []int{g.of}
	if m.Has(namesCount) {
		used = append(used, g.named...)
	}
	for _, i := range used {
		if _, ok := m.visitors[i]; !ok {
			m.visitors[i] = m.now
		}
	}
}

// measureAgain plays our measurement after a deletion, which can record an event.
func (m *model) measureAgain() {
	if m.Has(measures) && m.faults.Odd == "no capacity" && !m.faults.Disk {
		m.event("InvalidDiskCapacity", invalidCapacity)
	}
}

// available returns the available amount as a measurement returns it.
func (m *model) available() uint64 {
	if m.faults.Odd == "available above capacity" {
		return m.capacity
	}
	return m.capacity - min(m.capacity, m.filled)
}

func (m *model) there() []string {
	var names []string
	for _, im := range m.images {
		if m.present[im.index] && im.ID != "" {
			names = append(names, im.name)
		}
	}
	return names
}

// theirHook plays the kubelet's call of the hook.
func (m *model) theirHook() {
	if !m.failed && !m.Has(hooksAll) {
		m.facts["hook"] = m.hook(m.kept)
	}
}

func (m *model) hook(names []string) string {
	slices.Sort(names)
	return fmt.Sprintf("[%s] 0s", strings.Join(names, ", "))
}

// event records an event, unless our manager recorded one with this reason shortly before.
func (m *model) event(reason, message string) {
	if m.Has(quiets) && m.now.Before(m.quiet[reason]) {
		return
	}
	m.quiet[reason] = m.now.Add(1)
	if m.w.Quiet {
		m.quiet[reason] = m.now.Add(time.Hour)
	}
	m.facts["event "+reason] += message + ";"
}
