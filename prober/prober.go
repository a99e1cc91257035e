package prober

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
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
	buffers sync.Pool      // of *buffer
	active  atomic.Bool    // a Run has not returned
	running sync.WaitGroup // the goroutines of Run

	mu       sync.Mutex // never held during callbacks
	pods     map[types.UID]*pod
	agenda   agenda
	network  lane
	exec     lane
	watchers map[*watcher]struct{}
	// asleep is until when Run waits.
	asleep int64
}

// pod is one whose probes are run.
type pod struct {
	spec   *corev1.Pod
	probes []*probe
	// stopping says that only readiness is probed any more.
	stopping bool
	// looks counts the looks of Refresh, which are newer than those of runs that
	// began before.
	looks uint64
}

// probe is one probe. There may be a hundred thousand, so every word counts.
type probe struct {
	pod       *pod
	container *corev1.Container
	opts      *Options // nil for none
	id        string   // of the container that count is about
	flight    *flight  // the run in flight, or one whose command has outlived it
	kept      *link    // an idle connection, owned by who runs the probe
	ring      *history // nil before the first run
	// Nanoseconds since the Manager's start: when it is due, when the initial
	// delay is over, and when it last made an event.
	due, eligible, event int64
	count                count
	index                int32 // in the agenda, or -1
	kind                 Kind
	// told is what the last event said.
	told Outcome
	// busy says that somebody runs it, exited that its container has, first that
	// the first run on this container is to come, manual that somebody asked for
	// one off its turn, removed that nobody wants it any more.
	busy, exited, first, manual, removed bool
}

// flight is a run that can be cut short.
type flight struct{ cancel context.CancelFunc }

func (p *probe) spec() *corev1.Probe { return p.kind.of(p.container) }

func (p *probe) key() Key {
	return Key{PodUID: p.pod.spec.UID, Container: p.container.Name, Kind: p.kind}
}

// lane is a bounded number of runs and those that wait for their turn.
type lane struct {
	limit, busy int
	queue       []*probe
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
		cfg: cfg, loop: loop.New(cfg.Clock), start: cfg.Clock.Now(), seed: maphash.MakeSeed(),
		pods: map[types.UID]*pod{}, watchers: map[*watcher]struct{}{},
		network: lane{limit: cfg.MaxParallel}, exec: lane{limit: cfg.MaxExec},
	}, nil
}

// now is the time since the start in nanoseconds.
func (m *Manager) now() int64 { return int64(m.cfg.Clock.Now().Sub(m.start)) }

// Run runs each probe when it is due, until ctx is done, and then returns nil. All
// goroutines that it started have ended then, provided that the Runner's calls end
// with their context, and all kept connections are closed. A second Run beside the
// first returns [ErrRunning].
func (m *Manager) Run(ctx context.Context) error {
	if !m.active.CompareAndSwap(false, true) {
		return fmt.Errorf("prober: %w", ErrRunning)
	}
	defer m.active.Store(false)
	if err := m.loop.Run(ctx, m.dispatch); err != nil {
		return fmt.Errorf("prober: %w", err)
	}
	m.running.Wait() // nothing is added any more: the next Run begins after this one
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pod := range m.pods {
		for _, p := range pod.probes {
			m.unqueue(p)
			if !p.busy { // Probe may be running it
				p.hangUp()
			}
		}
	}
	m.network.queue, m.exec.queue = nil, nil
	return nil
}

// unqueue puts a probe that waits for its turn back where Run finds it.
func (m *Manager) unqueue(p *probe) {
	if !p.busy && !p.removed && p.index < 0 {
		m.agenda.put(p, p.due)
	}
}

// dispatch starts what is due and returns how long it is until something is.
func (m *Manager) dispatch(ctx context.Context) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for p := m.agenda.takeDue(now); p != nil; p = m.agenda.takeDue(now) {
		l := m.lane(p)
		l.queue = append(l.queue, p)
	}
	m.serve(ctx, &m.network)
	m.serve(ctx, &m.exec)
	m.asleep = now + int64(time.Hour)
	if len(m.agenda) > 0 {
		m.asleep = min(m.asleep, m.agenda[0].due)
	}
	return time.Duration(m.asleep - now)
}

// wake ends Run's wait if something is due before that would.
func (m *Manager) wake() {
	m.mu.Lock()
	early := len(m.agenda) > 0 && m.agenda[0].due < m.asleep
	m.mu.Unlock()
	if early {
		m.loop.Trigger()
	}
}

func (m *Manager) lane(p *probe) *lane {
	if p.spec().Exec != nil {
		return &m.exec
	}
	return &m.network
}

// serve starts those at the front of a lane, as many as may run. It needs mu.
func (m *Manager) serve(ctx context.Context, l *lane) {
	taken := 0
	for ; taken < len(l.queue) && l.busy < l.limit; taken++ {
		p := l.queue[taken]
		if p.removed || p.busy || p.index >= 0 {
			continue // it is gone, being run, or was put off meanwhile
		}
		p.busy = true
		l.busy++
		m.running.Go(func() {
			_, _ = m.step(ctx, p, m.running.Go) // who wants to know has an Observer
			m.leave(l)
		})
	}
	// Nobody waits for long: what is moved is seldom anything.
	l.queue = slices.Delete(l.queue, 0, taken)
}

// leave makes room in a lane.
func (m *Manager) leave(l *lane) {
	m.mu.Lock()
	l.busy--
	waiting := len(l.queue) > 0
	m.mu.Unlock()
	if waiting {
		m.loop.Trigger()
	}
}

// Probe is the single step: it runs the probe once, now, counts what it found and
// returns it, for those who have a schedule of their own. A command that outlives
// its timeout has a goroutine until it ends, its grace is over or ctx is done. It
// returns an
// [ErrNoProbe], [ErrInFlight] or [ErrNotNow] if there was no run, and the cause of
// ctx if that cut it short. Those of an [Errored] run are in Run.Err only.
func (m *Manager) Probe(ctx context.Context, key Key) (Run, error) {
	m.mu.Lock()
	p := m.find(key)
	switch {
	case p == nil:
		m.mu.Unlock()
		return Run{}, ErrNoProbe
	case p.busy:
		m.mu.Unlock()
		return Run{}, ErrInFlight
	}
	p.busy = true
	m.agenda.remove(p)
	p.due = m.now()
	m.mu.Unlock()
	return m.step(ctx, p, func(f func()) { go f() })
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
