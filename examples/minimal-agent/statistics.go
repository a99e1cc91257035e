package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/eviction/nodestats"
	"github.com/kubeparts/kubeparts/internal/loop"
)

const (
	// quietPeriod is how often the runtime is asked what containers use when nobody
	// needs to know: two calls. The kubelet does it every ten seconds.
	quietPeriod = time.Minute
	// limitsAge is how old figures may be that are held against the limits of pods:
	// just less than the time between two looks.
	limitsAge = 9 * time.Second
	// shortAge is how old they may be when a pod has to go. Of pods without cgroups of
	// their own the runtime alone knows the memory, and a hog grows by the second.
	shortAge = time.Second
	// statsPatience is how long a decision waits for new ones. After that it is made
	// by the old ones: a runtime that hangs keeps nobody from being evicted.
	statsPatience = 2 * time.Second
)

// statistics measures the node, and the pods when somebody needs to know.
type statistics struct {
	*nodestats.Provider
	thresholds []eviction.Threshold
	ready      func() bool // every source of pods has answered
	short      atomic.Bool // at the last look, of something
	refresh    *loop.Loop

	mu        sync.Mutex
	refreshed time.Time     // when the last refresh began
	done      chan struct{} // is closed at the end of the next one
}

var (
	_ eviction.Stats = (*statistics)(nil)
	_ eviction.Waker = (*statistics)(nil)
)

func newStatistics(p *nodestats.Provider, thresholds []eviction.Threshold, ready func() bool) *statistics {
	return &statistics{
		Provider: p, thresholds: thresholds, ready: ready,
		refresh: loop.New(clock.RealClock{}), done: make(chan struct{}),
	}
}

// Run refreshes until ctx is done.
func (s *statistics) run(ctx context.Context) error {
	return s.refresh.Run(ctx, func(ctx context.Context) time.Duration {
		began := time.Now()
		// What is wrong is told by Node again, and seen there.
		_, _ = s.Refresh(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refreshed = began
		close(s.done)
		s.done = make(chan struct{})
		return quietPeriod
	})
}

// Node measures the node. Before all pods are known that ran when the agent began,
// nothing is: a node that is short would refuse them.
func (s *statistics) Node(ctx context.Context) (eviction.NodeStats, error) {
	if !s.ready() {
		return eviction.NodeStats{}, nil
	}
	node, err := s.Provider.Node(ctx)
	short := false
	for _, o := range node.Observations {
		for _, t := range s.thresholds {
			short = short || t.Signal == o.Signal && o.Available < t.Value.Of(o.Capacity)
		}
	}
	s.short.Store(short)
	return node, err
}

// Pods measures pods by figures of the runtime that are new enough.
func (s *statistics) Pods(ctx context.Context) ([]eviction.PodStats, error) {
	allowed := limitsAge
	if s.short.Load() {
		allowed = shortAge
	}
	s.mu.Lock()
	age, done := time.Since(s.refreshed), s.done
	s.mu.Unlock()
	if age > allowed {
		s.refresh.Trigger()
		patience := time.NewTimer(statsPatience)
		defer patience.Stop()
		select {
		case <-done:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
	return s.Provider.Pods(ctx)
}
