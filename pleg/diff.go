package pleg

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// state is what a change of matters. CRI's created and unknown are one, as in the
// kubelet, and so is every value this build does not know.
type state uint8

const (
	absent state = iota
	unknown
	running
	exited
)

// transition returns the events of one container's change, empty where there is
// none. The order is that of delivery.
func transition(from, to state) (first, second EventType) {
	switch {
	case from == to:
		return "", ""
	case to == running:
		return ContainerStarted, ""
	case to == exited:
		return ContainerDied, ""
	case to == unknown:
		return ContainerChanged, ""
	case from == exited:
		return ContainerRemoved, ""
	default:
		return ContainerDied, ContainerRemoved
	}
}

// object is one sandbox or container of a listing.
type object struct {
	id    string
	pod   types.UID
	state state
	// box is a container's sandbox.
	box string
	// podName and podNamespace are what the list tells of the pod. They may be empty.
	podName, podNamespace string
	// sandbox tells the two kinds apart.
	sandbox bool
	// unlabelled marks what is tied to its pod by other means than the label: a
	// list filtered by that does not show it.
	unlabelled bool
}

func (o *object) is(other *object) bool {
	return o.id == other.id && o.pod == other.pod && o.sandbox == other.sandbox
}

// listing is what one look at the runtime showed. Once read it does not change,
// but for what diff keeps in it.
type listing struct {
	objects []object
	// index and seen belong to diff: objects by id, and which of them the other
	// listing has. They are kept for the next diff against the same listing.
	index map[string]int
	seen  []bool
}

// change is one object's step from one listing to the next.
type change struct {
	object   *object // of the newer listing; if that has none, of the older
	from, to state
}

// diff appends to changes what next has otherwise than old, in the order of
// next, then what it has not, in the order of old. The changes point into both.
//
// Listings in the same order are compared by position, which needs no memory.
// From the first difference on, objects are found by id. An id that a listing
// repeats counts once.
func diff(changes []change, old, next *listing) []change {
	i := 0
	for i < len(old.objects) && i < len(next.objects) {
		was, is := &old.objects[i], &next.objects[i]
		if !was.is(is) {
			break
		}
		if was.state != is.state {
			changes = append(changes, change{is, was.state, is.state})
		}
		i++
	}
	if i == len(old.objects) && i == len(next.objects) {
		return changes
	}
	return diffByID(changes, old, next, i)
}

// diffByID is diff from position start on.
func diffByID(changes []change, old, next *listing, start int) []change {
	old.prepare(start)
	var added map[string]bool
	for i := start; i < len(next.objects); i++ {
		is := &next.objects[i]
		at, ok := old.index[is.id]
		switch {
		case ok && old.seen[at]: // a repetition
		case ok && old.objects[at].is(is):
			old.seen[at] = true
			if was := old.objects[at].state; was != is.state {
				changes = append(changes, change{is, was, is.state})
			}
		case !added[is.id]:
			if added == nil {
				added = map[string]bool{}
			}
			added[is.id] = true
			changes = append(changes, change{is, absent, is.state})
		}
	}
	for i := start; i < len(old.objects); i++ {
		if was := &old.objects[i]; !old.seen[i] && old.index[was.id] == i {
			changes = append(changes, change{was, was.state, absent})
		}
	}
	return changes
}

// prepare makes the index, unless it is there already, and marks what lies before
// start as seen.
func (l *listing) prepare(start int) {
	if len(l.index) == 0 {
		if l.index == nil {
			l.index = make(map[string]int, len(l.objects))
		}
		for i, o := range slices.Backward(l.objects) { // the first of a repeated id wins
			l.index[o.id] = i
		}
	}
	if cap(l.seen) < len(l.objects) {
		l.seen = make([]bool, len(l.objects))
	}
	l.seen = l.seen[:len(l.objects)]
	clear(l.seen)
	for i := range start {
		l.seen[i] = true
	}
}

// reset empties l for reading into it anew.
func (l *listing) reset() {
	clear(l.objects)
	l.objects = l.objects[:0]
	clear(l.index)
}
