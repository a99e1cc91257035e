// Package eventlog remembers the last events of an agent for who asks later, and
// lets readers follow them. An event that repeats is counted, not kept again.
//
// Adding one never waits for a reader: readers have no queues, only a place in the
// log, and one that is too slow finds that its place is gone (see [Log.After]).
package eventlog

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/api"
)

const (
	// DefaultSize is how many events are kept.
	DefaultSize = 1000
	// DefaultWindow is how soon an event must come again to be counted with the one
	// before: ten minutes, as with the kubelet.
	DefaultWindow = 10 * time.Minute
)

// Config configures a [Log]. The zero value is fine.
type Config struct {
	// Size is how many events are kept. Default [DefaultSize].
	Size int
	// Window is how soon a repeated event is counted with the one before. Default
	// [DefaultWindow].
	Window time.Duration
	// Clock is the time source. Default the system clock.
	Clock clock.PassiveClock
}

// Log is the last events, oldest first. All methods may be called by any number of
// goroutines.
type Log struct {
	cfg Config

	mu      sync.Mutex
	events  []api.Event
	newest  map[key]uint64 // the number of the last event of its like
	number  uint64         // of the last event
	lost    uint64         // the highest number that was pushed out
	changed chan struct{}  // is closed at the next event; nil if nobody waits
}

// key is what makes two events the same but for their time.
type key struct{ kind, namespace, name, fieldPath, eventType, reason, message string }

// New returns an empty Log.
func New(cfg Config) *Log {
	cfg.Size = cmp.Or(max(cfg.Size, 0), DefaultSize)
	cfg.Window = cmp.Or(max(cfg.Window, 0), DefaultWindow)
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Log{cfg: cfg, newest: map[key]uint64{}}
}

// Add takes an event, of which Number, Time and Count are set here, and returns it.
// One that repeats moves to the end under a new number, with its count: so readers
// that have seen it see that it came again.
func (l *Log) Add(e api.Event) api.Event {
	now := l.cfg.Clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key{e.Kind, e.Namespace, e.Name, e.FieldPath, e.Type, e.Reason, e.Message}
	l.number++
	e.Number, e.Time, e.Count = l.number, now, 1
	if i, ok := l.find(l.newest[k]); ok && now.Sub(l.events[i].Time) < l.cfg.Window {
		e.Count += l.events[i].Count
		l.events = slices.Delete(l.events, i, i+1)
	}
	if len(l.events) >= l.cfg.Size {
		l.push()
	}
	l.events = append(l.events, e)
	l.newest[k] = e.Number
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
	return e
}

// push makes room for one more. Callers hold mu.
func (l *Log) push() {
	old := l.events[0]
	k := key{old.Kind, old.Namespace, old.Name, old.FieldPath, old.Type, old.Reason, old.Message}
	if l.newest[k] == old.Number {
		delete(l.newest, k)
	}
	l.lost = old.Number
	l.events = slices.Delete(l.events, 0, 1)
}

// find returns the place of the event of that number. Callers hold mu.
func (l *Log) find(number uint64) (int, bool) {
	return slices.BinarySearchFunc(l.events, number, func(e api.Event, n uint64) int { return cmp.Compare(e.Number, n) })
}

// After returns the events with higher numbers, oldest first, and the number to ask
// with next. Complete says that none of them were pushed out before they could be
// read. A number that is higher than the last one is of an agent before this one, and
// counts as 0. The slice is the caller's.
func (l *Log) After(number uint64) (events []api.Event, next uint64, complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number > l.number {
		number = 0
	}
	i, _ := l.find(number + 1)
	return slices.Clone(l.events[i:]), l.number, number >= l.lost
}

// Changed returns a channel that is closed when there is an event with a higher
// number, at once if there is one.
func (l *Log) Changed(number uint64) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	if number < l.number {
		done := make(chan struct{})
		close(done)
		return done
	}
	return l.changed
}

// About returns the last events about a pod or a node, newest first, at most limit.
func (l *Log) About(kind, namespace, name string, limit int) (events []api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range slices.Backward(l.events) {
		if len(events) == limit {
			break
		}
		if e.Kind == kind && e.Namespace == namespace && e.Name == name {
			events = append(events, e)
		}
	}
	return events
}
