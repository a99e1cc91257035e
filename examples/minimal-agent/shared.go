package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/server"
)

// sharedAge is how old an answer may be that the agent gives to another request.
const sharedAge = time.Second

// answers are what pages show of the runtime. To get one, the agent asks the runtime for
// all containers, sandboxes or their statistics.
type answers struct {
	summary  *shared[*statsapi.Summary]
	running  *shared[[]*corev1.Pod]
	garbage  *shared[server.Plan]
	pressure *shared[evaluation]
}

// shared asks an expensive question once for all callers of get at the same time or soon
// after. They must not modify the answer.
type shared[T any] struct {
	ask   func(context.Context) (T, error)
	turn  chan struct{} // is full while somebody asks
	value T
	err   error
	asked time.Time // when the last answer came; zero before
}

func newShared[T any](ask func(context.Context) (T, error)) *shared[T] {
	return &shared[T]{ask: ask, turn: make(chan struct{}, 1)}
}

// get returns the last answer, which may be an error, and asks if it is too old. If ctx
// ends meanwhile, the answer is not kept: it may be incomplete.
func (s *shared[T]) get(ctx context.Context) (value T, err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return value, ctx.Err()
	}
	defer func() { <-s.turn }()
	if !s.asked.IsZero() && time.Since(s.asked) < sharedAge {
		return s.value, s.err
	}
	value, err = s.ask(ctx)
	if ctx.Err() == nil {
		s.value, s.err, s.asked = value, err, time.Now()
	}
	return value, err
}
