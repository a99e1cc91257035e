package nodeloop

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// sharedAge is the maximum age of a result that is returned to other callers.
const sharedAge = time.Second

// shared computes an expensive result once for all callers that call get at the same time or
// within sharedAge. Callers must not modify the result.
type shared[T any] struct {
	clock      clock.PassiveClock
	compute    func(context.Context) (T, error)
	busy       chan struct{} // full while a caller computes; guards the following fields
	value      T
	err        error
	computedAt time.Time // time of the last result; zero before the first result
}

func newShared[T any](c clock.PassiveClock, compute func(context.Context) (T, error)) *shared[T] {
	return &shared[T]{clock: c, compute: compute, busy: make(chan struct{}, 1)}
}

// get returns the last result, which may be an error. If the last result is older than
// sharedAge, get computes a new result. If ctx is done during this computation, get does not
// store the result for other callers, because the result may be incomplete.
func (s *shared[T]) get(ctx context.Context) (value T, err error) {
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return value, ctx.Err()
	}
	defer func() { <-s.busy }()
	if !s.computedAt.IsZero() && s.clock.Since(s.computedAt) < sharedAge {
		return s.value, s.err
	}
	value, err = s.compute(ctx)
	if ctx.Err() == nil {
		s.value, s.err, s.computedAt = value, err, s.clock.Now()
	}
	return value, err
}
