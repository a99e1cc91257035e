package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Termination is what [Terminate] carries out. The functions are called from
// several goroutines, for different containers at once.
type Termination struct {
	// Plan is the order, from [PlanTermination].
	Plan TerminationPlan
	// Deadline is when the pod's grace period is over. It may be shortened
	// meanwhile. Required.
	Deadline *Deadline
	// Stop stops a container within grace, whole seconds, as a runtime's
	// StopContainer does; one that is gone is stopped. When the deadline moves
	// earlier it is called again for the same container, with less, beside the
	// call under way, whose ctx is then done; it must return soon after. An error
	// says that the container may run on. Required.
	Stop func(ctx context.Context, container string, grace time.Duration) error
	// PreStop runs a hook until it ends or ctx is done, at the latest at the
	// deadline. What comes of it is between it and its observers: the container
	// is stopped in any case. Default: hooks are not run.
	PreStop func(ctx context.Context, container string, hook *corev1.LifecycleHandler)
	// Exited returns a channel that is closed when the container has ended by
	// itself; nil if nobody tells. Its hook is cancelled then. Optional.
	Exited func(container string) <-chan struct{}
}

// ErrTermination says that a [Termination] cannot be carried out as it is.
var ErrTermination = errors.New("a termination needs a Deadline, Stop, and one step for each container")

// Terminate stops the containers of the plan in its order and returns when all
// have ended or could not be stopped; the errors are joined. A container waits for
// those before it until they have ended, could not be stopped, or the deadline is
// reached; then it is stopped in what is left, at least [MinimumStopGrace]. So the
// whole never asks for more than the time to the deadline and 2 s.
//
// A ctx that is done ends everything at once, with its error for each container
// that was not stopped yet. No goroutine outlives the call.
func Terminate(ctx context.Context, t Termination) error {
	if t.Deadline == nil || t.Stop == nil {
		return ErrTermination
	}
	ended := make(map[string]chan struct{}, len(t.Plan.Steps))
	for _, s := range t.Plan.Steps {
		ended[s.Container] = make(chan struct{})
	}
	if len(ended) < len(t.Plan.Steps) {
		return ErrTermination
	}
	errs := make([]error, len(t.Plan.Steps))
	var wg sync.WaitGroup
	for i, s := range t.Plan.Steps {
		wg.Go(func() {
			defer close(ended[s.Container]) // also for those who wait for one that failed
			if err := t.end(ctx, s, ended); err != nil {
				errs[i] = fmt.Errorf("stop container %s: %w", s.Container, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// end is one container's way: hook, wait, stop.
func (t Termination) end(ctx context.Context, s TerminationStep, ended map[string]chan struct{}) error {
	grace, cancel := t.Deadline.Context(ctx)
	defer cancel()
	var hook sync.WaitGroup
	defer hook.Wait()
	t.hook(grace, s, &hook)
	for _, name := range s.After {
		select {
		case <-ended[name]:
		case <-grace.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return t.stop(ctx, s.Container)
}

// hook runs the hook and returns when it has ended or its time is over. One that
// goes on regardless is joined by wg: the end of its container ends it.
func (t Termination) hook(ctx context.Context, s TerminationStep, wg *sync.WaitGroup) {
	if s.PreStop == nil || t.PreStop == nil || ctx.Err() != nil {
		return
	}
	var exited <-chan struct{}
	if t.Exited != nil {
		exited = t.Exited(s.Container)
	}
	ctx, cancel := until(ctx, exited)
	done := make(chan struct{})
	wg.Go(func() {
		defer cancel()
		defer close(done)
		t.PreStop(ctx, s.Container, s.PreStop)
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// stop stops the container, and asks again with less time whenever the deadline
// has moved so far that a runtime would kill it sooner.
func (t Termination) stop(ctx context.Context, container string) error {
	ctx, cancel := context.WithCancel(ctx)
	s := stopping{Termination: t, container: container, answers: make(chan stopAnswer)}
	defer s.calls.Wait()
	defer cancel() // of all calls
	for {
		_, changed := t.Deadline.State()
		s.ask(ctx)
		select {
		case a := <-s.answers:
			if a.err == nil || a.call == s.call {
				return a.err
			}
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stopping is one container on its way to being stopped.
type stopping struct {
	Termination
	container string
	answers   chan stopAnswer
	calls     sync.WaitGroup

	call      int       // the number of the last call, from 1
	killed    time.Time // when it has killed the container at the latest
	supersede context.CancelFunc
}

type stopAnswer struct {
	call int
	err  error
}

// ask calls Stop if that can end the container sooner than the last call.
func (s *stopping) ask(ctx context.Context) {
	now := s.Deadline.clock.Now()
	grace := StopGrace(s.Deadline.Remaining(now))
	if s.call > 0 {
		if !s.killed.After(now.Add(grace)) {
			return
		}
		s.supersede()
	}
	var once context.Context
	once, s.supersede = context.WithCancel(ctx)
	s.killed = now.Add(grace)
	s.call++
	call := s.call
	s.calls.Go(func() {
		err := s.Stop(once, s.container, grace)
		select {
		case s.answers <- stopAnswer{call, err}: // also of one that was superseded: it may have stopped the container
		case <-ctx.Done():
		}
	})
}

// until returns a context that is done when ended is closed, with
// [ErrContainerExited] as its cause. The goroutine behind it is gone when cancel
// has returned.
func until(parent context.Context, ended <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cause := context.WithCancelCause(parent)
	if ended == nil {
		return ctx, func() { cause(context.Canceled) }
	}
	select {
	case <-ended:
		cause(ErrContainerExited) // from the beginning
	default:
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-ended:
			cause(ErrContainerExited)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cause(context.Canceled)
		<-gone
	}
}
