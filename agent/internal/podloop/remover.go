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
	// removalsAtOnce is the maximum number of concurrent removals.
	removalsAtOnce = 8
	// A failed removal is retried after firstRemovalRetry; the delay doubles up to
	// lastRemovalRetry.
	firstRemovalRetry = 2 * time.Second
	lastRemovalRetry  = time.Minute
)

// remover removes the data of ended pods. No other part does. Each pod has its own goroutine
// until it is completely removed, so a pod that can't be removed delays no other.
type remover struct {
	// remove removes all remaining data of a pod, and removed is called after that.
	remove  func(context.Context, types.UID) error
	removed func(types.UID)
	name    func(types.UID) string // namespace/name of a pod, empty if unknown
	clock   clock.Clock
	log     *slog.Logger
	slots   chan struct{}
	all     sync.WaitGroup

	mu         sync.Mutex
	retryNow   chan struct{} // closed and replaced to end all retry delays
	retryCalls int           // number of calls of retryAllNow
}

func newRemover(c clock.Clock, log *slog.Logger) *remover {
	return &remover{clock: c, log: log, slots: make(chan struct{}, removalsAtOnce), retryNow: make(chan struct{})}
}

// start removes a pod and retries until that has succeeded or ctx is done. It never waits. It
// must be called once for each pod.
func (r *remover) start(ctx context.Context, uid types.UID) {
	r.all.Go(func() {
		if r.removeWithRetry(ctx, uid) {
			r.removed(uid)
		}
	})
}

// removeWithRetry repeats the removal until it has succeeded or ctx is done, and reports
// whether it has succeeded. It logs each cause of failure once, and the success after a
// failure.
func (r *remover) removeWithRetry(ctx context.Context, uid types.UID) bool {
	log := r.log.With("podUID", uid)
	if name := r.name(uid); name != "" {
		log = log.With("pod", name)
	}
	var delay time.Duration
	cause, retryCalls := "", 0
	for attempts := 1; ; attempts++ {
		retryNow, calls := r.retryState()
		if calls > retryCalls { // start over with delay and logging
			delay, cause, retryCalls = 0, "", calls
		}
		err := r.removeOnce(ctx, uid)
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
		if !r.wait(ctx, retryNow, delay) {
			return false
		}
	}
}

// removeOnce tries one removal, as soon as fewer than removalsAtOnce others are running.
func (r *remover) removeOnce(ctx context.Context, uid types.UID) error {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.slots }()
	return r.remove(ctx, uid)
}

// wait waits for d, or until retryNow is closed. It returns false when ctx is done.
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

// retryAllNow retries all failed removals at once.
func (r *remover) retryAllNow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.retryNow)
	r.retryNow = make(chan struct{})
	r.retryCalls++
}

// join returns when no removal is running.
func (r *remover) join() { r.all.Wait() }
