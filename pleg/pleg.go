package pleg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	pool pool
	// inspected, of capacity 1, says that the pool may have finished jobs.
	inspected chan struct{}

	// step, of capacity 1, is full while a pass is under way, its handler included.
	// It serialises them, guards the fields down to mu, and is a channel because
	// those who wait for it have a context.
	step    chan struct{}
	listed  *listing // the last global one, or one like it in another order
	spare   *listing // memory for the next one
	counts  Result   // of listed
	changes []change
	records map[types.UID]*record
	// dirty holds the records that the next global relist must look at even if
	// it finds no change.
	dirty   map[types.UID]*record
	pending []types.UID
	ended   time.Time // when the last global relist of Run was over
	looked  time.Time // the newest time that the cache was told
	visited types.UID // the last one, by roam
	singles int       // how many pods are relisted one by one, at most

	// mu guards the fields below and is never held during a call to others.
	mu         sync.Mutex
	relistedAt time.Time // start of the last relist whose lists succeeded
	relistErr  error     // of the last relist
	relists    map[types.UID]struct{}
	reinspects map[types.UID]struct{}
	hints      hints
	rest       time.Time // before it no single pod is relisted for a hint or request
	pace       pace
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
	ownLister := cfg.Lister != nil
	cfg = cfg.withDefaults()
	cfg.LabelSelector = maps.Clone(cfg.LabelSelector)
	g := &Generator{
		cfg:        cfg,
		loop:       loop.New(cfg.Clock),
		inspected:  make(chan struct{}, 1),
		step:       make(chan struct{}, 1),
		listed:     &listing{},
		spare:      &listing{},
		records:    map[types.UID]*record{},
		dirty:      map[types.UID]*record{},
		relists:    map[types.UID]struct{}{},
		reinspects: map[types.UID]struct{}{},
		hints:      hints{pods: map[types.UID]struct{}{}},
		pace:       newPace(cfg.Period, cfg.MaxPeriod),
		watchers:   map[*watcher]struct{}{},
	}
	if g.singles = maxSingle; ownLister {
		g.singles = 1
	}
	g.pool = pool{max: cfg.MaxInspections, timeout: cfg.InspectTimeout, done: g.jobDone}
	return g, nil
}

// Run relists at once and then each Period, or less often while the stream of events
// allows it, serves the requests in between, and returns nil when ctx is done and
// every inspection it set off has ended. It does not wait for inspections between
// relists: a pod that hangs delays no other. A second Run beside the first returns
// [ErrRunning].
func (g *Generator) Run(ctx context.Context) error {
	p := newPass(ctx)
	first := true
	var listening sync.WaitGroup
	err := g.loop.Run(ctx, func(context.Context) time.Duration {
		g.lock()
		defer g.unlock()
		if first {
			g.cfg.Cache.OnWait(g.loop.Trigger)
		}
		g.collect()
		if first || g.relistDue(g.cfg.Clock.Now()) {
			g.relistInTurn(p)
		}
		if first && g.cfg.Events != nil {
			listening.Go(func() { g.listen(ctx) })
		}
		first = false
		g.serve(p)
		p.errs = nil // the observer has seen them
		return g.untilNext(g.cfg.Clock.Now())
	})
	if !first { // else another Run has all this
		g.cfg.Cache.OnWait(nil)
	}
	listening.Wait()
	g.await(p)
	return err
}

// relistInTurn is a global relist of Run. Its error is logged, and kept for Healthy.
func (g *Generator) relistInTurn(p *pass) {
	if _, err := g.relist(p); errors.Is(err, ErrTooLarge) {
		g.roam(p)
	}
	g.ended = g.cfg.Clock.Now()
}

// Relist does one global relist and returns when the inspections that it set off
// have ended and their events are delivered. The error is that of a list, which
// leaves everything as it was, or joins those of the inspections, or says that
// ctx is done and that the next relist tells the rest.
func (g *Generator) Relist(ctx context.Context) (Result, error) {
	p := newPass(ctx)
	if err := g.tryLock(ctx); err != nil {
		return Result{}, err
	}
	res, err := g.relist(p)
	g.unlock()
	return res, g.finishPass(p, err)
}

// RelistPod does the same for one pod, with lists filtered by its UID label: what
// carries none stays as the last global relist saw it. It makes nothing but this
// pod fresh, and does not count for [Generator.Healthy]. If the pod is being inspected
// already, for somebody else, it returns before the cache is told: who needs to see
// what was true at a time asks the cache for what is newer than that.
func (g *Generator) RelistPod(ctx context.Context, uid types.UID) error {
	p := newPass(ctx)
	if err := g.tryLock(ctx); err != nil {
		return err
	}
	err := g.relistPod(p, uid)
	g.unlock()
	return g.finishPass(p, err)
}

// RequestRelist asks [Generator.Run] to relist the pod at once. It never blocks,
// requests for one pod are one, and none is lost: a global relist that begins
// after it serves it as well.
func (g *Generator) RequestRelist(uid types.UID) {
	g.mu.Lock()
	g.relists[uid] = struct{}{}
	g.mu.Unlock()
	g.loop.Trigger()
}

// RequestReinspect asks the next relist that lists the pod to inspect all of it,
// whether or not it has changed, and so to deliver at least a [PodSync]. If the
// next global relist does not know the pod, the request ends there.
func (g *Generator) RequestReinspect(uid types.UID) {
	g.mu.Lock()
	g.reinspects[uid] = struct{}{}
	g.mu.Unlock()
	g.loop.Trigger() // the next one may be far away
}

// Healthy returns nil if the last successful global relist began no longer than
// Threshold ago, and otherwise an error that says since when and wraps the last
// failure. Only the lists count: a pod that cannot be inspected is that pod's
// trouble and shows in its status.
func (g *Generator) Healthy() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.relistedAt.IsZero() {
		return withCause(errors.New("pleg has yet to be successful"), g.relistErr)
	}
	if age := g.cfg.Clock.Since(g.relistedAt); age > g.cfg.Threshold {
		return withCause(fmt.Errorf("pleg was last seen active %v ago; threshold is %v", age, g.cfg.Threshold), g.relistErr)
	}
	return nil
}

func withCause(err, cause error) error {
	if cause == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// serve relists the pods of the pending requests, one after the other. The first
// that fails ends it: a runtime that does not answer would keep us for as many
// deadlines as there are requests from the next global relist, which serves all.
func (g *Generator) serve(p *pass) {
	began := g.cfg.Clock.Now()
	by := g.takeSingle(began)
	if len(by.own)+len(by.hinted) > 0 {
		defer g.restSince(began)
	}
	for _, uid := range slices.Concat(by.uids(), g.retries(began)) {
		before := g.seen(uid)
		if err := g.relistPod(p, uid); err != nil {
			if p.ctx.Err() == nil {
				g.cfg.Logger.WarnContext(p.ctx, "pod relist failed", "podUID", uid, "err", err)
			}
			g.hurry()
			return
		}
		if _, hinted := by.hinted[uid]; hinted && differ(before, g.seen(uid)) {
			g.mu.Lock()
			g.pace.trusted = true
			g.mu.Unlock()
		}
	}
}

// restSince leaves the runtime time for others after serving hints and requests.
func (g *Generator) restSince(began time.Time) {
	now := g.cfg.Clock.Now()
	g.mu.Lock()
	if rest := now.Add(min(restFactor*now.Sub(began), maxRest)); rest.After(g.rest) || g.resting(now) <= 0 {
		g.rest = rest
	}
	g.mu.Unlock()
}

// seen returns what the newest look has shown of the pod.
func (g *Generator) seen(uid types.UID) []object {
	if r := g.records[uid]; r != nil {
		return r.seen
	}
	return nil
}

// lock waits for the end of the pass under way.
func (g *Generator) lock() { g.step <- struct{}{} }

// tryLock does the same for no longer than ctx lasts.
func (g *Generator) tryLock(ctx context.Context) error {
	select {
	case g.step <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another relist: %w", ctx.Err())
	}
}

func (g *Generator) unlock() { <-g.step }

// jobDone wakes whoever may collect the job.
func (g *Generator) jobDone() {
	g.loop.Trigger()
	notify(g.inspected)
}

func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // pending already
	}
}

// collect finishes the jobs that are done, of whatever pass. It needs step.
func (g *Generator) collect() {
	for _, j := range g.pool.collect() {
		g.finish(j)
	}
}

// await returns when all jobs of the pass are finished. They end with its
// context, so that this need not look at it.
func (g *Generator) await(p *pass) {
	for {
		g.lock()
		g.collect()
		left := p.left
		g.unlock()
		if left == 0 {
			return
		}
		select {
		case <-p.idle:
		case <-g.inspected:
		}
	}
}

// finishPass ends a call that began a pass of its own.
func (g *Generator) finishPass(p *pass, err error) error {
	g.await(p)
	if err != nil || p.ctx.Err() != nil {
		g.hurry() // Run, if there is one
	}
	return cmp.Or(err, errors.Join(p.errs...), p.ctx.Err())
}
