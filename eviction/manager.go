package eviction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/loop"
)

// complainEvery is the least time between two complaints about what can't be
// measured: looks come many times a second.
const complainEvery = 10 * time.Second

// ErrRunning is returned by a second [Manager.Run] beside the first.
var ErrRunning = loop.ErrRunning

// Manager keeps the node usable. Make it with [New]; all methods may be called by
// any number of goroutines, and Run by one.
type Manager struct {
	cfg     Config
	loop    *loop.Loop
	running atomic.Bool
	work    calls // kills and reclaims

	step     sync.Mutex // serializes Evaluate, held during callbacks
	state    State
	limitsAt time.Time // when limits are checked next
	told     map[corev1.ResourceName]time.Time

	mu         sync.Mutex // guards what follows, never held during callbacks
	conditions []corev1.NodeConditionType
	levels     []Level
	alertUntil time.Time
	kills      []*kill
	failed     map[types.UID]time.Time
	reclaims   map[ReclaimAction]Reclaim
}

// New returns a Manager that does nothing until [Manager.Run] or
// [Manager.Evaluate]. The error reports every problem with cfg.
func New(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("eviction: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	cfg.Policy.Reclaimers = nil
	if cfg.ContainerGC != nil {
		cfg.Policy.Reclaimers = append(cfg.Policy.Reclaimers, DeleteContainers)
	}
	if cfg.ImageGC != nil {
		cfg.Policy.Reclaimers = append(cfg.Policy.Reclaimers, DeleteImages)
	}
	return &Manager{
		cfg:      cfg,
		loop:     loop.New(cfg.Clock),
		told:     map[corev1.ResourceName]time.Time{},
		failed:   map[types.UID]time.Time{},
		reclaims: map[ReclaimAction]Reclaim{},
	}, nil
}

// Run evaluates at once, and then as often as the distance to the thresholds asks
// for, until ctx is done; then it waits for the calls of collaborators that are
// under way and returns nil. A second Run beside the first returns [ErrRunning].
func (m *Manager) Run(ctx context.Context) error {
	if !m.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer m.running.Store(false)
	var watch sync.WaitGroup
	begin := sync.OnceFunc(func() { // after a look: until then there are no levels
		if m.cfg.Waker != nil {
			watch.Go(func() { m.watch(ctx) })
		}
	})
	var complainAt time.Time
	err := m.loop.Run(ctx, func(ctx context.Context) time.Duration {
		d, err := m.Evaluate(ctx)
		begin()
		if err != nil && ctx.Err() == nil && !d.At.Before(complainAt) {
			complainAt = d.At.Add(complainEvery)
			m.cfg.Logger.ErrorContext(ctx, "not everything could be measured", "err", err)
		}
		return m.interval(&d)
	})
	watch.Wait()
	m.Wait()
	return err
}

// Trigger asks for a look soon. It never blocks.
func (m *Manager) Trigger() { m.loop.Trigger() }

// Wait returns as soon as no kill and no reclaim is under way, at once if none is. It
// may be called beside [Manager.Evaluate] and [Manager.Run]. Run waits before it
// returns; a caller of Evaluate calls Wait instead.
func (m *Manager) Wait() { m.work.wait() }

// Evaluate looks once, decides, and begins what has to be done: pods are killed
// and disks reclaimed on goroutines of their own, which ctx ends and
// [Manager.Wait] waits for. The error is about what could not be measured; the
// decision was made from the rest.
func (m *Manager) Evaluate(ctx context.Context) (Decision, error) {
	m.step.Lock()
	defer m.step.Unlock()
	now := m.cfg.Clock.Now()
	var pods []*corev1.Pod
	obs := Observations{}
	node, err := m.cfg.Stats.Node(ctx)
	obs.Node = node
	if err != nil {
		err = fmt.Errorf("measure the node: %w", err)
	}
	if m.busy() {
		pods = m.cfg.Pods()
		m.settle(ctx, pods, now)
	}
	p := &m.cfg.Policy
	if obs.CheckLimits = !p.IgnoreLocalStorageLimits && !now.Before(m.limitsAt); obs.CheckLimits {
		m.limitsAt = now.Add(m.cfg.LimitsPeriod)
		obs.Pods = m.cfg.Pods()
		if slices.ContainsFunc(obs.Pods, func(pod *corev1.Pod) bool { return pod != nil && hasLimits(pod) }) {
			err = errors.Join(err, m.measurePods(ctx, &obs, now))
		}
	}
	d := Evaluate(m.state, obs, *p, now)
	if d.NeedPods {
		obs.Pods = m.cfg.Pods()
		err = errors.Join(err, m.measurePods(ctx, &obs, now))
		d = Evaluate(m.state, obs, *p, now)
	}
	m.state = d.Next
	m.cfg.Observer.Evaluated(d, err)
	m.publish(&d)
	if m.cfg.Mode == Act {
		m.act(ctx, &d, obs.PodStats)
	} else {
		m.pretend(&d)
	}
	return d, err
}

// measurePods fills in what the pods of obs use, and brings into the state those that are
// ending: some since before this manager, and some with more to free than before.
func (m *Manager) measurePods(ctx context.Context, obs *Observations, now time.Time) error {
	err := m.podStats(ctx, obs)
	m.adopt(obs.Pods, now)
	m.regain(obs)
	return err
}

// podStats fills in the figures of the pods of obs that are not too old. With an error
// those that are there count.
func (m *Manager) podStats(ctx context.Context, obs *Observations) error {
	all, err := m.cfg.Stats.Pods(ctx, obs.Pods)
	now, maxAge := m.cfg.Clock.Now(), m.cfg.Policy.withDefaults().MaxObservationAge
	obs.PodStats = map[types.UID]*PodStats{}
	for _, s := range all {
		recent := s.since(now.Add(-maxAge), now.Add(-maxDiskAge))
		obs.PodStats[s.UID] = &recent
	}
	if err != nil {
		return fmt.Errorf("measure pods: %w", err)
	}
	return nil
}

// publish makes the conditions known, and the levels to the waker.
func (m *Manager) publish(d *Decision) {
	m.mu.Lock()
	changed := !slices.Equal(m.conditions, d.Conditions)
	m.conditions = d.Conditions
	m.levels = nil
	for i := range d.Thresholds {
		if r := &d.Thresholds[i]; r.Threshold.Hard() && !r.unmeasured() {
			m.levels = append(m.levels, Level{Signal: r.Threshold.Signal, Available: r.Quantity})
		}
	}
	m.mu.Unlock()
	if changed {
		m.cfg.Observer.ConditionsChanged(slices.Clone(d.Conditions))
	}
}

// watch has the waker watch until ctx is done.
func (m *Manager) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.cfg.Waker.Watch(ctx, m.hardLevels, m.wake)
		if ctx.Err() != nil {
			return
		}
		m.cfg.Logger.ErrorContext(ctx, "wake-ups have ended, polling goes on", "err", err)
		timer := m.cfg.Clock.NewTimer(m.cfg.MaxInterval)
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
	}
}

func (m *Manager) hardLevels() []Level {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.levels)
}

// wake has the step look now, and often for a while.
func (m *Manager) wake(reason string) {
	m.mu.Lock()
	m.alertUntil = m.cfg.Clock.Now().Add(alertFor)
	m.mu.Unlock()
	m.cfg.Observer.Woken(reason)
	m.loop.Trigger()
}
