package containergc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/loop"
)

// ErrRunning is returned by a second [Manager.Run] beside the first.
var ErrRunning = loop.ErrRunning

// ErrNotReady says that not every source of pods has been read, so that nothing is
// known to be unused and nothing was removed.
var ErrNotReady = errors.New("not every source of pods has been read")

// retryAfter is how long Run waits before it tries again what it could not do: requests
// for single pods that it could not serve, and a full pass before the sources were read.
const retryAfter = 5 * time.Second

// eventInterval is how often a row of failing passes is told as an event.
const eventInterval = 10 * time.Minute

// Manager removes what dead containers leave behind. Make it with [New]; its methods
// may be called by any number of goroutines, except that callbacks must not start a
// pass.
type Manager struct {
	cfg    Config
	loop   *loop.Loop
	pace   pace
	urgent atomic.Int32 // passes that do not wait for the pace

	// step, of capacity 1, is full while a pass looks and decides. It guards the fields
	// down to mu, and is a channel because those who wait for it have a context. It is
	// empty again while the pass removes: what hangs then delays no other pass.
	step chan struct{}
	ends map[string]time.Time // of dead containers, as far as rules asked
	asks map[string]failure   // of containers of which that could not be had

	mu       sync.Mutex // guards what follows; never held during a call to others
	failing  bool       // the last full pass failed
	eventAt  time.Time
	failures map[string]failure
	requests map[types.UID]struct{}
	passes   int               // under way
	claims   map[string]*claim // what they remove, by ID
}

// Result is what a pass did.
type Result struct {
	// Plan is what was decided.
	Plan Plan
	// Removed is what is gone now.
	Removed []Object
	// Took is how long all of it took.
	Took time.Duration
}

// New returns a manager. It starts nothing.
func New(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("containergc: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	cfg.Policy.MaxPerPodContainer = clonePtr(cfg.Policy.MaxPerPodContainer)
	cfg.Policy.MaxContainers = clonePtr(cfg.Policy.MaxContainers)
	m := &Manager{
		cfg:      cfg,
		loop:     loop.New(cfg.Clock),
		step:     make(chan struct{}, 1),
		ends:     map[string]time.Time{},
		asks:     map[string]failure{},
		claims:   map[string]*claim{},
		failures: map[string]failure{},
		requests: map[types.UID]struct{}{},
	}
	if cfg.RemovalsPerSecond > 0 {
		m.pace.every = time.Second / time.Duration(cfg.RemovalsPerSecond)
	}
	return m, nil
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

// Run collects at once and then each Period, serves the requests in between, and
// returns nil when ctx is done. What fails is logged, told as an event, and tried
// again. A removal that hangs delays neither the next pass nor requests. While not
// every source of pods has been read, a full pass is tried again after five seconds
// instead of a Period. A second Run beside the first returns [ErrRunning].
func (m *Manager) Run(ctx context.Context) error {
	var next time.Time
	var removing sync.WaitGroup
	defer removing.Wait()
	return m.loop.Run(ctx, func(ctx context.Context) time.Duration {
		if m.cfg.Clock.Now().Before(next) {
			again := m.serve(ctx, &removing)
			return max(0, min(again, next.Sub(m.cfg.Clock.Now())))
		}
		p, err := m.begin(ctx, scope{})
		if err != nil {
			return 0 // ctx is done
		}
		removing.Go(func() {
			if _, err := p.end(ctx); err != nil && ctx.Err() == nil {
				m.cfg.Logger.ErrorContext(ctx, "container garbage collection failed", "err", err)
			}
		})
		wait, retry := m.cfg.Period, min(retryAfter, m.cfg.Period)
		if p.res.Plan.NotReady {
			wait = retry
		}
		next = m.cfg.Clock.Now().Add(wait)
		if m.asked() {
			return retry
		}
		return wait
	})
}

// RequestPod asks [Manager.Run] to enforce MaxPerPodContainer and what is gone in one
// pod soon, as when a container of it was seen to end. It never blocks; requests for
// one pod are one, and none is lost: what cannot be done now is tried again, and a
// full pass serves all.
func (m *Manager) RequestPod(uid types.UID) {
	m.mu.Lock()
	m.requests[uid] = struct{}{}
	m.mu.Unlock()
	m.loop.Trigger()
}

// Collect does one pass: it takes a snapshot, decides, and removes. What fails is in
// the error, stops nothing else, and is tried again with back-off by later passes;
// what is left when ctx ends, by the next. Nothing happens, and Result.Plan.NotReady
// is set, while not every source of pods has been read.
func (m *Manager) Collect(ctx context.Context) (Result, error) {
	defer m.wake()
	return m.pass(ctx, scope{})
}

// DeleteAllUnusedContainers does one pass that removes all that is left of pods that
// have ended as well, and does not wait for RemovalsPerSecond: somebody needs the
// disk. While not every source of pods has been read, it returns [ErrNotReady].
func (m *Manager) DeleteAllUnusedContainers(ctx context.Context) error {
	defer m.wake()
	m.urgent.Add(1)
	defer m.urgent.Add(-1)
	res, err := m.pass(ctx, scope{allUnused: true})
	if err == nil && res.Plan.NotReady {
		return ErrNotReady
	}
	return err
}

// Plan says what Collect would do now, and does nothing of it.
func (m *Manager) Plan(ctx context.Context) (Plan, error) {
	if err := m.lock(ctx); err != nil {
		return Plan{}, err
	}
	defer m.unlock()
	in, errs := m.look(ctx, scope{})
	if in == nil {
		return Plan{At: m.cfg.Clock.Now(), NotReady: len(errs) == 0}, errors.Join(errs...)
	}
	return Decide(*in), errors.Join(errs...)
}

// scope is what a pass is about.
type scope struct {
	allUnused bool
	pods      map[types.UID]struct{} // nil: all
}

// pass is a pass that has decided.
type pass struct {
	m     *Manager
	scope scope
	began time.Time
	in    *Input // nil if nothing could be decided
	errs  []error
	asked map[types.UID]struct{} // requests that it serves if it gets that far
	res   Result
}

func (m *Manager) pass(ctx context.Context, s scope) (Result, error) {
	p, err := m.begin(ctx, s)
	if err != nil {
		return Result{}, err
	}
	return p.end(ctx)
}

// begin looks and decides. Its error is that of ctx; without one, end must follow.
func (m *Manager) begin(ctx context.Context, s scope) (*pass, error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.unlock()
	m.mu.Lock()
	m.passes++
	m.mu.Unlock()
	p := &pass{m: m, scope: s, began: m.cfg.Clock.Now()}
	if s.pods == nil {
		p.asked = m.takeRequests()
	}
	if p.in, p.errs = m.look(ctx, s); p.in == nil {
		p.res.Plan = Plan{At: p.began, NotReady: len(p.errs) == 0}
		m.putBack(p.asked)
		return p, nil
	}
	p.res.Plan = Decide(*p.in)
	m.cfg.Observer.Planned(p.res.Plan)
	if s.pods == nil {
		m.forget(p.res.Plan)
	}
	return p, nil
}

// end does what was decided.
func (p *pass) end(ctx context.Context) (res Result, err error) {
	m := p.m
	if err = errors.Join(p.errs...); p.in != nil {
		var failed error
		p.res.Removed, failed = m.act(ctx, p.res.Plan)
		err = errors.Join(err, failed)
		if ctx.Err() != nil {
			m.putBack(p.asked)
		}
	}
	m.release()
	p.res.Took = m.cfg.Clock.Since(p.began)
	if p.scope.pods == nil {
		m.report(ctx, err)
	}
	m.cfg.Observer.Collected(p.res, err)
	return p.res, err
}

// look gathers what there is to decide on, nil if that is not possible now. The
// errors with an input leave out parts of it.
func (m *Manager) look(ctx context.Context, s scope) (*Input, []error) {
	if !m.cfg.SourcesReady() {
		return nil, nil
	}
	in := &Input{
		Now: m.cfg.Clock.Now(), Policy: m.cfg.Policy, AllUnused: s.allUnused,
		Pods: m.cfg.Pods, Owned: m.cfg.Owned, RetryAt: m.retries(m.cfg.Clock.Now()),
	}
	var err error
	if in.Snapshot, err = m.snapshot(ctx, s.pods); err != nil {
		return nil, []error{err}
	}
	var errs []error
	if s.pods != nil {
		in.Policy.MaxContainers = nil // it is about all pods
		return in, m.fillEnds(ctx, in, false)
	}
	errs = append(errs, m.fillEnds(ctx, in, true)...)
	if m.cfg.PodLogs != "" {
		in.Folders, err = readFolders(m.cfg.PodLogs)
		errs = append(errs, err)
	}
	if m.cfg.ContainerLogs != "" {
		in.Links, err = readLinks(m.cfg.ContainerLogs, m.cfg.PodLogs)
		errs = append(errs, err)
	}
	return in, errs
}

// snapshot returns what there is of all pods, or of some.
func (m *Manager) snapshot(ctx context.Context, pods map[types.UID]struct{}) (Snapshot, error) {
	if m.cfg.Snapshot == nil {
		if len(pods) == 1 {
			for uid := range pods {
				return list(ctx, m.cfg.Runtime, uid)
			}
		}
		all, err := list(ctx, m.cfg.Runtime, "")
		return all.only(pods), err
	}
	all, err := m.cfg.Snapshot(ctx)
	if err != nil {
		return Snapshot{}, fmt.Errorf("take snapshot: %w", err)
	}
	all.Containers, all.Sandboxes = slices.Clone(all.Containers), slices.Clone(all.Sandboxes)
	return all.only(pods), nil
}

// only returns what is of the given pods, nil for all. It changes s.
func (s Snapshot) only(pods map[types.UID]struct{}) Snapshot {
	if pods == nil {
		return s
	}
	boxes := map[string]bool{}
	s.Sandboxes = slices.DeleteFunc(s.Sandboxes, func(b Sandbox) bool {
		_, ok := pods[b.PodUID]
		boxes[b.ID] = ok
		return !ok
	})
	s.Containers = slices.DeleteFunc(s.Containers, func(c Container) bool {
		_, ok := pods[c.PodUID]
		return !ok && !boxes[c.SandboxID]
	})
	return s
}

// serve begins a pass over the pods that were asked for, and returns after what time it
// wants to do another.
func (m *Manager) serve(ctx context.Context, removing *sync.WaitGroup) time.Duration {
	pods := m.takeRequests()
	if len(pods) == 0 {
		return m.cfg.Period
	}
	p, err := m.begin(ctx, scope{pods: pods})
	if err != nil {
		m.putBack(pods)
		return 0 // ctx is done
	}
	removing.Go(func() {
		if _, err := p.end(ctx); err != nil && ctx.Err() == nil {
			m.cfg.Logger.WarnContext(ctx, "clean-up of single pods failed", "pods", len(pods), "err", err)
		}
	})
	if p.in != nil {
		return m.cfg.Period // it was decided, and what failed has its own back-off
	}
	m.putBack(pods)
	return retryAfter
}

// putBack keeps requests that could not be served.
func (m *Manager) putBack(pods map[types.UID]struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.Copy(m.requests, pods)
}

// wake tells Run of requests that somebody else's pass has left.
func (m *Manager) wake() {
	if m.asked() {
		m.loop.Trigger()
	}
}

// asked says whether there are requests.
func (m *Manager) asked() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.requests) > 0
}

func (m *Manager) takeRequests() map[types.UID]struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.requests
	m.requests = map[types.UID]struct{}{}
	return taken
}

// report tells of failing passes by an event: the first of a row, and then now and
// again.
func (m *Manager) report(ctx context.Context, err error) {
	now := m.cfg.Clock.Now()
	m.mu.Lock()
	told := err != nil && ctx.Err() == nil && (!m.failing || now.Sub(m.eventAt) >= eventInterval)
	if m.failing = err != nil && (m.failing || ctx.Err() == nil); told {
		m.eventAt = now
	}
	m.mu.Unlock()
	if told && m.cfg.Recorder != nil {
		m.cfg.Recorder.Eventf(m.cfg.Node, corev1.EventTypeWarning, ReasonFailed, "%s", err.Error())
	}
}

// lock waits until another pass has decided, no longer than ctx lasts.
func (m *Manager) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case m.step <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another pass: %w", ctx.Err())
	}
}

func (m *Manager) unlock() { <-m.step }
