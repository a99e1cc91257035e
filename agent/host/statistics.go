package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/internal/loop"
)

const (
	// idlePeriod is the time between two refreshes while no caller needs newer figures. A
	// refresh makes two calls of the runtime. The kubelet makes such calls every 10 s.
	idlePeriod = time.Minute
	// limitsAge is the maximum age of pod figures that the eviction manager compares with local
	// storage limits. It is slightly less than the time between two of these comparisons.
	limitsAge = 9 * time.Second
	// freshTimeout is how long Pods waits for newer figures before it returns the old figures. A
	// runtime that hangs must not prevent evictions.
	freshTimeout = 2 * time.Second
)

// statistics measures the node and its pods. It refreshes the figures of pods when a caller
// needs newer figures, and otherwise once per idlePeriod.
type statistics struct {
	provider   *stats.Provider
	thresholds []eviction.Threshold
	clock      clock.Clock
	log        *slog.Logger
	refresh    *loop.Loop

	// These locks are held until a result of the provider is copied, because the next call of
	// the provider reuses the memory of the result.
	nodeResult, podsResult sync.Mutex

	mu               sync.Mutex    // guards the following fields
	belowThresholdAt time.Time     // start of the last measurement of the node; zero if no signal was below its threshold
	refreshed        time.Time     // start of the last refresh that has ended, even with an error
	done             chan struct{} // closed at the end of the next refresh
	users            int           // measurements in progress
	closed           bool
}

var (
	_ Stats          = (*statistics)(nil)
	_ eviction.Waker = (*statistics)(nil)
)

func newStatistics(p *stats.Provider, c LocalConfig) *statistics {
	return &statistics{
		provider: p, thresholds: slices.Clone(c.Thresholds), clock: c.Clock, log: c.Logger,
		refresh: loop.New(c.Clock), done: make(chan struct{}),
	}
}

// run refreshes until ctx is done. The last call of the method leave then closes the provider.
func (s *statistics) run(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	logged := "" // the cause of the previous failure
	err := s.refresh.Run(ctx, func(ctx context.Context) time.Duration {
		began := s.clock.Now()
		_, err := s.provider.Refresh(ctx)
		s.complete(began)
		cause := ""
		if err != nil && ctx.Err() == nil {
			cause = err.Error()
		}
		if cause != "" && cause != logged {
			s.log.WarnContext(ctx, "could not refresh some statistics, their previous values stay in use, will retry", "retryIn", idlePeriod, "err", err)
		}
		logged = cause
		return idlePeriod
	})
	if err != nil {
		return fmt.Errorf("host: refresh statistics: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// complete records that a refresh with this start time has ended, even with an error, and wakes
// the callers that wait for a refresh.
func (s *statistics) complete(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refreshed = began
	close(s.done)
	s.done = make(chan struct{})
}

// enter registers a measurement. The provider is not closed while a measurement is registered.
func (s *statistics) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("host: statistics are not available any more: the host's Run has returned")
	}
	s.users++
	return nil
}

// leave unregisters a measurement. If run has ended and no measurement is registered any more,
// leave closes the provider.
func (s *statistics) leave() {
	s.mu.Lock()
	s.users--
	last := s.closed && s.users == 0
	s.mu.Unlock()
	if last {
		_ = s.provider.Close() // always nil
	}
}

// Node measures the eviction signals of the node.
func (s *statistics) Node(ctx context.Context) (eviction.NodeStats, error) {
	if err := s.enter(); err != nil {
		return eviction.NodeStats{}, err
	}
	defer s.leave()
	began := s.clock.Now()
	node, err := s.measureNode(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.belowThresholdAt = (time.Time{}); s.isBelowThreshold(node) {
		s.belowThresholdAt = began
	}
	return node, err
}

func (s *statistics) measureNode(ctx context.Context) (eviction.NodeStats, error) {
	s.nodeResult.Lock()
	defer s.nodeResult.Unlock()
	node, err := s.provider.Node(ctx)
	node.Observations = slices.Clone(node.Observations)
	return node, err
}

// isBelowThreshold reports whether a signal is below one of its thresholds.
func (s *statistics) isBelowThreshold(node eviction.NodeStats) bool {
	return slices.ContainsFunc(node.Observations, func(o eviction.Observation) bool {
		return slices.ContainsFunc(s.thresholds, func(t eviction.Threshold) bool {
			return t.Signal == o.Signal && o.Available < t.Value.Of(o.Capacity)
		})
	})
}

// Pods measures pods with figures of the runtime that are new enough to select a pod for eviction.
// If a signal of the node is below its threshold, Pods waits up to freshTimeout for figures that
// are newer than the last measurement of the node. The usage of a pod that causes memory pressure
// grows quickly. If the pod has no cgroup, only the runtime knows its memory usage, so older
// figures of the runtime are not enough.
func (s *statistics) Pods(ctx context.Context, pods []*corev1.Pod) ([]eviction.PodStats, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	s.awaitFresh(ctx)
	s.podsResult.Lock()
	defer s.podsResult.Unlock()
	all, err := s.provider.Pods(ctx, pods)
	return slices.Clone(all), err
}

// awaitFresh waits until the figures of the runtime are new enough, but at most freshTimeout.
func (s *statistics) awaitFresh(ctx context.Context) {
	s.mu.Lock()
	oldest := s.belowThresholdAt
	s.mu.Unlock()
	if oldest.IsZero() {
		oldest = s.clock.Now().Add(-limitsAge)
	}
	timer := s.clock.NewTimer(freshTimeout)
	defer timer.Stop()
	for {
		s.mu.Lock()
		fresh, done := !s.refreshed.Before(oldest), s.done
		s.mu.Unlock()
		if fresh {
			return
		}
		s.refresh.Trigger()
		select {
		case <-done:
		case <-timer.C():
			return
		case <-ctx.Done():
			return
		}
	}
}

// Summary returns the stats summary of the node and the given pods.
func (s *statistics) Summary(ctx context.Context, pods []*corev1.Pod) (*statsapi.Summary, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	return s.provider.Summary(ctx, pods)
}

// Watch implements [eviction.Waker] with kernel events.
func (s *statistics) Watch(ctx context.Context, levels func() []eviction.Level, wake func(reason string)) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return s.provider.Watch(ctx, levels, wake)
}
