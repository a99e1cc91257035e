package pleg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/loop"
)

// ErrRunning is returned by a second [Generator.Run] beside the first.
var ErrRunning = loop.ErrRunning

// Generator relists the runtime, keeps a podcache.Cache fresh and tells a handler
// which pods changed. Make it with [New]; its methods may be called by any number
// of goroutines, except that a handler or observer must not start a pass.
type Generator struct {
	cfg  Config
	loop *loop.Loop

	// step, of capacity 1, is full while a pass is under way, its handler included.
	// It serialises them, guards the fields down to mu, and is a channel because
	// those who wait for it have a context.
	step    chan struct{}
	listed  []object // the newest listed objects of each pod
	records map[types.UID]*record
	// dirty holds the records that the next global relist must look at even if
	// it finds no change.
	dirty   map[types.UID]*record
	ended   time.Time // when the last global relist of Run was over
	visited types.UID // the last one, by roam
	singles int       // how many pods are relisted one by one, at most

	// mu guards the fields below and is never held during a call to others.
	mu         sync.Mutex
	queue      []*job        // inspections that wait for a place
	running    map[bool]int  // how many run: true counts pods whose last one failed
	finished   []*job        // inspections that step has not taken yet
	inspected  chan struct{} // closed, and made anew, when there is another
	relistedAt time.Time     // start of the last relist whose lists succeeded
	relistErr  error         // of the last relist
	reinspects map[types.UID]bool
	hints      map[hint]time.Time // and requests; with the time at which each is due
	soon       bool               // the next global relist is due after Period, not MaxPeriod
	rest       time.Time          // before it no single pod is relisted for a hint or request
	stream     *stream            // nil if none is open
	opened     uint64             // how many streams were open so far
	doubted    time.Time          // before it the stream is not relied on: it missed a hint
	stats      Stats
	began      time.Time // of the global relist under way, or zero
	watchers   map[*watcher]struct{}
}

// Result is what a global relist found. It is made anew from each listing, so a
// count falls to 0 when the last of its kind is gone.
type Result struct {
	// At is when the relist began, Took how long listing and comparing took.
	At   time.Time
	Took time.Duration
	// Pods counts the pods that have any object, RunningPods those with a ready
	// sandbox.
	Pods, RunningPods int
	// RunningContainers, ExitedContainers and OtherContainers count containers,
	// without sandboxes; others are created or in an unknown state.
	RunningContainers, ExitedContainers, OtherContainers int
	// Inspecting counts the pods whose inspection this relist set off or found
	// under way, SetAside those whose last inspection failed.
	Inspecting, SetAside int
}

// New returns a generator. It starts nothing.
func New(cfg Config) (*Generator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("pleg: invalid config: %w", err)
	}
	singles := maxSingle
	if cfg.Lister != nil {
		singles = 1
	}
	cfg = cfg.withDefaults()
	cfg.LabelSelector = maps.Clone(cfg.LabelSelector)
	return &Generator{
		cfg:        cfg,
		loop:       loop.New(cfg.Clock),
		running:    map[bool]int{},
		inspected:  make(chan struct{}),
		step:       make(chan struct{}, 1),
		records:    map[types.UID]*record{},
		dirty:      map[types.UID]*record{},
		singles:    singles,
		reinspects: map[types.UID]bool{},
		hints:      map[hint]time.Time{},
		watchers:   map[*watcher]struct{}{},
	}, nil
}

// Run relists at once and then each Period, or each MaxPeriod while it can rely on the
// stream of events, serves the requests in between, and returns nil when ctx is done and
// every inspection it set off has ended. It does not wait for inspections between
// relists: a pod that hangs delays no other. A second Run beside the first returns
// [ErrRunning].
func (g *Generator) Run(ctx context.Context) error {
	p := &pass{ctx: ctx}
	first := true
	var listening sync.WaitGroup
	err := g.loop.Run(ctx, func(context.Context) time.Duration {
		g.lock()
		defer g.unlock()
		if first {
			first = false
			g.ended = time.Time{} // so that a relist is due
			g.cfg.Cache.OnWait(g.loop.Trigger)
			if g.cfg.Events != nil {
				listening.Go(func() { g.listen(ctx) })
			}
		}
		g.collect()
		g.turn(p)
		p.errs = nil // the observer has seen them
		_, _, wait := g.plan(g.cfg.Clock.Now())
		return wait
	})
	if !first { // else another Run has all this
		g.cfg.Cache.OnWait(nil)
	}
	listening.Wait()
	g.await(p)
	return err
}

// turn does what is due. It stops at the first pod whose relist fails: otherwise a runtime
// that hangs would delay the next global relist, which serves all pods, by one ListTimeout
// for each pod.
func (g *Generator) turn(p *pass) {
	began := g.cfg.Clock.Now()
	relist, pods, _ := g.plan(began)
	if relist {
		if _, err := g.relist(p); errors.Is(err, ErrTooLarge) {
			g.roam(p)
		}
		g.ended = g.cfg.Clock.Now()
		return
	}
	for _, uid := range pods {
		if err := g.relistPod(p, uid); err != nil {
			if p.ctx.Err() == nil {
				g.cfg.Logger.WarnContext(p.ctx, "pod relist failed", "podUID", uid, "err", err)
			}
			g.locked(func() { g.takeAsked() })
			g.hurry()
			break
		}
	}
	if len(pods) > 0 {
		g.restSince(began)
	}
}

// Relist does one global relist and returns when the inspections that it set off
// have ended and their events are delivered. The error is that of a list, which
// leaves everything as it was, or joins those of the inspections, or says that
// ctx is done and that the next relist tells the rest.
func (g *Generator) Relist(ctx context.Context) (res Result, err error) {
	err = g.once(ctx, func(p *pass) (err error) {
		res, err = g.relist(p)
		return err
	})
	return res, err
}

// RelistPod does the same for one pod, with lists filtered by its UID label: what
// carries none stays as the last global relist saw it. It makes nothing but this
// pod fresh, and does not count for [Generator.Healthy]. If the pod is being inspected
// already, for somebody else, it returns before the cache is told: who needs to see
// what was true at a time asks the cache for what is newer than that.
func (g *Generator) RelistPod(ctx context.Context, uid types.UID) error {
	return g.once(ctx, func(p *pass) error { return g.relistPod(p, uid) })
}

// once does one pass and waits for its inspections.
func (g *Generator) once(ctx context.Context, do func(*pass) error) error {
	p := &pass{ctx: ctx}
	select {
	case g.step <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for another relist: %w", ctx.Err())
	}
	err := do(p)
	g.unlock()
	g.await(p)
	if err != nil || ctx.Err() != nil {
		g.hurry() // Run, if there is one
	}
	return cmp.Or(err, errors.Join(p.errs...), ctx.Err())
}

// RequestRelist asks [Generator.Run] to relist the pod at once. It never blocks,
// requests for one pod are one, and none is lost: a global relist that begins
// after it serves it as well.
func (g *Generator) RequestRelist(uid types.UID) {
	now := g.cfg.Clock.Now()
	g.locked(func() { g.hints[hint{pod: uid, kind: requested}] = now })
	g.loop.Trigger()
}

// RequestReinspect asks the next relist that lists the pod to inspect all of it,
// whether or not it has changed, and so to deliver at least a [PodSync]. If the
// next global relist does not know the pod, the request ends there.
func (g *Generator) RequestReinspect(uid types.UID) {
	g.locked(func() { g.reinspects[uid] = true })
	g.hurry() // the next one may be far away
}

// Healthy returns nil if the last successful global relist began no longer than
// Threshold ago, and otherwise an error that says since when and wraps the last
// failure. Only the lists count: a pod that cannot be inspected is that pod's
// trouble and shows in its status.
func (g *Generator) Healthy() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	switch age := g.cfg.Clock.Since(g.relistedAt); {
	case g.relistedAt.IsZero():
		err = errors.New("pleg has yet to be successful")
	case age > g.cfg.Threshold:
		err = fmt.Errorf("pleg was last seen active %v ago; threshold is %v", age, g.cfg.Threshold)
	default:
		return nil
	}
	if g.relistErr != nil {
		err = fmt.Errorf("%w: %w", err, g.relistErr)
	}
	return err
}

// pass is what the inspections of one call have in common.
type pass struct {
	ctx context.Context // of that call: its end cuts its inspections short
	// left is how many are not finished, errs are the errors of the others. They belong
	// to the step lock.
	left int
	errs []error
}

// lock waits for the end of the pass under way.
func (g *Generator) lock() { g.step <- struct{}{} }

func (g *Generator) unlock() { <-g.step }

// collect finishes the inspections that are done, of whatever pass, and returns a
// channel that is closed when there are more. The caller holds step.
func (g *Generator) collect() (more <-chan struct{}) {
	g.mu.Lock()
	jobs := g.finished
	g.finished, more = nil, g.inspected
	g.mu.Unlock()
	for _, j := range jobs {
		g.finish(j)
	}
	return more
}

// await returns when all inspections of the pass are finished. They end with its
// context.
func (g *Generator) await(p *pass) {
	for {
		g.lock()
		more := g.collect()
		left := p.left
		g.unlock()
		if left == 0 {
			return
		}
		<-more
	}
}

// Stats are counters since [New], and what holds now.
type Stats struct {
	// Relists counts the global relists that succeeded, FailedRelists those whose
	// lists failed, and PodRelists those of single pods.
	Relists, FailedRelists, PodRelists uint64
	// Inspections counts the inspections of pods that came to an end,
	// FailedInspections those of them that failed or timed out.
	Inspections, FailedInspections uint64
	// Events counts the events delivered.
	Events uint64
	// Hints counts the events of the runtime's stream, and MissedHints the pods in
	// which a global relist found a change that the open stream did not announce.
	Hints, MissedHints uint64
	// RelistedAt is when the newest global relist that succeeded began; zero before the
	// first one.
	RelistedAt time.Time
	// Reconnects counts how often the stream was opened but for the first time.
	Reconnects uint64
	// Streaming says that the stream is open.
	Streaming bool
	// Period is the time between two global relists as it is now.
	Period time.Duration
	// SetAside counts the pods whose last inspection failed.
	SetAside int
	// InProgress is the age of the global relist under way, its handlers included,
	// or 0. One that grows says where a generator is stuck.
	InProgress time.Duration
	// ListError is the reason why the last global relist failed; nil if it did not.
	ListError error
}

// Stats returns a copy of the counters. It does not wait for a pass.
func (g *Generator) Stats() Stats {
	now := g.cfg.Clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Streaming, s.Period, s.ListError = g.stream != nil, g.period(now), g.relistErr
	s.Reconnects = max(1, g.opened) - 1
	s.RelistedAt = g.relistedAt
	if !g.began.IsZero() {
		s.InProgress = now.Sub(g.began)
	}
	return s
}

// locked calls f with mu.
func (g *Generator) locked(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}
