package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/server"
)

// sharedAge is for how long an answer of the runtime is given to others who ask the same.
const sharedAge = time.Second

// answers are those of the runtime to what pages ask: each costs it calls that list all
// containers.
type answers struct {
	summary  *shared[*statsapi.Summary]
	running  *shared[[]*corev1.Pod]
	garbage  *shared[server.Plan]
	pressure *shared[evaluation]
}

// shared asks an expensive question once for all who ask it at the same time or soon
// after. Who gets an answer must not modify it.
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

// get returns the last answer if it is new enough, an error too, and else asks. The
// answer to one who gave up waiting is for nobody.
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
