package main

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/internal/loop"
)

const (
	// quietPeriod is how often the runtime is asked what containers use when nobody
	// needs to know: two calls. The kubelet does it every ten seconds.
	quietPeriod = time.Minute
	// limitsAge is how old figures may be that are held against the limits of pods:
	// just less than the time between two looks.
	limitsAge = 9 * time.Second
	// statsPatience is how long a decision waits for newer ones. After that it is made
	// by the old ones: a runtime that hangs keeps nobody from being evicted.
	statsPatience = 2 * time.Second
)

// statistics measures the node, and the pods when somebody needs to know.
type statistics struct {
	*stats.Provider
	thresholds []eviction.Threshold
	ready      func() bool // every source of pods has answered
	refresh    *loop.Loop

	mu        sync.Mutex
	short     time.Time     // of the last look, if the node was short of something then
	refreshed time.Time     // when the last refresh began
	done      chan struct{} // is closed at the end of the next one
}

var (
	_ eviction.Stats = (*statistics)(nil)
	_ eviction.Waker = (*statistics)(nil)
)

func newStatistics(p *stats.Provider, thresholds []eviction.Threshold, ready func() bool) *statistics {
	return &statistics{
		Provider: p, thresholds: thresholds, ready: ready,
		refresh: loop.New(clock.RealClock{}), done: make(chan struct{}),
	}
}

// run refreshes until ctx is done.
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
	looked := time.Now()
	node, err := s.Provider.Node(ctx)
	var short time.Time
	for _, o := range node.Observations {
		for _, t := range s.thresholds {
			if t.Signal == o.Signal && o.Available < t.Value.Of(o.Capacity) {
				short = looked
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.short = short
	return node, err
}

// Pods measures pods by figures of the runtime that are new enough: when a pod has to
// go, newer than the look that said so. Of pods without cgroups of their own the runtime
// alone knows the memory, and a hog grows by the second.
func (s *statistics) Pods(ctx context.Context, pods []*corev1.Pod) ([]eviction.PodStats, error) {
	s.mu.Lock()
	oldest := s.short
	s.mu.Unlock()
	if oldest.IsZero() {
		oldest = time.Now().Add(-limitsAge)
	}
	ctx, cancel := context.WithTimeout(ctx, statsPatience)
	defer cancel()
	for ctx.Err() == nil {
		s.mu.Lock()
		old, done := s.refreshed.Before(oldest), s.done
		s.mu.Unlock()
		if !old {
			break
		}
		s.refresh.Trigger()
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	return s.Provider.Pods(ctx, pods)
}
