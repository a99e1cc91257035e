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

// errorLogInterval is the minimum time between two log messages about failed
// measurements: evaluations may run many times a second.
const errorLogInterval = 10 * time.Second

// ErrRunning is returned by [Manager.Run] while another Run is active.
var ErrRunning = loop.ErrRunning

// Manager evicts pods when the node runs short of resources. Create it with [New]. All
// methods may be called concurrently; only one Run may be active.
type Manager struct {
	cfg     Config
	loop    *loop.Loop
	running atomic.Bool
	work    calls // kills and reclaims

	step             sync.Mutex // serializes Evaluate; held during callbacks
	state            State
	limitsAt         time.Time // next check of local storage limits
	thresholdEventAt map[corev1.ResourceName]time.Time

	mu         sync.Mutex // guards the fields below; never held during callbacks
	conditions []corev1.NodeConditionType
	levels     []Level
	alertUntil time.Time
	kills      []*kill
	failed     map[types.UID]time.Time
	reclaims   map[ReclaimAction]Reclaim
}

// New returns a Manager, which does nothing until [Manager.Run] or [Manager.Evaluate] is
// called. The error reports every problem with cfg.
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
		cfg:              cfg,
		loop:             loop.New(cfg.Clock),
		thresholdEventAt: map[corev1.ResourceName]time.Time{},
		failed:           map[types.UID]time.Time{},
		reclaims:         map[ReclaimAction]Reclaim{},
	}, nil
}

// Run evaluates at once and then repeatedly until ctx is done. The sooner a threshold
// could be reached, the shorter is the time to the next evaluation. When ctx is done, Run
// waits until all kills and reclaims have ended, and returns nil. While another Run is
// active, it returns [ErrRunning].
func (m *Manager) Run(ctx context.Context) error {
	if !m.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer m.running.Store(false)
	var watch sync.WaitGroup
	startWatch := sync.OnceFunc(func() { // after the first evaluation, which determines the levels
		if m.cfg.Waker != nil {
			watch.Go(func() { m.watch(ctx) })
		}
	})
	var logErrorsFrom time.Time
	err := m.loop.Run(ctx, func(ctx context.Context) time.Duration {
		d, err := m.Evaluate(ctx)
		startWatch()
		if err != nil && ctx.Err() == nil && !d.At.Before(logErrorsFrom) {
			logErrorsFrom = d.At.Add(errorLogInterval)
			m.cfg.Logger.ErrorContext(ctx, "some measurements failed, eviction decisions use only the other measurements", "err", err)
		}
		return m.interval(&d)
	})
	watch.Wait()
	m.Wait()
	return err
}

// Trigger requests an evaluation soon. It never blocks.
func (m *Manager) Trigger() { m.loop.Trigger() }

// Wait returns when no kill and no reclaim is in progress. It may be called concurrently
// with [Manager.Evaluate] and [Manager.Run]. Run calls Wait before it returns. A caller of
// Evaluate must call Wait itself.
func (m *Manager) Wait() { m.work.wait() }

// Evaluate measures, decides and starts the actions. It kills pods and reclaims disks on
// separate goroutines, with ctx; [Manager.Wait] waits for these goroutines. The error
// joins the errors of failed measurements. The decision is then based on the other
// measurements.
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
		m.updateState(ctx, pods, now)
	}
	p := &m.cfg.Policy
	if obs.CheckLimits = !p.IgnoreLocalStorageLimits && !now.Before(m.limitsAt); obs.CheckLimits {
		m.limitsAt = now.Add(m.cfg.LimitsPeriod)
		obs.Pods = m.cfg.Pods()
		if slices.ContainsFunc(obs.Pods, func(pod *corev1.Pod) bool { return pod != nil && hasLimits(pod) }) {
			err = errors.Join(err, m.measurePods(ctx, &obs, now))
		}
	}
	d := PlanEviction(m.state, obs, *p, now)
	if d.NeedPods {
		obs.Pods = m.cfg.Pods()
		err = errors.Join(err, m.measurePods(ctx, &obs, now))
		d = PlanEviction(m.state, obs, *p, now)
	}
	m.state = d.Next
	m.cfg.Observer.Evaluated(d, err)
	m.publish(&d)
	if m.cfg.Mode == Act {
		m.act(ctx, &d, obs.PodStats)
	} else {
		m.skipReclaims(&d)
	}
	return d, err
}

// measurePods adds the stats of obs.Pods to obs, and updates the evictions in progress: it
// adopts the evictions of an earlier Manager, and updates the amounts that terminating
// pods are expected to free.
func (m *Manager) measurePods(ctx context.Context, obs *Observations, now time.Time) error {
	err := m.podStats(ctx, obs)
	m.adopt(obs.Pods, now)
	m.updateFrees(obs)
	return err
}

// podStats adds the stats of obs.Pods to obs, without values that are too old. If it
// returns an error, it has added the stats that could be measured.
func (m *Manager) podStats(ctx context.Context, obs *Observations) error {
	all, err := m.cfg.Stats.Pods(ctx, obs.Pods)
	now, maxAge := m.cfg.Clock.Now(), m.cfg.Policy.withDefaults().MaxObservationAge
	obs.PodStats = map[types.UID]*PodStats{}
	for _, s := range all {
		recent := s.measuredSince(now.Add(-maxAge), now.Add(-maxDiskAge))
		obs.PodStats[s.UID] = &recent
	}
	if err != nil {
		return fmt.Errorf("measure pods: %w", err)
	}
	return nil
}

// publish stores the node conditions for admission and the levels for the Waker.
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

// watch runs the Waker until ctx is done, and restarts it after a failure.
func (m *Manager) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.cfg.Waker.Watch(ctx, m.hardLevels, m.wake)
		if ctx.Err() != nil {
			return
		}
		m.cfg.Logger.ErrorContext(ctx, "waker failed, polling continues and the waker is restarted", "err", err)
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

// wake triggers an evaluation, and shortens the time between evaluations for the duration
// alertFor.
func (m *Manager) wake(reason string) {
	m.mu.Lock()
	m.alertUntil = m.cfg.Clock.Now().Add(alertFor)
	m.mu.Unlock()
	m.cfg.Observer.Woken(reason)
	m.loop.Trigger()
}
