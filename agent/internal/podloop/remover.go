package podloop

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/internal/backoff"
)

const (
	// removalsAtOnce bounds how many pods are removed at a time.
	removalsAtOnce = 8
	// A removal that failed is repeated after firstRemovalRetry, and then after twice as long
	// each time, up to lastRemovalRetry.
	firstRemovalRetry = 2 * time.Second
	lastRemovalRetry  = time.Minute
)

// remover removes what is left of pods that have ended. It is the only part that does. Each pod
// has a goroutine of its own until nothing is left of it, so a pod that can't be removed delays
// no other.
type remover struct {
	// remove removes all that is left of a pod, and removed is called after that.
	remove  func(context.Context, types.UID) error
	removed func(types.UID)
	name    func(types.UID) string // namespace and name of a pod, empty if unknown
	clock   clock.Clock
	log     *slog.Logger
	slots   chan struct{}
	all     sync.WaitGroup

	mu     sync.Mutex
	hurry  chan struct{} // closed and replaced to end all waits
	urgent int           // counts the calls of hurryUp
}

func newRemover(c clock.Clock, log *slog.Logger) *remover {
	return &remover{clock: c, log: log, slots: make(chan struct{}, removalsAtOnce), hurry: make(chan struct{})}
}

// start removes a pod, until that has succeeded or ctx is done. It never waits. It is called
// once for each pod.
func (r *remover) start(ctx context.Context, uid types.UID) {
	r.all.Go(func() {
		if r.persist(ctx, uid) {
			r.removed(uid)
		}
	})
}

// persist repeats the removal until it has succeeded, and reports that. It logs a failure once
// for each cause, and the success after one.
func (r *remover) persist(ctx context.Context, uid types.UID) bool {
	log := r.log.With("podUID", uid)
	if name := r.name(uid); name != "" {
		log = log.With("pod", name)
	}
	var delay time.Duration
	cause, urgent := "", 0
	for attempts := 1; ; attempts++ {
		hurry, calls := r.hurried()
		if calls > urgent { // begin anew, also with what is logged
			delay, cause, urgent = 0, "", calls
		}
		err := r.inTurn(ctx, uid)
		if err == nil {
			if attempts > 1 {
				log.InfoContext(ctx, "removed a pod that could not be removed before", "attempts", attempts)
			}
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		delay = backoff.Next(delay, firstRemovalRetry, lastRemovalRetry)
		if cause != err.Error() {
			cause = err.Error()
			log.ErrorContext(ctx, "could not remove a pod, will retry", "retryIn", delay, "err", err)
		}
		if !r.wait(ctx, hurry, delay) {
			return false
		}
	}
}

// inTurn removes the pod as soon as not too many others are being removed.
func (r *remover) inTurn(ctx context.Context, uid types.UID) error {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.slots }()
	return r.remove(ctx, uid)
}

// wait waits for a time, or less in a hurry. It returns false when ctx is done.
func (r *remover) wait(ctx context.Context, hurry <-chan struct{}, d time.Duration) bool {
	timer := r.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-hurry:
	case <-ctx.Done():
		return false
	}
	return true
}

func (r *remover) hurried() (<-chan struct{}, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hurry, r.urgent
}

// hurryUp has the removals that wait after a failure repeated at once.
func (r *remover) hurryUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.hurry)
	r.hurry = make(chan struct{})
	r.urgent++
}

// join returns when no removal is under way.
func (r *remover) join() { r.all.Wait() }
