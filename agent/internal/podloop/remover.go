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
	// maxConcurrentRemovals is the maximum number of concurrent removals.
	maxConcurrentRemovals = 8
	// A failed removal is retried after minRemovalBackoff. The delay doubles with each further
	// failure, up to maxRemovalBackoff.
	minRemovalBackoff = 2 * time.Second
	maxRemovalBackoff = time.Minute
)

// remover removes all data of the ended pods for which [record.leaving] returns true. Garbage
// collection skips these pods. Each pod has its own goroutine until the pod is completely removed,
// so the retry delay of one pod does not delay other pods.
type remover struct {
	// remove removes all remaining data of a pod. If remove succeeds, the remover calls the function
	// in the field removed.
	remove  func(context.Context, types.UID) error
	removed func(types.UID)
	name    func(types.UID) string // namespace/name of a pod, empty if unknown
	clock   clock.Clock
	log     *slog.Logger
	slots   chan struct{}
	// goroutines counts the removals that run or wait for a retry.
	goroutines sync.WaitGroup

	mu         sync.Mutex
	retryNow   chan struct{} // closed and replaced to end all retry delays
	retryCalls int           // number of calls of retryAllNow
}

func newRemover(c clock.Clock, log *slog.Logger) *remover {
	return &remover{clock: c, log: log, slots: make(chan struct{}, maxConcurrentRemovals), retryNow: make(chan struct{})}
}

// start starts the removal of a pod and returns at once. The removal is retried until it succeeds
// or ctx is done. Call start again for a pod only after its removal has succeeded.
func (r *remover) start(ctx context.Context, uid types.UID) {
	r.goroutines.Go(func() {
		if r.removeWithRetry(ctx, uid) {
			r.removed(uid)
		}
	})
}

// removeWithRetry repeats the removal until it succeeds or ctx is done, and reports whether the
// removal has succeeded. It logs a failure if the error differs from the error of the previous
// failure. It also logs a success after failures.
func (r *remover) removeWithRetry(ctx context.Context, uid types.UID) bool {
	log := r.log.With("podUID", uid)
	if name := r.name(uid); name != "" {
		log = log.With("pod", name)
	}
	var delay time.Duration
	cause, retryCalls := "", 0
	for attempts := 1; ; attempts++ {
		retryNow, calls := r.retryState()
		if calls > retryCalls { // retryAllNow was called: reset the delay, and log the next failure
			delay, cause, retryCalls = 0, "", calls
		}
		err := r.removeOnce(ctx, uid)
		if err == nil {
			if attempts > 1 {
				log.InfoContext(ctx, "removed the data of an ended pod after failed attempts", "attempts", attempts)
			}
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		delay = backoff.Next(delay, minRemovalBackoff, maxRemovalBackoff)
		if cause != err.Error() {
			cause = err.Error()
			log.ErrorContext(ctx, "could not remove the data of an ended pod, will retry", "retryIn", delay, "err", err)
		}
		if !r.wait(ctx, retryNow, delay) {
			return false
		}
	}
}

// removeOnce waits until fewer than maxConcurrentRemovals removals are running. It then tries
// the removal once.
func (r *remover) removeOnce(ctx context.Context, uid types.UID) error {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.slots }()
	return r.remove(ctx, uid)
}

// wait waits for d, or until retryNow is closed. It returns false if ctx is done before that.
func (r *remover) wait(ctx context.Context, retryNow <-chan struct{}, d time.Duration) bool {
	timer := r.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-retryNow:
	case <-ctx.Done():
		return false
	}
	return true
}

// retryState returns the channel that ends retry delays, and the number of calls of retryAllNow.
func (r *remover) retryState() (<-chan struct{}, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.retryNow, r.retryCalls
}

// retryAllNow ends the retry delays of all failed removals.
func (r *remover) retryAllNow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.retryNow)
	r.retryNow = make(chan struct{})
	r.retryCalls++
}

// join waits until all removals have succeeded or stopped.
func (r *remover) join() { r.goroutines.Wait() }
