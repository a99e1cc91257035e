package eventlog

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

const (
	// DefaultSize is the default of Config.Size.
	DefaultSize = 1000
	// DefaultWindow is the default of Config.Window, as in the kubelet.
	DefaultWindow = 10 * time.Minute
)

// Config configures a [Log]. The zero value selects all defaults.
type Config struct {
	// Size is the maximum number of events. Default: [DefaultSize].
	Size int
	// Window limits the time between two equal events that the log stores as one event with a
	// higher count. Each repetition restarts the window. Default: [DefaultWindow].
	Window time.Duration
	// Clock is the time source. Default: the system clock.
	Clock clock.PassiveClock
}

// Log stores the last events, oldest first. All methods may be called concurrently.
type Log struct {
	cfg Config

	mu      sync.Mutex
	events  []api.Event
	newest  map[key]uint64 // number of the last event with this key
	number  uint64         // number of the last event
	lost    uint64         // the highest deleted number
	changed chan struct{}  // closed at the next event; nil if no reader has requested it
}

// key has the fields that are equal in an event and its repetition.
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

// Add adds an event, and returns the event with its Number, Time and Count. If an equal event
// was stored within the window, the new event replaces the stored event. The new event has the sum
// of the counts and a new number, so that readers receive the new count.
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
		l.deleteOldest()
	}
	l.events = append(l.events, e)
	l.newest[k] = e.Number
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
	return e
}

// deleteOldest deletes the oldest event. Callers hold mu.
func (l *Log) deleteOldest() {
	old := l.events[0]
	k := key{old.Kind, old.Namespace, old.Name, old.FieldPath, old.Type, old.Reason, old.Message}
	if l.newest[k] == old.Number {
		delete(l.newest, k)
	}
	l.lost = old.Number
	l.events = slices.Delete(l.events, 0, 1)
}

// find returns the index of the event with the number, or of the first event with a higher number.
// It also reports whether an event with exactly this number exists. Callers hold mu.
func (l *Log) find(number uint64) (int, bool) {
	return slices.BinarySearchFunc(l.events, number, func(e api.Event, n uint64) int { return cmp.Compare(e.Number, n) })
}

// After returns the stored events with numbers above the given number, oldest first, and the number
// for the next call. It returns false if an event with a number above the given number was deleted.
// If the given number is above the number of the last event, it comes from an earlier process and
// counts as 0. The caller owns the slice.
func (l *Log) After(number uint64) (events []api.Event, next uint64, complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number > l.number {
		number = 0
	}
	i, _ := l.find(number + 1)
	return slices.Clone(l.events[i:]), l.number, number >= l.lost
}

// Changed returns a channel that is closed when the log has an event with a number above the given
// number. If the log already has such an event, the channel is closed at once.
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

// About returns the last events about an object, newest first. The limit is the maximum number of
// events.
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

// AnnotatedEventf adds an event. Because of this method, a Log is an event recorder for an agent.
// The object must be a *corev1.ObjectReference; events about other objects are ignored. Annotations
// are ignored, too.
func (l *Log) AnnotatedEventf(object runtime.Object, _ map[string]string, eventtype, reason, messageFmt string, args ...any) {
	about, ok := object.(*corev1.ObjectReference)
	if !ok || about == nil {
		return
	}
	l.Add(api.Event{
		Type: eventtype, Reason: reason, Message: fmt.Sprintf(messageFmt, args...),
		Kind: about.Kind, Namespace: about.Namespace, Name: about.Name, FieldPath: about.FieldPath,
	})
}
