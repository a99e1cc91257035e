package main

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/backoff"
	"github.com/kubeparts/kubeparts/podcache"
)

const (
	// removalsAtOnce bounds how many pods are removed at a time.
	removalsAtOnce = 8
	// A removal that failed is tried again after firstRemovalRetry, and then after twice as
	// long each time, up to lastRemovalRetry.
	firstRemovalRetry = 2 * time.Second
	lastRemovalRetry  = time.Minute
)

// removals removes what is left of stopped pods, each in a goroutine of its own:
// one that the runtime holds up delays nobody.
type removals struct {
	removed func() // is called after each that succeeded
	log     *slog.Logger
	slots   chan struct{}
	all     sync.WaitGroup

	mu     sync.Mutex
	going  map[types.UID]bool
	failed map[types.UID]failedRemoval // until they succeed or are forgotten
}

// failedRemoval is what is known of a pod that could not be removed.
type failedRemoval struct {
	pod      string // namespace and name, empty if they were never known
	attempts int
	delay    time.Duration
	until    time.Time
	cause    string // the last one
}

func newRemovals(removed func(), log *slog.Logger) *removals {
	return &removals{
		removed: removed, log: log, slots: make(chan struct{}, removalsAtOnce),
		going: map[types.UID]bool{}, failed: map[types.UID]failedRemoval{},
	}
}

// start calls remove for the pod, as soon as not too many others are at it. It
// never waits, and does nothing while the pod is being removed already or backs off
// after a failure.
func (r *removals) start(ctx context.Context, pod *podcache.Status, remove func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.going[pod.UID] || time.Now().Before(r.failed[pod.UID].until) {
		return
	}
	r.going[pod.UID] = true
	r.all.Go(func() {
		err := r.inTurn(ctx, remove)
		r.end(ctx, pod, err)
		if err == nil {
			r.removed()
		}
	})
}

func (r *removals) inTurn(ctx context.Context, remove func(context.Context) error) error {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.slots }()
	return remove(ctx)
}

// end records how an attempt ended. It logs a failure once for each cause, and the
// success after it.
func (r *removals) end(ctx context.Context, pod *podcache.Status, err error) {
	f, news := r.note(pod, err, ctx.Err() != nil)
	if !news {
		return
	}
	log := r.log.With("podUID", pod.UID)
	if f.pod != "" {
		log = log.With("pod", f.pod)
	}
	if err == nil {
		log.InfoContext(ctx, "removed a pod that could not be removed before", "attempts", f.attempts)
		return
	}
	log.ErrorContext(ctx, "could not remove a pod, it will be tried again", "retryIn", f.delay, "err", err)
}

// note returns what is known of the pod after one more attempt, and reports whether that
// is to be logged. An attempt that was interrupted changes nothing.
func (r *removals) note(pod *podcache.Status, err error, interrupted bool) (f failedRemoval, news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.going, pod.UID)
	f, hasFailed := r.failed[pod.UID]
	f.attempts++
	if err == nil {
		delete(r.failed, pod.UID)
		return f, hasFailed
	}
	if interrupted {
		return f, false
	}
	if pod.Name != "" {
		f.pod = pod.Namespace + "/" + pod.Name
	}
	f.delay = backoff.Next(f.delay, firstRemovalRetry, lastRemovalRetry)
	f.until = time.Now().Add(f.delay)
	news = f.cause != err.Error()
	f.cause = err.Error()
	r.failed[pod.UID] = f
	return f, news
}

// underWay says whether the pod is being removed. It can't come back until that
// is over: its log folder would be taken from under it.
func (r *removals) underWay(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.going[uid]
}

// unfinished returns the pods that could not be removed yet.
func (r *removals) unfinished() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.failed))
}

// forget drops what is known of a pod that is not to be removed any more.
func (r *removals) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failed, uid)
}

// hurry ends the back-off of all pods, and has the next failure of each logged.
func (r *removals) hurry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, f := range r.failed {
		r.failed[uid] = failedRemoval{pod: f.pod, attempts: f.attempts}
	}
}

// wait returns when no removal is under way.
func (r *removals) wait() { r.all.Wait() }
