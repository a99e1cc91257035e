package containergc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
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
	cfg  Config
	loop *loop.Loop

	// step, of capacity 1, is full while a pass looks and decides, and guards ends. It is
	// a channel because passes wait for it with a context. It is empty again while the
	// pass removes: what hangs then delays no other pass.
	step chan struct{}
	ends map[string]time.Time // of dead containers, as far as rules asked

	mu       sync.Mutex // guards what follows; never held during a call to others
	eventAt  time.Time  // of the last event in a row of failures, zero after a success
	failures map[string]failure
	requests map[types.UID]bool
	removing map[string]bool // what passes are removing, by ID
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
	return &Manager{
		cfg: cfg, loop: loop.New(cfg.Clock), step: make(chan struct{}, 1),
		removing: map[string]bool{}, failures: map[string]failure{}, requests: map[types.UID]bool{},
	}, nil
}

// Run collects at once and then each Period, serves the requests in between, and
// returns nil when ctx is done. What fails is logged, told as an event, and tried
// again. A removal that hangs delays neither the next pass nor requests. While not
// every source of pods has been read, a full pass is tried again after five seconds
// instead of a Period. A second Run beside the first returns [ErrRunning].
func (m *Manager) Run(ctx context.Context) error {
	var next time.Time // when the next full pass is due
	var removing sync.WaitGroup
	defer removing.Wait()
	return m.loop.Run(ctx, func(ctx context.Context) time.Duration {
		requests, full := m.takeRequests(), !m.cfg.Clock.Now().Before(next)
		if !full && len(requests) == 0 {
			return next.Sub(m.cfg.Clock.Now())
		}
		s := scope{pods: requests}
		if full {
			s.pods = nil
		}
		p, err := m.begin(ctx, s)
		if err != nil {
			return 0 // ctx is done
		}
		removing.Go(func() {
			if _, err := p.end(ctx); err != nil && ctx.Err() == nil {
				m.cfg.Logger.ErrorContext(ctx, "container garbage collection failed", "err", err)
			}
		})
		now, retry := m.cfg.Clock.Now(), min(retryAfter, m.cfg.Period)
		switch {
		case full && p.res.Plan.NotReady:
			next = now.Add(retry)
		case full:
			next = now.Add(m.cfg.Period)
		}
		wait := next.Sub(now)
		if !p.decided {
			m.mu.Lock()
			maps.Copy(m.requests, requests)
			m.mu.Unlock()
			wait = min(wait, retry)
		}
		return wait
	})
}

// RequestPod asks [Manager.Run] to remove what is to go of one pod soon, as when a
// container of it was seen to end; its logs are left to the next full pass. It never
// blocks. Requests for one pod are one, and none is lost: what cannot be done now is
// tried again, and a full pass serves all.
func (m *Manager) RequestPod(uid types.UID) {
	m.mu.Lock()
	m.requests[uid] = true
	m.mu.Unlock()
	m.loop.Trigger()
}

func (m *Manager) takeRequests() map[types.UID]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.requests
	m.requests = map[types.UID]bool{}
	return taken
}

// Collect does one pass: it takes a snapshot, decides, and removes. What fails is in
// the error, stops nothing else, and is tried again with back-off by later passes;
// what is left when ctx ends, by the next. Nothing happens, and Result.Plan.NotReady
// is set, while not every source of pods has been read.
func (m *Manager) Collect(ctx context.Context) (Result, error) {
	return m.pass(ctx, scope{})
}

// DeleteAllUnusedContainers does one pass that removes all that is left of pods that
// have ended as well, because the node needs the disk. While not every source of pods
// has been read, it returns [ErrNotReady].
func (m *Manager) DeleteAllUnusedContainers(ctx context.Context) error {
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
	plan, _, err := m.plan(ctx, scope{})
	return plan, err
}

// scope is what a pass is about.
type scope struct {
	allUnused bool
	pods      map[types.UID]bool // nil: all
}

// pass is a pass that has a plan.
type pass struct {
	m       *Manager
	scope   scope
	began   time.Time
	decided bool
	err     error
	res     Result
}

func (m *Manager) pass(ctx context.Context, s scope) (Result, error) {
	p, err := m.begin(ctx, s)
	if err != nil {
		return Result{}, err
	}
	return p.end(ctx)
}

// begin makes the plan of a pass. Its error is that of ctx; without one, end must follow.
func (m *Manager) begin(ctx context.Context, s scope) (*pass, error) {
	if err := m.lock(ctx); err != nil {
		return nil, err
	}
	defer m.unlock()
	p := &pass{m: m, scope: s, began: m.cfg.Clock.Now()}
	if p.res.Plan, p.decided, p.err = m.plan(ctx, s); p.decided {
		m.cfg.Observer.Planned(p.res.Plan)
	}
	return p, nil
}

// end carries the plan out.
func (p *pass) end(ctx context.Context) (Result, error) {
	m, err := p.m, p.err
	if p.decided {
		var failed error
		p.res.Removed, failed = m.act(ctx, p.res.Plan)
		err = errors.Join(err, failed)
	}
	p.res.Took = m.cfg.Clock.Since(p.began)
	if p.scope.pods == nil {
		m.report(ctx, err)
	}
	m.cfg.Observer.Collected(p.res, err)
	return p.res, err
}

// plan decides on what there is. If decided is false, that was not possible; if it is
// true, an error says what was left out.
func (m *Manager) plan(ctx context.Context, s scope) (plan Plan, decided bool, err error) {
	now := m.cfg.Clock.Now()
	if !m.cfg.SourcesReady() {
		return Plan{At: now, NotReady: true}, false, nil
	}
	in := Input{
		Now: now, Policy: m.cfg.Policy, AllUnused: s.allUnused, Pods: m.cfg.Pods, Owned: m.cfg.Owned, RetryAt: m.retries(),
	}
	if in.Snapshot, err = m.snapshot(ctx); err != nil {
		return Plan{At: now}, false, err
	}
	err = m.setEnds(ctx, in)
	if s.pods != nil {
		plan = Decide(in)
		plan.Decisions = slices.DeleteFunc(plan.Decisions, func(d Decision) bool { return !s.pods[d.PodUID] })
		return plan, true, err
	}
	var errFolders, errLinks error
	if m.cfg.PodLogs != "" {
		in.Folders, errFolders = readFolders(m.cfg.PodLogs)
	}
	if m.cfg.ContainerLogs != "" {
		in.Links, errLinks = readLinks(m.cfg.ContainerLogs, m.cfg.PodLogs)
	}
	plan = Decide(in)
	m.forget(plan)
	return plan, true, errors.Join(err, errFolders, errLinks)
}

// snapshot returns what there is in the runtime. The caller may change it.
func (m *Manager) snapshot(ctx context.Context) (Snapshot, error) {
	if m.cfg.Snapshot == nil {
		return list(ctx, m.cfg.Runtime)
	}
	s, err := m.cfg.Snapshot(ctx)
	if err != nil {
		return Snapshot{}, fmt.Errorf("take snapshot: %w", err)
	}
	s.Containers = slices.Clone(s.Containers)
	return s, nil
}

// report makes an event about a failing pass: the first of a row, and then each
// eventInterval.
func (m *Manager) report(ctx context.Context, err error) {
	m.mu.Lock()
	now := m.cfg.Clock.Now()
	due := err != nil && ctx.Err() == nil && now.Sub(m.eventAt) >= eventInterval
	switch {
	case err == nil:
		m.eventAt = time.Time{}
	case due:
		m.eventAt = now
	}
	m.mu.Unlock()
	if due && m.cfg.Recorder != nil {
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
