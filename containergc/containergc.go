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

// ErrRunning is returned by [Manager.Run] while another Run is active.
var ErrRunning = loop.ErrRunning

// ErrNotReady is returned by [Manager.DeleteAllUnusedContainers] if nothing was removed because
// not every pod source has been read: running pods may look deleted.
var ErrNotReady = errors.New("not every pod source has been read")

// retryAfter is the time after which Run retries failed requests for single pods, and a
// full pass that could not start because the pod sources were not ready.
const retryAfter = 5 * time.Second

// eventInterval is the minimum time between two events about consecutive failing passes.
const eventInterval = 10 * time.Minute

// Manager removes dead containers, sandboxes and logs. Create it with [New]. Its methods
// may be called concurrently, but callbacks must not start a pass.
type Manager struct {
	cfg  Config
	loop *loop.Loop

	// step, of capacity 1, is full while a pass lists and decides, and guards exitTimes.
	// It is a channel and not a mutex, so that a waiting pass can stop when its context is
	// done. It is empty while a pass removes objects, so that a removal that hangs delays
	// no other pass.
	step      chan struct{}
	exitTimes map[string]time.Time // exit times of dead containers, if the policy needs them

	mu       sync.Mutex // guards the fields below; never held during calls of the runtime or callbacks
	eventAt  time.Time  // time of the last event about a failed pass, zero after a success
	failures map[string]failure
	requests map[types.UID]bool
	removing map[string]bool // objects that passes are removing, by ID
}

// Result is the result of a pass.
type Result struct {
	// Plan is what the pass decided.
	Plan Plan
	// Removed are the removed objects.
	Removed []Object
	// Took is how long the pass took.
	Took time.Duration
}

// New returns a Manager. It starts nothing.
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

// Run collects at once and then once per Period, serves requests in between, and returns nil when
// ctx is done. Failures are logged and retried. Failures of full passes are also recorded as an
// event. A removal that hangs delays neither the next pass nor requests. Until every pod source has
// been read, Run retries a full pass after five seconds instead of Period. While another Run is
// active, it returns [ErrRunning].
func (m *Manager) Run(ctx context.Context) error {
	var next time.Time // when the next full pass is due
	var removing sync.WaitGroup
	defer removing.Wait()
	return m.loop.Run(ctx, func(ctx context.Context) time.Duration {
		requests, full := m.drainRequests(), !m.cfg.Clock.Now().Before(next)
		if !full && len(requests) == 0 {
			return next.Sub(m.cfg.Clock.Now())
		}
		s := scope{pods: requests}
		if full {
			s.pods = nil
		}
		p, err := m.startPass(ctx, s)
		if err != nil {
			return 0 // ctx is done
		}
		removing.Go(func() {
			if _, err := p.execute(ctx); err != nil && ctx.Err() == nil {
				m.cfg.Logger.ErrorContext(ctx, "container garbage collection failed, will retry", "err", err)
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

// RequestPod requests that [Manager.Run] soon removes the containers and sandboxes of one
// pod that are no longer needed, for example when one of its containers has exited. The
// next full pass removes the pod's logs. RequestPod never blocks. Several requests for a
// pod count as one. No request is lost: Run retries a request until a pass has decided
// about the pod.
func (m *Manager) RequestPod(uid types.UID) {
	m.mu.Lock()
	m.requests[uid] = true
	m.mu.Unlock()
	m.loop.Trigger()
}

func (m *Manager) drainRequests() map[types.UID]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	requests := m.requests
	m.requests = map[types.UID]bool{}
	return requests
}

// Collect runs one pass: it takes a snapshot, decides, and removes objects. A failed removal does
// not stop other removals. The error joins all failures, and later passes retry the failed
// removals with back-off. If ctx is done first, the next pass removes the remaining objects.
// Until every pod source has been read, Collect removes nothing and sets Result.Plan.NotReady.
func (m *Manager) Collect(ctx context.Context) (Result, error) {
	return m.pass(ctx, scope{})
}

// DeleteAllUnusedContainers runs one pass that also removes all unused sandboxes and, after
// MinAge, all dead containers of terminated pods. Call it when the node needs disk space. Until
// every pod source has been read, it removes nothing and returns [ErrNotReady].
func (m *Manager) DeleteAllUnusedContainers(ctx context.Context) error {
	res, err := m.pass(ctx, scope{allUnused: true})
	if err == nil && res.Plan.NotReady {
		return ErrNotReady
	}
	return err
}

// Plan returns what [Manager.Collect] would do now. It removes nothing.
func (m *Manager) Plan(ctx context.Context) (Plan, error) {
	if err := m.lock(ctx); err != nil {
		return Plan{}, err
	}
	defer m.unlock()
	plan, _, err := m.plan(ctx, scope{})
	return plan, err
}

// scope is what a pass includes.
type scope struct {
	allUnused bool
	pods      map[types.UID]bool // nil means all pods
}

// pass is a pass with its plan.
type pass struct {
	m       *Manager
	scope   scope
	began   time.Time
	decided bool
	err     error
	res     Result
}

func (m *Manager) pass(ctx context.Context, s scope) (Result, error) {
	p, err := m.startPass(ctx, s)
	if err != nil {
		return Result{}, err
	}
	return p.execute(ctx)
}

// startPass makes the plan of a pass. It returns an error only if ctx is done. Otherwise
// the caller must call execute.
func (m *Manager) startPass(ctx context.Context, s scope) (*pass, error) {
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

// execute removes the objects of the plan and reports the result.
func (p *pass) execute(ctx context.Context) (Result, error) {
	m, err := p.m, p.err
	if p.decided {
		var failed error
		p.res.Removed, failed = m.act(ctx, p.res.Plan)
		err = errors.Join(err, failed)
	}
	p.res.Took = m.cfg.Clock.Since(p.began)
	if p.scope.pods == nil {
		m.sendFailureEvent(ctx, err)
	}
	m.cfg.Observer.Collected(p.res, err)
	return p.res, err
}

// plan takes a snapshot and decides. If decided is false, no decision was possible. If
// decided is true, the error describes facts that were unknown when plan decided.
func (m *Manager) plan(ctx context.Context, s scope) (plan Plan, decided bool, err error) {
	now := m.cfg.Clock.Now()
	if !m.cfg.SourcesReady() {
		return Plan{At: now, NotReady: true}, false, nil
	}
	in := Input{
		Now: now, Policy: m.cfg.Policy, AllUnused: s.allUnused, Pods: m.cfg.Pods, Owned: m.cfg.Owned, RetryAt: m.retryTimes(),
	}
	if in.Snapshot, err = m.snapshot(ctx); err != nil {
		return Plan{At: now}, false, err
	}
	err = m.setExitTimes(ctx, in)
	if s.pods != nil {
		plan = PlanRemovals(in)
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
	plan = PlanRemovals(in)
	m.pruneFailures(plan)
	return plan, true, errors.Join(err, errFolders, errLinks)
}

// snapshot returns the containers and sandboxes in the runtime. The caller may modify the
// containers in the result.
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

// sendFailureEvent records an event about a failed pass: for the first of consecutive
// failures, and then at most once per eventInterval.
func (m *Manager) sendFailureEvent(ctx context.Context, err error) {
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

// lock waits until no other pass is deciding or ctx is done.
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
