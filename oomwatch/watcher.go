package oomwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/internal/backoff"
)

// ErrRunning is returned by [Watcher.Run] while another Run is active.
var ErrRunning = errors.New("oomwatch: already running")

// Source observes kills. [Kmsg] and [Counters] implement it.
type Source interface {
	// Name returns the name of the source in [Watcher.Sources].
	Name() string
	// Watch calls emit for each kill that it observes. It returns nil when ctx is done, and an
	// error when it cannot continue. The Watcher then calls Watch again after a pause, and
	// Watch continues where it stopped. If the source can be resumed, the first call starts at
	// the given Position. When the source is ready, it emits an empty Observation. Watch must
	// not call emit concurrently; emit never blocks.
	Watch(ctx context.Context, from Position, emit func(Observation)) error
	// Position returns the position in the source's log up to which all kills were
	// emitted. It is zero if the source cannot be resumed. At most one source of a Watcher
	// may be resumable.
	Position() Position
}

// Config configures a [Watcher].
type Config struct {
	// Sources are watched concurrently; a kill that several of them report is reported
	// once. Required.
	Sources []Source
	// Resume is a [Watcher.Position] of an earlier process: kills up to this Position are
	// not reported again. If Resume is zero or from another boot, the Watcher starts at
	// the end of the log.
	Resume Position
	// Handler is called by Run for each kill, one call at a time, in the order in which
	// the kills were queued. If Handler is nil, call [Watcher.Next].
	Handler func(context.Context, Kill)
	// Attribute returns the pod UID and the container ID to which a cgroup belongs. Both
	// are empty if the cgroup belongs to no pod and no container. Attribute must not block
	// or call the Watcher. Default [ParseCgroup].
	Attribute func(cgroup string) (types.UID, string)
	// Window is how long the Watcher holds a kill that only a counter has reported,
	// because the log may still report the kill. It is also how long the Watcher holds a
	// kill without a cgroup in the log, because a counter may still report the cgroup. The
	// Watcher holds a kill with a cgroup in the log only until it has reported all earlier
	// kills in the log; [Kmsg] holds each kill for [KmsgConfig.Hold]. Default 3 s, three
	// times the default period of [Counters].
	Window time.Duration
	// QueueSize is how many kills can wait for a slow handler. Default 1,024. Further
	// kills are dropped, and counted in [Lost] of the next kill.
	QueueSize int
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and tests. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They are called by Run's goroutines, one at a time.
// They must not block or call the Watcher.
type Observer struct {
	// LostRecords is called when records of the log were overwritten before they were
	// read.
	LostRecords func(n uint64)
	// DroppedKill is called for a kill that was dropped because the queue was full.
	DroppedKill func(Kill)
	// SourceFailed is called when a source fails. The Watcher then retries the source.
	SourceFailed func(name string, err error)
}

// Validate returns every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	if len(c.Sources) == 0 {
		errs = append(errs, errors.New("field Sources must not be empty"))
	}
	for i, s := range c.Sources {
		if s == nil {
			errs = append(errs, fmt.Errorf("field Sources[%d] is nil", i))
		}
	}
	if c.QueueSize < 0 {
		errs = append(errs, fmt.Errorf("field QueueSize: %d is negative", c.QueueSize))
	}
	if c.Window < 0 {
		errs = append(errs, fmt.Errorf("field Window: %s is negative", c.Window))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Window = cmp.Or(c.Window, 3*time.Second)
	c.QueueSize = cmp.Or(c.QueueSize, 1024)
	if c.Attribute == nil {
		c.Attribute = ParseCgroup
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	o := &c.Observer
	if o.LostRecords == nil {
		o.LostRecords = func(uint64) {}
	}
	if o.DroppedKill == nil {
		o.DroppedKill = func(Kill) {}
	}
	if o.SourceFailed == nil {
		o.SourceFailed = func(string, error) {}
	}
	return c
}

// The pause before a failed source is retried. It starts at retryMin and doubles each
// time, up to retryMax.
const (
	retryMin = 100 * time.Millisecond
	retryMax = 30 * time.Second
)

// Watcher reports each kill once. Create it with [New]; its methods are safe for
// concurrent use.
type Watcher struct {
	cfg     Config
	running atomic.Bool
	merged  chan struct{} // capacity 1: the merger has a new entry
	queued  chan struct{} // capacity 1: the queue may not be empty

	mu      sync.Mutex
	merger  merger
	lost    Lost   // since the last kill that was queued
	queue   []Kill // kills that were not handled yet
	handled uint64 // sequence number of the last record of the handled kills
	sources []SourceStatus
}

// SourceStatus is the state of a source.
type SourceStatus struct {
	Name string
	// Watching reports whether the source is ready and observes kills.
	Watching bool
	// Err is the last failure of the source. It is nil if the source has not failed or is
	// watching.
	Err error
}

// New returns a Watcher. It starts nothing. The error reports every problem with cfg.
func New(cfg Config) (*Watcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("oomwatch: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	w := &Watcher{
		cfg: cfg, merged: make(chan struct{}, 1), queued: make(chan struct{}, 1),
		merger: merger{window: cfg.Window}, sources: make([]SourceStatus, len(cfg.Sources)),
	}
	for i, s := range cfg.Sources {
		w.sources[i].Name = s.Name()
	}
	return w, nil
}

// Run runs the sources until ctx is done, and returns nil. While another Run is active, it
// returns [ErrRunning]. When Run returns, some kills may have been observed but not handled.
// To get those that are in the kernel's log, pass [Watcher.Position] to the next Watcher as
// Config.Resume.
func (w *Watcher) Run(ctx context.Context) error {
	if !w.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer w.running.Store(false)
	var all sync.WaitGroup
	defer all.Wait()
	for i, s := range w.cfg.Sources {
		all.Go(func() { w.watch(ctx, i, s) })
	}
	if w.cfg.Handler != nil {
		all.Go(func() { w.handle(ctx) })
	}
	w.queueDue(ctx)
	return nil
}

// Next waits for a kill and removes it from the queue, for callers without a Handler. It
// returns ctx's error when ctx is done. Run must be active on another goroutine.
func (w *Watcher) Next(ctx context.Context) (Kill, error) {
	for {
		if kill, ok := w.dequeue(); ok {
			return kill, nil
		}
		select {
		case <-ctx.Done():
			return Kill{}, ctx.Err()
		case <-w.queued:
		}
	}
}

// Position returns the position in the kernel's log up to which all kills were handled by
// the Handler or returned by Next. Save the Position for [Config.Resume]. The zero value
// means that nothing has been read.
func (w *Watcher) Position() Position {
	var read Position
	for _, s := range w.cfg.Sources {
		read = cmp.Or(s.Position(), read)
	}
	read = cmp.Or(read, w.cfg.Resume)
	w.mu.Lock()
	defer w.mu.Unlock()
	// Kills in the log are queued in the order of the log.
	i := slices.IndexFunc(w.queue, func(k Kill) bool { return k.end > 0 })
	if i >= 0 {
		read.Sequence = min(read.Sequence, w.queue[i].from)
	} else if k, ok := w.merger.firstLogged(); ok && k.end > 0 {
		read.Sequence = min(read.Sequence, k.from)
	}
	if read.HandledUpTo = max(read.HandledUpTo, w.handled); read.HandledUpTo <= read.Sequence {
		read.HandledUpTo = 0
	}
	return read
}

// Sources returns the state of the sources. The Watcher reports the kills of the sources
// that are watching, even if other sources have failed.
func (w *Watcher) Sources() []SourceStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sources)
}

// watch runs a source, and runs it again after each failure.
func (w *Watcher) watch(ctx context.Context, i int, source Source) {
	pause := retryMin
	for {
		began := w.cfg.Clock.Now()
		err := source.Watch(ctx, w.cfg.Resume, func(s Observation) { w.emit(i, s) })
		if ctx.Err() != nil {
			w.setNotWatching(i, nil)
			return
		}
		if err == nil {
			err = errStopped
		}
		w.setNotWatching(i, err)
		if w.cfg.Clock.Since(began) > retryMax {
			pause = retryMin // the source worked for some time
		}
		w.cfg.Logger.WarnContext(ctx, "could not read OOM kills from a source, will retry", "source", source.Name(), "retryIn", pause, "err", err)
		timer := w.cfg.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		pause = backoff.Next(pause, retryMin, retryMax)
	}
}

var errStopped = errors.New("source stopped without an error")

// setNotWatching records that a source is not watching any more.
func (w *Watcher) setNotWatching(i int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sources[i].Watching, w.sources[i].Err = false, err
	if err != nil {
		w.cfg.Observer.SourceFailed(w.sources[i].Name, err)
	}
}

// emit processes an Observation of source i. It never waits for a handler.
func (w *Watcher) emit(i int, s Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sources[i].Watching, w.sources[i].Err = true, nil
	if s.LostRecords > 0 {
		w.lost.Records += s.LostRecords
		w.cfg.Observer.LostRecords(s.LostRecords)
	}
	if k := &s.Kill; k.end == 0 && k.Sequence > 0 { // from a source other than Kmsg
		k.from, k.end = k.Sequence-1, k.Sequence
	}
	if s.Kill.Kills > 0 {
		now := w.cfg.Clock.Now()
		w.merger.add(s, now)
		w.enqueue(w.merger.due(now))
		notify(w.merged)
	}
}

// queueDue queues the kills that the merger does not have to hold any longer, until ctx is
// done.
func (w *Watcher) queueDue(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		now := w.cfg.Clock.Now()
		w.enqueue(w.merger.due(now))
		next := w.merger.next()
		w.mu.Unlock()
		timer := w.cfg.Clock.NewTimer(next.Sub(now))
		due := timer.C()
		if next.IsZero() {
			due = nil
		}
		select {
		case <-ctx.Done():
		case <-w.merged:
		case <-due:
		}
		timer.Stop()
	}
}

// enqueue queues kills. The caller holds mu.
func (w *Watcher) enqueue(kills []Kill) {
	for _, kill := range kills {
		kill.PodUID, kill.ContainerID = w.attribute(&kill)
		kill.Lost = w.lost
		if len(w.queue) > w.cfg.QueueSize { // the handler may be handling the first kill, which does not count
			w.lost.Kills++
			w.cfg.Observer.DroppedKill(kill)
			continue
		}
		w.lost = Lost{}
		w.queue = append(w.queue, kill)
		notify(w.queued)
	}
}

// attribute returns the pod and the container to which the victim's cgroup belongs. If it
// belongs to no pod and no container, attribute uses the cgroup whose limit was reached.
func (w *Watcher) attribute(kill *Kill) (types.UID, string) {
	pod, container := w.cfg.Attribute(kill.VictimCgroup)
	if pod == "" && container == "" {
		return w.cfg.Attribute(kill.LimitCgroup)
	}
	return pod, container
}

// handle passes kills to the handler until ctx is done. If ctx is done while the handler
// runs, the kill stays in the queue and is reported again after a restart, because the
// handler may not have handled it.
func (w *Watcher) handle(ctx context.Context) {
	for ctx.Err() == nil {
		if kill, ok := w.peek(); ok {
			w.cfg.Handler(ctx, kill)
			if ctx.Err() == nil {
				w.dequeue()
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-w.queued:
		}
	}
}

// peek returns the next kill without removing it from the queue.
func (w *Watcher) peek() (kill Kill, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return Kill{}, false
	}
	return w.queue[0], true
}

// dequeue removes the first kill from the queue. The kill then counts as handled.
func (w *Watcher) dequeue() (kill Kill, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return Kill{}, false
	}
	kill = w.queue[0]
	w.queue = slices.Delete(w.queue, 0, 1)
	w.handled = max(w.handled, kill.end)
	if len(w.queue) > 0 {
		notify(w.queued) // another call of Next may be waiting
	}
	return kill, true
}

// notify wakes the receiver of c.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
