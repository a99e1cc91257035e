package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/internal/backoff"
)

var (
	// ErrGone is returned by a [Sink] if the pod no longer exists.
	ErrGone = errors.New("the pod does not exist any more")
	// ErrTerminalPhaseDeferred is returned by a [Sink] that has published a status without its terminal
	// phase, because the pod may still have running containers.
	ErrTerminalPhaseDeferred = errors.New("terminal phase not published yet: the pod may still have running containers")
	// ErrCorrectionDeferred is returned by a [Sink] that has published nothing, because another client
	// changes the status again and again, and the last correction was only a moment ago.
	ErrCorrectionDeferred = errors.New("status not published yet: another client changed it again soon after the agent had corrected it")
	// ErrRunning is returned by [Publisher.Run] if another Run is in progress.
	ErrRunning = errors.New("the status publisher is already running")
)

// Sink receives the statuses that the node reports. [APIServer] and [Saved] are sinks, and
// [SinkFunc] turns a function into a Sink.
type Sink interface {
	// Publish publishes change.New before it returns. The Publisher calls Publish for one change
	// of a pod at a time, always the newest change. It skips intermediate changes, and may publish
	// the same change again. Publish must not modify the objects that change points to. After
	// ErrGone the Publisher no longer publishes the pod; after any other error it retries the
	// publication.
	Publish(ctx context.Context, change Change) error
	// Forget deletes the sink's state of a pod. The Publisher does not call it while Publish runs
	// for the same pod.
	Forget(uid types.UID)
}

// SinkFunc is an adapter that makes a function a [Sink]. Its Forget does nothing.
type SinkFunc func(ctx context.Context, change Change) error

// Publish calls f.
func (f SinkFunc) Publish(ctx context.Context, change Change) error { return f(ctx, change) }

// Forget does nothing.
func (f SinkFunc) Forget(types.UID) {}

// PublisherConfig configures a [Publisher].
type PublisherConfig struct {
	// Statuses is the manager whose statuses are published. Required.
	Statuses *Manager
	// Sink receives the statuses. Required.
	Sink Sink
	// Workers is the maximum number of pods that each call of Run, Sync and Flush
	// publishes concurrently. Default 8.
	Workers int
	// Timeout limits one publication. Default 30s.
	Timeout time.Duration
	// MinBackoff is the back-off after the first failed publication of a pod. The back-off
	// doubles with each further failure, up to MaxBackoff. The Publisher shortens each wait by a
	// random part of up to a half. If the API server sends a Retry-After, the Publisher waits at
	// least that time and at least the full back-off. Default 500ms and 30s.
	MinBackoff, MaxBackoff time.Duration
	// Reconcile is the time between two passes in which Run publishes the status of every pod to
	// the sink again. This corrects changes by other writers even if the caller does not call
	// Trigger. The kubelet's period is 10s. A pass calls Publish of the sink for each pod; an
	// [APIServer] then sends a request only if the status of the last known object differs.
	// Default 0: never.
	Reconcile time.Duration
	// Clock is the time source. Default the system clock. Timeout always uses the system clock.
	Clock clock.Clock
	// Random returns random numbers in [0, 1). Default: rand.Float64 of math/rand/v2.
	Random func() float64
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives callbacks about publications. Optional.
	Observer PublisherObserver
}

// PublisherObserver contains optional callbacks. They may be called concurrently and must
// not block.
type PublisherObserver struct {
	// Published is called after a publication that succeeded or returned ErrGone.
	Published func(Publication)
	// Failed is called after a failed publication. The Publisher retries the publication after
	// retryIn.
	Failed func(pod *corev1.Pod, err error, retryIn time.Duration)
	// Queue is called with the number of queued pods whenever it has changed.
	// Calls may be out of order.
	Queue func(depth int)
}

// Publication is one publication of a status.
type Publication struct {
	// Pod is the pod and Version the version of its status.
	Pod     *corev1.Pod
	Version uint64
	// Priority is the priority that the publication had in the queue.
	Priority Priority
	// Latency is the time from the first unpublished change of the pod until now:
	// the kubelet's pod_status_sync_duration_seconds, measured per version
	// (kubernetes#107896).
	Latency time.Duration
	// Repeated means that the sink had already published this version, and was called again to
	// correct changes by other writers. Latency is then not the latency of a change.
	Repeated bool
	// Gone means that the pod no longer exists in the sink.
	Gone bool
}

// Validate reports every problem with c, joined.
func (c PublisherConfig) Validate() error {
	var errs []error
	if c.Statuses == nil {
		errs = append(errs, errors.New("field Statuses is required"))
	}
	if c.Sink == nil {
		errs = append(errs, errors.New("field Sink is required"))
	}
	if c.Workers < 0 {
		errs = append(errs, fmt.Errorf("field Workers: %d is negative", c.Workers))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Timeout", c.Timeout}, {"MinBackoff", c.MinBackoff}, {"MaxBackoff", c.MaxBackoff}, {"Reconcile", c.Reconcile}} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("field %s: %v is negative", d.name, d.value))
		}
	}
	if c = c.withDefaults(); c.MinBackoff > c.MaxBackoff {
		errs = append(errs, fmt.Errorf("field MinBackoff: %v is more than MaxBackoff, %v", c.MinBackoff, c.MaxBackoff))
	}
	return errors.Join(errs...)
}

func (c PublisherConfig) withDefaults() PublisherConfig {
	c.Workers = cmp.Or(c.Workers, 8)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.MinBackoff = cmp.Or(c.MinBackoff, 500*time.Millisecond)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, 30*time.Second)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observer.Published == nil {
		c.Observer.Published = func(Publication) {}
	}
	if c.Observer.Failed == nil {
		c.Observer.Failed = func(*corev1.Pod, error, time.Duration) {}
	}
	if c.Observer.Queue == nil {
		c.Observer.Queue = func(int) {}
	}
	return c
}

// Publisher publishes the newest status of each pod from a [Manager] to a [Sink]. It publishes
// several pods concurrently, but runs only one publication of each pod at a time. Create it with
// [NewPublisher]. Its methods are safe for concurrent use.
//
// Pods that are deleted or have ended have the highest priority. Of all other pods, the pod
// that has waited longest is published first. A pod whose readiness has changed is sorted as if
// it had waited five seconds longer. Memory is limited by the number of pods.
type Publisher struct {
	cfg     PublisherConfig
	queue   *queue
	running atomic.Bool
}

// NewPublisher returns a publisher that has subscribed to cfg.Statuses; the subscription
// cannot be cancelled. It publishes nothing until [Publisher.Run], [Publisher.Sync] or
// [Publisher.Flush] is called.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("status: invalid publisher config: %w", err)
	}
	cfg = cfg.withDefaults()
	p := &Publisher{cfg: cfg, queue: newQueue(cfg.Observer.Queue)}
	cfg.Statuses.Subscribe(Observer{
		StatusChanged: func(c Change) { p.queue.add(c, cfg.Clock.Now()) },
		StatusRemoved: func(uid types.UID) {
			if p.queue.remove(uid) {
				cfg.Sink.Forget(uid)
			}
		},
	})
	return p, nil
}

// Run publishes until ctx is done. It returns nil when the publications in progress have
// ended, or [ErrRunning] if another Run is in progress.
func (p *Publisher) Run(ctx context.Context) error {
	if !p.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer p.running.Store(false)
	var wg sync.WaitGroup
	defer wg.Wait()
	if p.cfg.Reconcile > 0 {
		wg.Go(func() { p.reconcile(ctx) })
	}
	p.work(ctx, func(*record) bool { return true }, func() bool { return false })
	return nil
}

// reconcile requests a publication of every pod once per Reconcile period.
func (p *Publisher) reconcile(ctx context.Context) {
	for {
		p.sleep(ctx, nil, p.cfg.Reconcile)
		if ctx.Err() != nil {
			return
		}
		p.queue.requestAll(p.cfg.Statuses.entries(), p.cfg.Clock.Now())
	}
}

// Sync does one pass: it publishes every queued pod once, except pods that wait after a
// failed or deferred publication. It returns the errors of failed and deferred publications,
// joined.
func (p *Publisher) Sync(ctx context.Context) error {
	var (
		now   = p.cfg.Clock.Now()
		todo  = p.queue.pending()
		want  = func(r *record) bool { return r.sent < todo[r.change.Pod.UID] }
		wg    sync.WaitGroup
		mu    sync.Mutex
		errs  []error
		slots = make(chan struct{}, p.cfg.Workers)
	)
	for {
		slots <- struct{}{}
		j, _ := p.queue.next(now, want)
		if j == nil {
			break
		}
		delete(todo, j.uid())
		wg.Go(func() {
			defer func() { <-slots }()
			if err := p.publish(ctx, j); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Flush publishes all statuses that were set before the call, and returns when they are
// published. A pod that no longer exists in the sink counts as published. If ctx is done first,
// Flush returns an error. Flush publishes only the pods of these statuses, so it waits for no
// other pod. It may be called while Run is running. An agent calls Flush before it exits.
func (p *Publisher) Flush(ctx context.Context) error {
	todo := p.queue.pending()
	want := func(r *record) bool { return r.sent < todo[r.change.Pod.UID] }
	p.work(ctx, want, func() bool { return p.queue.unserved(todo) == 0 })
	if n := p.queue.unserved(todo); n > 0 {
		return fmt.Errorf("status: %d of %d pods not published: %w", n, len(todo), context.Cause(ctx))
	}
	return nil
}

// Trigger requests another publication of a pod's status, with the last pod that was passed to
// [Manager.SetPodStatus]. Call it when the sink's status may differ from the status that was
// published last: after [APIServer.RecordObject], or when a mirror pod was created. It also
// resumes the publication of a pod after [ErrGone].
func (p *Publisher) Trigger(uid types.UID) {
	uid = p.cfg.Statuses.cfg.TranslateUID(uid)
	p.queue.requestAgain(uid, p.cfg.Statuses.entry(uid), p.cfg.Clock.Now())
}

// work publishes the due pods for which the first function returns true, on up to Workers
// goroutines, until the second function returns true or ctx is done.
func (p *Publisher) work(ctx context.Context, want func(*record) bool, over func() bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, p.cfg.Workers)
	for ctx.Err() == nil {
		changed := p.queue.changes()
		if over() {
			return
		}
		// Wait for a free worker before choosing a pod: an urgent pod may be queued in the meantime.
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		j, wait := p.queue.next(p.cfg.Clock.Now(), want)
		if j == nil {
			<-slots
			p.sleep(ctx, changed, wait)
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := p.publish(ctx, j); err != nil && ctx.Err() == nil && !isDeferred(err) {
				p.cfg.Logger.WarnContext(ctx, "publication of a pod status failed, will retry", "podUID", j.uid(), "err", err)
			}
		})
	}
}

// sleep waits until woken is closed or ctx is done. If the duration wait is not negative,
// sleep returns after this duration at the latest.
func (p *Publisher) sleep(ctx context.Context, woken <-chan struct{}, wait time.Duration) {
	var due <-chan time.Time
	if wait >= 0 {
		timer := p.cfg.Clock.NewTimer(wait)
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-woken:
	case <-due:
	}
}

// publish publishes one pod, and queues the pod again if the publication failed.
func (p *Publisher) publish(ctx context.Context, j *job) error {
	call, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	err := p.cfg.Sink.Publish(call, j.change)
	now, pod := p.cfg.Clock.Now(), j.change.Pod
	o := outcome{sent: err == nil, gone: errors.Is(err, ErrGone)}
	switch {
	case o.sent || o.gone: // call the observer before queue.finish, so that a Flush that waits for this pod returns after the observer has returned
		p.cfg.Observer.Published(Publication{
			Pod: pod, Version: j.change.Version, Priority: j.priority, Latency: now.Sub(j.since),
			Repeated: j.version == j.change.Version, Gone: o.gone,
		})
	case ctx.Err() != nil:
		o.failures = j.failures + 1 // no back-off, so that another call of Run, Sync or Flush publishes the pod
	case isDeferred(err):
		o.notBefore = now.Add(p.cfg.MinBackoff)
	default:
		wait := p.backoff(j.failures, err)
		o.failures, o.notBefore = j.failures+1, now.Add(wait)
		p.cfg.Observer.Failed(pod, err, wait)
	}
	if p.queue.finish(j, o) {
		p.cfg.Sink.Forget(pod.UID)
		p.queue.finishForgotten(j)
	}
	if err != nil && !o.gone {
		return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// isDeferred reports whether a sink has deferred the publication. A deferral is not a
// failure.
func isDeferred(err error) bool {
	return errors.Is(err, ErrTerminalPhaseDeferred) || errors.Is(err, ErrCorrectionDeferred)
}

// backoff returns how long to wait after a failure with err. The first argument is the
// number of consecutive failures that came before this failure.
func (p *Publisher) backoff(before int, err error) time.Duration {
	wait := backoff.After(before, p.cfg.MinBackoff, p.cfg.MaxBackoff)
	spread := time.Duration(p.cfg.Random() * float64(wait/2))
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		return max(time.Duration(seconds)*time.Second+spread, wait)
	}
	return wait - spread
}
