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

// ErrRunning is the error of [Generator.Run] if another Run is in progress.
var ErrRunning = loop.ErrRunning

// Generator relists the runtime, updates a podcache.Cache and calls a handler with an event
// for each change of a pod. Create it with [New]. Its methods are safe for concurrent use.
// A handler or observer must not call Run, Relist or RelistPod.
type Generator struct {
	cfg  Config
	loop *loop.Loop

	// step is the lock that serialises the passes and guards the fields between step and
	// mu. A pass holds step while it calls the handler. step is a channel of capacity 1
	// because callers wait for it with a context.
	step    chan struct{}
	listed  []object // the newest listed objects of each pod
	records map[types.UID]*record
	// dirty holds the records that the next global relist must process even if
	// it finds no change.
	dirty          map[types.UID]*record
	lastRelistEnd  time.Time // when the last global relist of Run ended
	lastVisited    types.UID // the last pod that relistNextPods relisted
	podRelistLimit int       // if more pods are due, Run does a global relist

	// mu guards the fields below. It is never held during callbacks and calls to the
	// runtime.
	mu         sync.Mutex
	queue      []*job             // inspections that have not started yet
	running    map[bool]int       // number of running inspections, by job.retry
	finished   []*job             // inspections whose results collect has not processed yet
	inspected  chan struct{}      // closed and replaced when an inspection finishes
	relistedAt time.Time          // start of the last global relist that succeeded
	relistErr  error              // error of the last global relist
	reinspects map[types.UID]bool // pods with a requested reinspection
	hints      map[hint]time.Time // hints and requests, each with the time at which it is due
	dueSoon    bool               // the next global relist is due after Period, not MaxPeriod

	pausedUntil     time.Time // before this time, Run serves no hint or request
	stream          *stream   // nil if no stream is open
	opened          uint64    // number of streams opened so far
	distrustedUntil time.Time // until then the generator does not rely on the stream, because a hint was missed
	stats           Stats
	relistBegan     time.Time // start of the global relist in progress; zero if no relist is in progress
	watchers        map[*watcher]struct{}
}

// Result is the result of a global relist.
type Result struct {
	// At is the start of the relist. Took is the duration of the relist without the
	// inspections.
	At   time.Time
	Took time.Duration
	// Pods counts the pods with at least one sandbox or container. RunningPods counts the
	// pods with a ready sandbox.
	Pods, RunningPods int
	// RunningContainers, ExitedContainers and OtherContainers count containers, not
	// sandboxes. OtherContainers are created or in an unknown state.
	RunningContainers, ExitedContainers, OtherContainers int
	// Inspecting counts the pods whose inspection this relist started or found in progress.
	// FailedPods counts the pods whose last inspection failed.
	Inspecting, FailedPods int
}

// New returns a generator, or an error if cfg is invalid. It starts nothing.
func New(cfg Config) (*Generator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("pleg: invalid config: %w", err)
	}
	podRelistLimit := maxPodRelists
	if cfg.Lister != nil {
		podRelistLimit = 1
	}
	cfg = cfg.withDefaults()
	cfg.LabelSelector = maps.Clone(cfg.LabelSelector)
	return &Generator{
		cfg:            cfg,
		loop:           loop.New(cfg.Clock),
		running:        map[bool]int{},
		inspected:      make(chan struct{}),
		step:           make(chan struct{}, 1),
		records:        map[types.UID]*record{},
		dirty:          map[types.UID]*record{},
		podRelistLimit: podRelistLimit,
		reinspects:     map[types.UID]bool{},
		hints:          map[hint]time.Time{},
		watchers:       map[*watcher]struct{}{},
	}, nil
}

// Run does a global relist immediately and then every Period, or every MaxPeriod while it
// relies on the event stream. Between global relists it serves requests and hints. It does
// not wait for inspections, so a pod whose inspection hangs does not delay other
// pods. When ctx is done, Run waits for the inspections that it started and returns nil. It
// returns [ErrRunning] if another Run is in progress.
func (g *Generator) Run(ctx context.Context) error {
	p := &pass{ctx: ctx}
	first := true
	var reader sync.WaitGroup
	err := g.loop.Run(ctx, func(context.Context) time.Duration {
		g.lock()
		defer g.unlock()
		if first {
			first = false
			g.lastRelistEnd = time.Time{} // so that a relist is due
			g.cfg.Cache.OnWait(g.loop.Trigger)
			if g.cfg.Events != nil {
				reader.Go(func() { g.readEvents(ctx) })
			}
		}
		g.collect()
		g.runDue(p)
		p.errs = nil // Observer.PodInspected has reported them
		_, _, wait := g.plan(g.cfg.Clock.Now())
		return wait
	})
	if !first { // this Run has set the callback
		g.cfg.Cache.OnWait(nil)
	}
	reader.Wait()
	g.await(p)
	return err
}

// runDue does the relists that are due. It stops at the first pod whose relist fails. If it
// continued, a runtime that hangs would delay the next global relist by one ListTimeout for
// each pod.
func (g *Generator) runDue(p *pass) {
	began := g.cfg.Clock.Now()
	relist, pods, _ := g.plan(began)
	if relist {
		if _, err := g.relist(p); errors.Is(err, ErrTooLarge) {
			g.relistNextPods(p)
		}
		g.lastRelistEnd = g.cfg.Clock.Now()
		return
	}
	for _, uid := range pods {
		if err := g.relistPod(p, uid); err != nil {
			if p.ctx.Err() == nil {
				g.cfg.Logger.WarnContext(p.ctx, "relist of a pod failed, will relist all pods soon", "podUID", uid, "err", err)
			}
			g.locked(func() {
				unserved := g.drainRequests()
				unserved[uid] = true
				g.requestAt(g.retryTime(), unserved)
			})
			g.requestRelistSoon()
			break
		}
	}
	if len(pods) > 0 {
		g.pauseSince(began)
	}
}

// Relist does one global relist. It returns when the inspections that it started have ended
// and their events are delivered. If a list fails, Relist returns the error of the list,
// and the cache and the records are unchanged. If inspections fail, it returns their joined
// errors. If ctx is done, it returns the error of ctx, and the next relist delivers the
// remaining events.
func (g *Generator) Relist(ctx context.Context) (res Result, err error) {
	err = g.once(ctx, func(p *pass) (err error) {
		res, err = g.relist(p)
		return err
	})
	return res, err
}

// RelistPod does a relist of one pod, with lists filtered by the label of the pod's UID.
// For the pod's sandboxes and containers without that label, it uses the result of the last
// relist. In the cache it updates the time of this pod only. It does not count for
// [Generator.Healthy]. RelistPod returns the same errors as [Generator.Relist]. If another
// caller's inspection of the pod is in progress, RelistPod returns before the cache is
// updated. A caller that needs a status no older than a given time uses
// podcache.Cache.GetNewerThan.
func (g *Generator) RelistPod(ctx context.Context, uid types.UID) error {
	return g.once(ctx, func(p *pass) error { return g.relistPod(p, uid) })
}

// The method once does one pass and waits for the inspections that the pass started.
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
		g.requestRelistSoon() // served by Run, if it is running
	}
	return cmp.Or(err, errors.Join(p.errs...), ctx.Err())
}

// RequestRelist asks [Generator.Run] to relist the pod at once. It never blocks. Requests
// for the same pod are merged, and no request is lost. A global relist that begins
// after the request serves it as well.
func (g *Generator) RequestRelist(uid types.UID) {
	now := g.cfg.Clock.Now()
	g.locked(func() { g.hints[hint{pod: uid, kind: requested}] = now })
	g.loop.Trigger()
}

// RequestReinspect requests an inspection of all sandboxes and containers of the pod,
// changed or not, in the next relist that lists the pod. After the inspection has
// succeeded, the generator delivers at least one event, a [PodSync] if there is no
// other event. The request is dropped if the next global relist does not find the pod.
func (g *Generator) RequestReinspect(uid types.UID) {
	g.locked(func() { g.reinspects[uid] = true })
	g.requestRelistSoon() // otherwise the next relist may be MaxPeriod away
}

// Healthy returns nil if the last successful global relist began at most Threshold ago.
// Otherwise it returns an error. The error contains the age of that relist, unless no global
// relist has succeeded yet, and wraps the error of the last global relist if that relist
// failed. Only the lists count. A pod whose inspection fails does not make the generator
// unhealthy; the inspection's error is in the pod's cache entry.
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

// pass is the state that the inspections of one call share.
type pass struct {
	ctx context.Context // context of the call; when it is done, the inspections are cancelled
	// unfinished is the number of queued and running inspections. errs are the errors of
	// the finished inspections. Both are guarded by step.
	unfinished int
	errs       []error
}

// lock waits for the end of the pass in progress and acquires step.
func (g *Generator) lock() { g.step <- struct{}{} }

func (g *Generator) unlock() { <-g.step }

// collect processes the results of the finished inspections of all passes. It returns a
// channel that is closed when another inspection finishes. The caller holds step.
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

// await waits until all inspections of the pass are finished, and processes their results.
func (g *Generator) await(p *pass) {
	for {
		g.lock()
		more := g.collect()
		left := p.unfinished
		g.unlock()
		if left == 0 {
			return
		}
		<-more
	}
}

// Stats holds counters since [New] and the current state.
type Stats struct {
	// Relists counts the global relists that succeeded, FailedRelists the global relists
	// whose lists failed, and PodRelists the relists of single pods.
	Relists, FailedRelists, PodRelists uint64
	// Inspections counts the finished inspections of pods. FailedInspections counts the
	// inspections that failed or timed out.
	Inspections, FailedInspections uint64
	// Events counts the events delivered.
	Events uint64
	// Hints counts the events of the runtime's stream. MissedHints counts the pods for
	// which a global relist found a change that the open stream did not announce.
	Hints, MissedHints uint64
	// RelistedAt is the start of the last successful global relist. It is zero if no global
	// relist has succeeded yet.
	RelistedAt time.Time
	// Reconnects counts how often the stream was opened again after the first time.
	Reconnects uint64
	// Streaming reports whether the stream is open.
	Streaming bool
	// Period is the current time between two global relists.
	Period time.Duration
	// FailedPods counts the pods whose last inspection failed.
	FailedPods int
	// InProgress is the age of the global relist in progress, or 0 if no global relist is
	// in progress. It includes the time of the handler. If InProgress keeps growing, the
	// relist hangs.
	InProgress time.Duration
	// ListError is the error of the last global relist; nil if it succeeded.
	ListError error
}

// Stats returns the counters and the current state. It does not wait for a pass.
func (g *Generator) Stats() Stats {
	now := g.cfg.Clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Streaming, s.Period, s.ListError = g.stream != nil, g.period(now), g.relistErr
	s.Reconnects = max(1, g.opened) - 1
	s.RelistedAt = g.relistedAt
	if !g.relistBegan.IsZero() {
		s.InProgress = now.Sub(g.relistBegan)
	}
	return s
}

// locked calls f with mu held.
func (g *Generator) locked(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}
