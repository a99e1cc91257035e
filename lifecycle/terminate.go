package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Termination is the input of [Terminate]. Its functions are called from
// several goroutines, concurrently for different containers.
type Termination struct {
	// Plan is the order in which containers are stopped, from
	// [PlanTermination].
	Plan TerminationPlan
	// Deadline is the end of the pod's grace period. The caller may shorten it
	// during the termination. Required.
	Deadline *Deadline
	// Stop stops a container within grace, like a runtime's StopContainer. The
	// grace is in whole seconds. Stop returns nil for a container that does not
	// exist. When the deadline is moved to an earlier time, Stop may be called
	// again for the same container with a shorter grace. Terminate first
	// cancels the ctx of the previous call. The previous call must then return
	// soon. An error means that the container may still run. Required.
	Stop func(ctx context.Context, container string, grace time.Duration) error
	// PreStop runs a hook and returns when the hook has ended or ctx is done.
	// ctx is done at the deadline at the latest. The container is stopped
	// whether or not the hook has succeeded. Default: hooks are not run.
	PreStop func(ctx context.Context, container string, hook *corev1.LifecycleHandler)
	// Exited returns a channel that is closed when the container ends; the
	// container's hook is then cancelled. It returns nil if the end of the
	// container cannot be observed. Optional.
	Exited func(container string) <-chan struct{}
}

// ErrTermination means that a [Termination] is incomplete or inconsistent.
var ErrTermination = errors.New("a Termination needs Deadline, Stop, and exactly one step for each container")

// Terminate stops the containers of the plan in order. It returns when each
// container has ended or could not be stopped; the errors are joined. Before
// Terminate stops a container, it runs the container's preStop hook, and waits
// for the containers in the After list of the container's step. The wait ends
// when each of these containers has ended or could not be stopped, at the latest
// at the deadline. The container then has the time until the deadline to end, at
// least [MinimumStopGrace]. A termination that starts before the deadline
// therefore ends at most 2 s after the deadline.
//
// If ctx is done, Terminate cancels the running calls of PreStop and Stop, waits
// until they have returned, and returns ctx's error for each container that was
// not stopped yet. No goroutine outlives the call.
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
			defer close(ended[s.Container]) // also after a failure: other containers wait for this channel
			if err := t.terminate(ctx, s, ended); err != nil {
				errs[i] = fmt.Errorf("stop container %s: %w", s.Container, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// terminate runs the container's hook, waits for the containers in s.After, and
// stops the container.
func (t Termination) terminate(ctx context.Context, s TerminationStep, ended map[string]chan struct{}) error {
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

// hook runs the container's hook. It returns when PreStop has returned or when
// the ctx of PreStop is done. If PreStop is then still running, terminate first
// stops the container, and then waits with wg until PreStop has returned.
func (t Termination) hook(ctx context.Context, s TerminationStep, wg *sync.WaitGroup) {
	if s.PreStop == nil || t.PreStop == nil || ctx.Err() != nil {
		return
	}
	var exited <-chan struct{}
	if t.Exited != nil {
		exited = t.Exited(s.Container)
	}
	ctx, cancel := untilExited(ctx, exited)
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

// stop stops the container. If the deadline moves while Stop runs, and a new
// call would kill the container earlier, stop calls Stop again with a shorter
// grace.
func (t Termination) stop(ctx context.Context, container string) error {
	ctx, cancel := context.WithCancel(ctx)
	s := stopping{Termination: t, container: container, results: make(chan stopResult)}
	defer s.calls.Wait()
	defer cancel() // cancels all calls of Stop
	for {
		_, changed := t.Deadline.State()
		s.callStop(ctx)
		select {
		case a := <-s.results:
			if a.err == nil || a.call == s.call {
				return a.err
			}
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stopping is the state of one container that is being stopped.
type stopping struct {
	Termination
	container string
	results   chan stopResult
	calls     sync.WaitGroup

	call      int       // number of the last call, starting with 1
	killed    time.Time // latest time at which the last call kills the container
	supersede context.CancelFunc
}

type stopResult struct {
	call int
	err  error
}

// callStop calls Stop if the new call can end the container earlier than the
// previous call.
func (s *stopping) callStop(ctx context.Context) {
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
		case s.results <- stopResult{call, err}: // a superseded call too: it may have stopped the container
		case <-ctx.Done():
		}
	})
}

// untilExited returns a context that is also done when ended is closed.
// The cause of the context is then [ErrContainerExited]. When cancel has
// returned, the goroutine of untilExited has ended.
func untilExited(parent context.Context, ended <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cause := context.WithCancelCause(parent)
	if ended == nil {
		return ctx, func() { cause(context.Canceled) }
	}
	select {
	case <-ended:
		cause(ErrContainerExited) // immediately: the goroutine below may run too late
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
