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

// ErrRunning says that the watcher is running already.
var ErrRunning = errors.New("oomwatch: already running")

// Source is where kills are seen: [Kmsg], [Counters], or one of your own.
type Source interface {
	// Name names the source in [Watcher.Sources].
	Name() string
	// Watch emits what it sees until ctx is done, and then returns nil, or until it
	// can't go on, and then returns why. It is called again after a pause, and goes
	// on where it was; the first time it goes on at from, if it can. Once it can see
	// anything it emits an empty sighting. Emit may be called by one goroutine at a
	// time, and waits for nobody.
	Watch(ctx context.Context, from Position, emit func(Sighting)) error
	// Position is how far its log has been read, without the kills that it has not
	// emitted yet. It is zero for a source that can't be resumed; one at most can.
	Position() Position
}

// Config configures a [Watcher].
type Config struct {
	// Sources are watched side by side; what several tell is told once. Required.
	Sources []Source
	// Resume is a [Watcher.Position] of an earlier process: nothing up to it is told
	// again. The zero value, and that of another boot, is the end of the log.
	Resume Position
	// Handler is called for each kill, one at a time, in the order in which they
	// were told, by Run. If it is nil, take them with [Watcher.Next].
	Handler func(context.Context, Kill)
	// Attribute returns the pod and the container that a cgroup belongs to, empty
	// where it is nobody's. It must not block and not call the Watcher. Default
	// [ParseCgroup].
	Attribute func(cgroup string) (types.UID, string)
	// Window is how long a counter that rose waits for the log to say more, and the
	// other way round. Default 3 s, a look of [Counters] and a bit. A kill whose
	// line in the log is complete waits for nothing.
	Window time.Duration
	// QueueSize is how many kills wait for a slow handler. Default 1,024. Those that
	// find it full are dropped, and counted in [Lost] of the next one.
	QueueSize int
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives what happens. Optional.
	Observer Observer
}

// Observer holds optional callbacks, called by Run's goroutines one at a time. They must
// not block and not call the Watcher.
type Observer struct {
	// LostRecords is called when records of the log were overwritten unread.
	LostRecords func(n uint64)
	// DroppedKill is called for a kill that found the queue full.
	DroppedKill func(Kill)
	// SourceFailed is called when a source can't go on; it is tried again.
	SourceFailed func(name string, err error)
}

// Validate returns all problems with c, joined; nil if there are none.
func (c Config) Validate() error {
	var errs []error
	if len(c.Sources) == 0 {
		errs = append(errs, errors.New("field Sources: want at least one"))
	}
	for i, s := range c.Sources {
		if s == nil {
			errs = append(errs, fmt.Errorf("field Sources[%d] is nil", i))
		}
	}
	if c.QueueSize < 0 {
		errs = append(errs, fmt.Errorf("field QueueSize %d: want none or a positive one", c.QueueSize))
	}
	if c.Window < 0 {
		errs = append(errs, fmt.Errorf("field Window %s: want none or a positive one", c.Window))
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

// The pause before a source that failed is tried again, which doubles each time.
const (
	retryMin = 100 * time.Millisecond
	retryMax = 30 * time.Second
)

// Watcher tells each kill once. Make it with [New]; its methods are safe for
// concurrent use.
type Watcher struct {
	cfg     Config
	running atomic.Bool
	held    chan struct{} // capacity 1: the merger holds something new
	queued  chan struct{} // capacity 1: the queue may not be empty

	mu      sync.Mutex
	merger  merger
	lost    Lost   // since the last kill that was queued
	queue   []Kill // told and not handled yet
	handled uint64 // the last record of the log's kills that were
	sources []SourceStatus
}

// SourceStatus says how a source is doing.
type SourceStatus struct {
	Name string
	// Watching says that it sees what happens.
	Watching bool
	// Err is why it last failed; it is nil before that and while it is watching.
	Err error
}

// New returns a watcher, or an error that names every problem with cfg. It starts
// nothing.
func New(cfg Config) (*Watcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("oomwatch: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	w := &Watcher{
		cfg: cfg, held: make(chan struct{}, 1), queued: make(chan struct{}, 1),
		merger: merger{window: cfg.Window}, sources: make([]SourceStatus, len(cfg.Sources)),
	}
	for i, s := range cfg.Sources {
		w.sources[i].Name = s.Name()
	}
	return w, nil
}

// Run watches until ctx is done and returns nil. What has been seen by then and not
// handled is told again by a Run that resumes at [Watcher.Position]. A second Run
// beside the first returns [ErrRunning].
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
	w.tellDue(ctx)
	return nil
}

// Next waits for a kill and takes it off the queue, for those who have no Handler.
// The error is ctx's. Run must be running elsewhere.
func (w *Watcher) Next(ctx context.Context) (Kill, error) {
	for {
		if kill, ok := w.take(); ok {
			return kill, nil
		}
		select {
		case <-ctx.Done():
			return Kill{}, ctx.Err()
		case <-w.queued:
		}
	}
}

// Position is how far the kernel's log has been read and all its kills handled, or
// taken with Next: what to save for [Config.Resume]. The zero value says that
// nothing has been read.
func (w *Watcher) Position() Position {
	var read Position
	for _, s := range w.cfg.Sources {
		read = cmp.Or(s.Position(), read)
	}
	read = cmp.Or(read, w.cfg.Resume)
	w.mu.Lock()
	defer w.mu.Unlock()
	// The log's kills are told in its order.
	i := slices.IndexFunc(w.queue, func(k Kill) bool { return k.end > 0 })
	if i >= 0 {
		read.Sequence = min(read.Sequence, w.queue[i].from)
	} else if k, ok := w.merger.logged(); ok && k.end > 0 {
		read.Sequence = min(read.Sequence, k.from)
	}
	if read.Told = max(read.Told, w.handled); read.Told <= read.Sequence {
		read.Told = 0
	}
	return read
}

// Sources returns how the sources are doing. As long as one is watching, kills of
// the kind that it sees are told.
func (w *Watcher) Sources() []SourceStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sources)
}

// watch watches a source again and again.
func (w *Watcher) watch(ctx context.Context, i int, source Source) {
	pause := retryMin
	for {
		began := w.cfg.Clock.Now()
		err := source.Watch(ctx, w.cfg.Resume, func(s Sighting) { w.emit(i, s) })
		if ctx.Err() != nil {
			w.setSource(i, nil)
			return
		}
		if err == nil {
			err = errEnded
		}
		w.setSource(i, err)
		if w.cfg.Clock.Since(began) > retryMax {
			pause = retryMin // it had been well
		}
		w.cfg.Logger.WarnContext(ctx, "a source of memory kills failed", "source", source.Name(), "retryIn", pause, "err", err)
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

var errEnded = errors.New("it ended")

// setSource notes that a source does not watch any more.
func (w *Watcher) setSource(i int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sources[i].Watching, w.sources[i].Err = false, err
	if err != nil {
		w.cfg.Observer.SourceFailed(w.sources[i].Name, err)
	}
}

// emit takes a sighting of a source. It never waits for a handler.
func (w *Watcher) emit(i int, s Sighting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sources[i].Watching, w.sources[i].Err = true, nil
	if s.LostRecords > 0 {
		w.lost.Records += s.LostRecords
		w.cfg.Observer.LostRecords(s.LostRecords)
	}
	if k := &s.Kill; k.end == 0 && k.Sequence > 0 { // of a source that is not ours
		k.from, k.end = k.Sequence-1, k.Sequence
	}
	if s.Kill.Kills > 0 {
		now := w.cfg.Clock.Now()
		w.merger.add(s, now)
		w.tell(w.merger.due(now))
		signal(w.held)
	}
}

// tellDue tells what the merger has held long enough, until ctx is done.
func (w *Watcher) tellDue(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		now := w.cfg.Clock.Now()
		w.tell(w.merger.due(now))
		next := w.merger.next()
		w.mu.Unlock()
		timer := w.cfg.Clock.NewTimer(next.Sub(now))
		due := timer.C()
		if next.IsZero() {
			due = nil
		}
		select {
		case <-ctx.Done():
		case <-w.held:
		case <-due:
		}
		timer.Stop()
	}
}

// tell queues kills; it is called with the lock held.
func (w *Watcher) tell(kills []Kill) {
	for _, kill := range kills {
		kill.PodUID, kill.ContainerID = w.attribute(&kill)
		kill.Lost = w.lost
		if len(w.queue) > w.cfg.QueueSize { // one is being handled
			w.lost.Kills++
			w.cfg.Observer.DroppedKill(kill)
			continue
		}
		w.lost = Lost{}
		w.queue = append(w.queue, kill)
		signal(w.queued)
	}
}

// attribute says whose the kill was: the victim's pod, or that whose limit was
// reached.
func (w *Watcher) attribute(kill *Kill) (types.UID, string) {
	pod, container := w.cfg.Attribute(kill.VictimCgroup)
	if pod == "" && container == "" {
		return w.cfg.Attribute(kill.LimitCgroup)
	}
	return pod, container
}

// handle hands kills to the handler until ctx is done. A kill that the handler had then
// may not have been handled: it is again.
func (w *Watcher) handle(ctx context.Context) {
	for ctx.Err() == nil {
		if kill, ok := w.first(); ok {
			w.cfg.Handler(ctx, kill)
			if ctx.Err() == nil {
				w.take()
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-w.queued:
		}
	}
}

// first returns the kill that is handled next.
func (w *Watcher) first() (kill Kill, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return Kill{}, false
	}
	return w.queue[0], true
}

// take removes the first kill, which counts as handled.
func (w *Watcher) take() (kill Kill, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return Kill{}, false
	}
	kill = w.queue[0]
	w.queue = slices.Delete(w.queue, 0, 1)
	w.handled = max(w.handled, kill.end)
	if len(w.queue) > 0 {
		signal(w.queued) // another Next may wait
	}
	return kill, true
}

// signal wakes the one that waits for c.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
