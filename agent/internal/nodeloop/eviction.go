package nodeloop

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/lifecycle"
)

// newEviction creates the manager that evicts pods before the node runs out of a resource.
func (l *Loop) newEviction() (err error) {
	observer := l.cfg.Observers.Eviction
	observer.Evaluated = chain2(l.evaluated, observer.Evaluated)
	observer.ConditionsChanged = chain(func([]corev1.NodeConditionType) { l.cfg.PressureChanged() }, observer.ConditionsChanged)
	observer.Evicted = func(pod *corev1.Pod, e eviction.Eviction, took time.Duration, err error) {
		l.logEvicted(pod, e, took, err)
		if next := l.cfg.Observers.Eviction.Evicted; next != nil {
			next(pod, e, took, err)
		}
	}
	left := &cleanup{cleanedUp: l.cfg.Pods.CleanedUp, clock: l.cfg.Clock, at: map[types.UID]time.Time{}}
	cfg := eviction.Config{
		Stats:       l.evictionStats(),
		Pods:        l.cfg.Pods.Active,
		Killer:      killer{l.cfg.Pods},
		Policy:      l.cfg.Eviction,
		ContainerGC: l.containerGC,
		CleanedUp:   left.done,
		Waker:       l.cfg.Host.Waker,
		Clock:       l.cfg.Clock,
		Logger:      l.cfg.Logger,
		Observer:    observer,
	}
	if l.cfg.Host.ImageFS != nil {
		cfg.ImageGC = imageReclaim{l.imageGC}
	}
	if l.cfg.Events != nil {
		cfg.Node, cfg.Events, cfg.AnnotatedEvents = l.reference, l.cfg.Events, l.cfg.Events
	}
	l.eviction, err = eviction.New(cfg)
	return err
}

// logEvicted logs a successful eviction. The eviction manager logs failed evictions.
func (l *Loop) logEvicted(pod *corev1.Pod, e eviction.Eviction, took time.Duration, err error) {
	if err == nil {
		l.cfg.Logger.Info("evicted a pod", "pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID,
			"signal", e.Signal, "decided", e.At, "took", took.Round(time.Millisecond))
	}
}

// EvaluateThresholds makes the eviction manager measure the node and evaluate the thresholds
// soon.
func (l *Loop) EvaluateThresholds() { l.eviction.Trigger() }

// Admit refuses pods while the node is under pressure.
func (l *Loop) Admit(ctx context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	return l.eviction.Admit(ctx, attrs)
}

// pressure stores the last eviction decision.
type pressure struct {
	mu   sync.Mutex
	last eviction.Decision
}

// evaluated records an eviction decision. If the conditions have changed, it triggers an update
// of the node.
func (l *Loop) evaluated(d eviction.Decision, err error) {
	l.pressure.mu.Lock()
	before := l.pressure.last.Conditions
	l.pressure.last = d
	l.pressure.mu.Unlock()
	l.parts.record(partEviction, err)
	if !slices.Equal(before, d.Conditions) {
		l.nodeLoop.Trigger()
	}
}

func (p *pressure) decision() eviction.Decision {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (p *pressure) conditions() []corev1.NodeConditionType { return p.decision().Conditions }

// evictionStats returns the statistics of the host for eviction decisions. The statistics are
// unknown until Pods.Ready returns nil. After its start, an agent does not know all pods of the
// node yet, so it could refuse or evict the wrong pods. If host.Host.Stats is nil, the statistics
// are always unknown.
func (l *Loop) evictionStats() readyStats { return readyStats{l.cfg.Host.Stats, l.cfg.Pods.Ready} }

type readyStats struct {
	stats host.Stats // may be nil
	ready func() error
}

func (g readyStats) isAvailable() bool { return g.stats != nil && g.ready() == nil }

// Node returns the statistics of the node. The result is empty while the statistics are unknown.
func (g readyStats) Node(ctx context.Context) (eviction.NodeStats, error) {
	if !g.isAvailable() {
		return eviction.NodeStats{}, nil
	}
	return g.stats.Node(ctx)
}

// Pods returns the statistics of pods. The result is nil while the statistics are unknown.
func (g readyStats) Pods(ctx context.Context, pods []*corev1.Pod) ([]eviction.PodStats, error) {
	if !g.isAvailable() {
		return nil, nil
	}
	return g.stats.Pods(ctx, pods)
}
