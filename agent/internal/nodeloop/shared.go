package nodeloop

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// sharedAge is the age up to which an answer is given to other callers.
const sharedAge = time.Second

// shared asks an expensive question once for all callers at the same time or within
// sharedAge. Callers must not modify the answer.
type shared[T any] struct {
	clock clock.PassiveClock
	ask   func(context.Context) (T, error)
	turn  chan struct{} // full while a caller asks; guards what follows
	value T
	err   error
	asked time.Time // when the last answer came; zero before the first one
}

func newShared[T any](c clock.PassiveClock, ask func(context.Context) (T, error)) *shared[T] {
	return &shared[T]{clock: c, ask: ask, turn: make(chan struct{}, 1)}
}

// get returns the last answer, which may be an error, and asks if that is too old. If ctx
// ends during the question, the answer is not given to others: it may be incomplete.
func (s *shared[T]) get(ctx context.Context) (value T, err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return value, ctx.Err()
	}
	defer func() { <-s.turn }()
	if !s.asked.IsZero() && s.clock.Since(s.asked) < sharedAge {
		return s.value, s.err
	}
	value, err = s.ask(ctx)
	if ctx.Err() == nil {
		s.value, s.err, s.asked = value, err, s.clock.Now()
	}
	return value, err
}
