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

// Errors that callers can test for with errors.Is.
var (
	// ErrRunning means that another Run is in progress.
	ErrRunning = loop.ErrRunning
	// ErrNoProbe means that the probe does not exist.
	ErrNoProbe = errors.New("no such probe")
	// ErrInFlight means that a run of the probe is in progress or waits for a slot.
	ErrInFlight = errors.New("a run of the probe is in progress")
	// ErrNotRunnable means that the probe cannot be run now: the container is not running, the
	// initial delay is not over, the startup probe has not succeeded, or the probe has its
	// final result.
	ErrNotRunnable = errors.New("the probe cannot be run now")
	// ErrCommandNotFound means that a command does not exist in a container. A [Runner]
	// returns an error that wraps ErrCommandNotFound.
	ErrCommandNotFound = errors.New("command not found")
)

// Manager runs probes. Create it with [New]. All methods are safe for concurrent use.
type Manager struct {
	cfg     Config
	loop    *loop.Loop
	start   time.Time
	seed    maphash.Seed
	active  atomic.Bool    // a Run is in progress
	running sync.WaitGroup // the goroutines of Run
	// networkSlots and execSlots are semaphores. Each run in progress holds a slot of one of
	// these semaphores, except the runs of the method Probe.
	networkSlots, execSlots chan struct{}

	mu       sync.Mutex // never held during callbacks
	pods     map[types.UID]*pod
	schedule schedule // the probes without a run in progress
	watchers map[*watcher]struct{}
}

// pod is a pod whose probes are run.
type pod struct {
	spec   *corev1.Pod
	probes []*probe
	// stopping means that the pod is terminating: only readiness is still probed.
	stopping bool
	// refreshes counts the calls of Refresh. A run repeats its Lookup if this number has changed
	// in the meantime, so that an older state never replaces a newer state.
	refreshes uint64
}

// probe is one probe of a container.
type probe struct {
	pod       *pod
	container *corev1.Container
	kind      Kind
	opts      Options
	removed   bool

	// The state for the current container. id is the container's CRI ID.
	id         string
	count      count
	exited     bool
	isFirstRun bool     // no scheduled run for the current container has been counted
	history    []Record // also of earlier containers

	// due is when the next run is due. eligible is when the initial delay is over; it is zero
	// before the container runs. After Trigger, scheduledFor is the previous value of due.
	due, eligible, scheduledFor time.Time
	scheduleIndex               int // in the schedule

	// run is the run that is in progress or waits for a slot, or nil. The field command is an
	// earlier run whose command has not ended, or nil.
	run, command *run

	// lastEvent is the outcome in the last event, lastEventAt is the time of that event.
	lastEvent   Outcome
	lastEventAt time.Time
}

// interrupt cancels the run in progress and the command of an earlier run.
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

// New returns a manager without probes, or an error that reports every problem with cfg.
// Containers that were started before New was called keep their reported state: see
// [Manager.UpdatePodStatus].
func New(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("prober: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Manager{
		cfg: cfg, loop: loop.New(cfg.Clock), schedule: newSchedule(), start: cfg.Clock.Now(), seed: maphash.MakeSeed(),
		pods: map[types.UID]*pod{}, watchers: map[*watcher]struct{}{},
		networkSlots: make(chan struct{}, cfg.MaxParallel), execSlots: make(chan struct{}, cfg.MaxExec),
	}, nil
}

// Run runs each probe when it is due, until ctx is done, and then returns nil. Before it
// returns, all goroutines that it started have ended, provided that the calls of the Runner,
// the Killer and GRPC return when their context is done. It returns [ErrRunning] if another
// Run is in progress.
func (m *Manager) Run(ctx context.Context) error {
	if !m.active.CompareAndSwap(false, true) {
		return fmt.Errorf("prober: %w", ErrRunning)
	}
	defer m.active.Store(false)
	if err := m.loop.Run(ctx, m.dispatch); err != nil {
		return fmt.Errorf("prober: %w", err)
	}
	m.running.Wait() // no goroutine is added now, because another Run cannot begin before this Run has returned
	return nil
}

// dispatch starts the runs that are due and returns the time until the next run is due.
func (m *Manager) dispatch(ctx context.Context) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Clock.Now()
	for p := m.schedule.First(); p != nil && !p.due.After(now); p = m.schedule.First() {
		m.claim(p, m.running.Go)
		slots := m.networkSlots
		if p.spec().Exec != nil {
			slots = m.execSlots
		}
		m.running.Go(func() {
			select {
			case slots <- struct{}{}:
				_, _ = m.step(ctx, p) // the Observer receives the results
				<-slots
			case <-ctx.Done():
				m.requeue(p)
			}
		})
	}
	if p := m.schedule.First(); p != nil {
		return p.due.Sub(now)
	}
	return time.Hour
}

// requeue cancels a run of p that has not begun. p stays due at the same time.
func (m *Manager) requeue(p *probe) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.run = nil
	if !p.removed {
		m.schedule.put(p, p.due)
	}
}

// Probe runs the probe once, without waiting until it is due or a slot is free, counts the
// outcome and returns it. It is for callers with their own schedule. A command that is
// still running after its timeout uses a goroutine until the command ends, ExecGrace is
// over or ctx is done. If the probe was not run, the error is [ErrNoProbe], [ErrInFlight]
// or [ErrNotRunnable]. If ctx cancelled the run, the error wraps the cause of ctx. If the
// run was cancelled because the probe was removed, or because the container was replaced or
// has exited, the error wraps [ErrNotRunnable]. If the probe was run and ended in an error,
// Probe returns a nil error, and Run.Err contains the cause.
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
	p.due, p.scheduledFor = m.cfg.Clock.Now(), time.Time{}
	m.claim(p, func(f func()) { go f() })
	m.mu.Unlock()
	return m.step(ctx, p)
}

// find returns the probe of a key, or nil. The caller holds mu.
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
