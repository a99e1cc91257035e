package prober

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/loop"
)

// What a caller may want to tell apart.
var (
	// ErrRunning says that another Run is under way.
	ErrRunning = loop.ErrRunning
	// ErrNoProbe says that there is no such probe.
	ErrNoProbe = errors.New("no such probe")
	// ErrInFlight says that the probe is being run already.
	ErrInFlight = errors.New("the probe is being run already")
	// ErrNotNow says that there is nothing to probe now: the container does not
	// run, is in its initial delay, has yet to start or has been judged already.
	ErrNotNow = errors.New("nothing to probe now")
	// ErrCommandNotFound says that a container has no such command. A [Runner]
	// wraps it.
	ErrCommandNotFound = errors.New("command not found")
)

// Manager runs probes. Make it with [New]; all methods may be called by any number
// of goroutines.
type Manager struct {
	cfg     Config
	loop    *loop.Loop
	start   time.Time
	seed    maphash.Seed
	active  atomic.Bool    // a Run has not returned
	running sync.WaitGroup // the goroutines of Run
	// A run takes a place in one of these while it lasts.
	networkPlaces, execPlaces chan struct{}

	mu       sync.Mutex // never held during callbacks
	pods     map[types.UID]*pod
	agenda   agenda // the probes that have no run
	watchers map[*watcher]struct{}
}

// pod is one whose probes are run.
type pod struct {
	spec   *corev1.Pod
	probes []*probe
	// stopping says that only readiness is probed any more.
	stopping bool
	// looks counts the calls of Refresh. A run repeats its Lookup if it has changed
	// meanwhile, so that an older answer never replaces a newer one.
	looks uint64
}

// probe is one probe of a container.
type probe struct {
	pod       *pod
	container *corev1.Container
	kind      Kind
	opts      Options
	removed   bool

	// What is known of one container, the one with this id.
	id      string
	count   count
	exited  bool
	first   bool // no run on it has been counted
	history []Record

	// When the next run is due, and when the initial delay is over, which is zero
	// before the container runs. After Trigger, turn is when it was due.
	due, eligible, turn time.Time
	place               int // in the agenda

	// run is the one that is under way or waits for a place, and command an earlier
	// one whose command has not ended.
	run, command *run

	// What the last event said, and when.
	told   Outcome
	toldAt time.Time
}

// interrupt cuts short what runs of the probe, commands of earlier runs included.
func (p *probe) interrupt() {
	if p.run != nil && p.run.cancel != nil {
		p.run.cancel()
	}
	if p.command != nil {
		p.command.cancel()
	}
}

func (p *probe) spec() *corev1.Probe { return p.kind.of(p.container) }

func (p *probe) key() Key {
	return Key{PodUID: p.pod.spec.UID, Container: p.container.Name, Kind: p.kind}
}

// New returns a manager without probes. The error reports every problem with cfg.
// Containers that began to run before New are ones of a predecessor: see
// [Manager.UpdatePodStatus].
func New(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("prober: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Manager{
		cfg: cfg, loop: loop.New(cfg.Clock), agenda: newAgenda(), start: cfg.Clock.Now(), seed: maphash.MakeSeed(),
		pods: map[types.UID]*pod{}, watchers: map[*watcher]struct{}{},
		networkPlaces: make(chan struct{}, cfg.MaxParallel), execPlaces: make(chan struct{}, cfg.MaxExec),
	}, nil
}

// Run runs each probe when it is due, until ctx is done, and then returns nil. All
// goroutines that it started have ended then, provided that the Runner's calls end
// with their context. A second Run beside the first returns [ErrRunning].
func (m *Manager) Run(ctx context.Context) error {
	if !m.active.CompareAndSwap(false, true) {
		return fmt.Errorf("prober: %w", ErrRunning)
	}
	defer m.active.Store(false)
	if err := m.loop.Run(ctx, m.dispatch); err != nil {
		return fmt.Errorf("prober: %w", err)
	}
	m.running.Wait() // nothing is added any more: the next Run begins after this one
	return nil
}

// dispatch starts the runs that are due and returns how long it is until the next one is.
func (m *Manager) dispatch(ctx context.Context) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Clock.Now()
	for p := m.agenda.First(); p != nil && !p.due.After(now); p = m.agenda.First() {
		m.claim(p, m.running.Go)
		places := m.networkPlaces
		if p.spec().Exec != nil {
			places = m.execPlaces
		}
		m.running.Go(func() {
			select {
			case places <- struct{}{}:
				_, _ = m.step(ctx, p) // an Observer has what it returns
				<-places
			case <-ctx.Done():
				m.giveUp(p)
			}
		})
	}
	if p := m.agenda.First(); p != nil {
		return p.due.Sub(now)
	}
	return time.Hour
}

// giveUp takes the run that has not begun from p, which is due as before.
func (m *Manager) giveUp(p *probe) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.run = nil
	if !p.removed {
		m.agenda.put(p, p.due)
	}
}

// Probe is the single step: it runs the probe once, now, counts the outcome and returns
// it, for callers that have a schedule of their own. A command that outlives its timeout
// has a goroutine until it ends, its grace is over or ctx is done. The error is
// [ErrNoProbe], [ErrInFlight] or [ErrNotNow] if the probe did not run, and the cause of ctx
// if that ended the run. If the probe itself could not be carried out, the error is nil,
// and Run.Err has the cause.
func (m *Manager) Probe(ctx context.Context, key Key) (Run, error) {
	m.mu.Lock()
	p := m.find(key)
	switch {
	case p == nil:
		m.mu.Unlock()
		return Run{}, ErrNoProbe
	case p.run != nil:
		m.mu.Unlock()
		return Run{}, ErrInFlight
	}
	p.due, p.turn = m.cfg.Clock.Now(), time.Time{}
	m.claim(p, func(f func()) { go f() })
	m.mu.Unlock()
	return m.step(ctx, p)
}

// find needs mu.
func (m *Manager) find(key Key) *probe {
	pod := m.pods[key.PodUID]
	if pod == nil {
		return nil
	}
	return pod.find(key.Container, key.Kind)
}

func (pod *pod) find(container string, k Kind) *probe {
	for _, p := range pod.probes {
		if p.kind == k && p.container.Name == container {
			return p
		}
	}
	return nil
}
