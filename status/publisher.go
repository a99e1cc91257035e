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
	// ErrGone is what a [Sink] returns for a pod that is not there any more and will
	// not come back.
	ErrGone = errors.New("the pod is gone")
	// ErrHeld is what a [Sink] returns if it took all of a status but the pod's end,
	// because the pod may still have running containers.
	ErrHeld = errors.New("the pod's end is held back while it may have running containers")
	// ErrRunning is what a second [Publisher.Run] beside the first returns.
	ErrRunning = errors.New("already running")
)

// Sink takes what the node says of its pods. [APIServer] and [Saved] are two, and
// any function can be one.
type Sink interface {
	// Publish makes change.New known, and returns when it is. It is called for one
	// change of a pod at a time, the newest, and not for those in between; the same
	// one may come again. It must not modify what change points to. ErrGone ends
	// publication for the pod, any other error leads to another try.
	Publish(ctx context.Context, change Change) error
	// Forget drops what is known of a pod. It is not called during Publish for it.
	Forget(uid types.UID)
}

// SinkFunc is a [Sink] that is just its Publish.
type SinkFunc func(ctx context.Context, change Change) error

// Publish calls f.
func (f SinkFunc) Publish(ctx context.Context, change Change) error { return f(ctx, change) }

// Forget does nothing.
func (f SinkFunc) Forget(types.UID) {}

// PublisherConfig configures a [Publisher].
type PublisherConfig struct {
	// Statuses is where the statuses are from. Required.
	Statuses *Manager
	// Sink is where they go. Required.
	Sink Sink
	// Workers is how many pods each call of Run, Sync and Flush publishes at a time.
	// Default 8.
	Workers int
	// Timeout bounds one publication. Default 30s.
	Timeout time.Duration
	// After a failed publication a pod waits for MinBackoff, then for twice as long each
	// time, up to MaxBackoff, less a random part of up to a half. A Retry-After of the
	// API server may be longer. Default 500ms and 30s.
	MinBackoff, MaxBackoff time.Duration
	// Reconcile is how often Run publishes every pod again that the sink has, which
	// puts right what others have changed where nobody calls Trigger; the kubelet does
	// so every 10s. An [APIServer] compares and calls only if there is a difference;
	// other sinks are called for each pod. Default 0: never.
	Reconcile time.Duration
	// Clock is the time source. Default the system clock. Timeouts are real time.
	Clock clock.Clock
	// Random returns a number in [0, 1). Default math/rand/v2's.
	Random func() float64
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives what happens. Optional.
	Observer PublisherObserver
}

// PublisherObserver holds optional callbacks. Several may run at once. They must
// not block.
type PublisherObserver struct {
	// Published is called after a sink has taken a status.
	Published func(Publication)
	// Failed is called after a publication that will be tried again in retryIn.
	Failed func(pod *corev1.Pod, err error, retryIn time.Duration)
	// Queue is called with the number of pods that wait, whenever it has changed.
	// Calls may be out of order.
	Queue func(depth int)
}

// Publication is one status that a sink has taken.
type Publication struct {
	// Pod is the pod and Version that of its status.
	Pod     *corev1.Pod
	Version uint64
	// Priority is how it was treated.
	Priority Priority
	// Latency is the time from the first change that the sink did not know to now:
	// the kubelet's pod_status_sync_duration_seconds, measured per version
	// (kubernetes#107896).
	Latency time.Duration
	// Again says that the sink had taken this very version before, and was called to
	// put right what others may have changed: Latency is then no pod's.
	Again bool
	// Gone says that the sink does not have the pod any more.
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

// Publisher brings what a [Manager] says to a [Sink]: the newest status of each
// pod, one publication of a pod at a time, several pods side by side. Make it with
// [NewPublisher]; its methods are safe for concurrent use.
//
// Pods that are deleted or have ended go first, then those whose readiness has
// changed, then the rest; nothing but the first waits for more than its turn by
// age. Memory is bounded by the number of pods.
type Publisher struct {
	cfg     PublisherConfig
	queue   *queue
	running atomic.Bool
}

// NewPublisher returns a publisher that has subscribed to cfg.Statuses, for good,
// and publishes nothing until [Publisher.Run], [Publisher.Sync] or
// [Publisher.Flush].
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("status: invalid publisher config: %w", err)
	}
	cfg = cfg.withDefaults()
	p := &Publisher{cfg: cfg, queue: newQueue(cfg.Observer.Queue)}
	cfg.Statuses.Subscribe(Observer{
		StatusChanged: func(c Change) { p.queue.put(c, cfg.Clock.Now()) },
		StatusRemoved: func(uid types.UID) {
			if p.queue.drop(uid) {
				cfg.Sink.Forget(uid)
			}
		},
	})
	return p, nil
}

// Run publishes until ctx is done and then returns nil, when the calls under way
// have returned.
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

// reconcile asks for every pod again, time and again.
func (p *Publisher) reconcile(ctx context.Context) {
	for {
		p.sleep(ctx, nil, p.cfg.Reconcile)
		if ctx.Err() != nil {
			return
		}
		p.queue.repeat(p.cfg.Statuses.entries(), p.cfg.Clock.Now())
	}
}

// Sync is one pass: it publishes every pod that waits for it now and does not have
// to wait longer after a failure, each once. It returns the failures, joined.
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
		j, _ := p.queue.take(now, want)
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

// Flush returns when everything that was said before the call is published, or
// gone from the sink, or ctx is done; then it returns an error. Whether Run runs
// does not matter. It publishes these pods and no others, for whose calls it would
// have to wait. A node that shuts down calls it before it lets go.
func (p *Publisher) Flush(ctx context.Context) error {
	todo := p.queue.pending()
	want := func(r *record) bool { return r.sent < todo[r.change.Pod.UID] }
	p.work(ctx, want, func() bool { return p.queue.unmet(todo) == 0 })
	if n := p.queue.unmet(todo); n > 0 {
		return fmt.Errorf("status: %d of %d pods not published: %w", n, len(todo), context.Cause(ctx))
	}
	return nil
}

// Trigger publishes a pod's status again, with the pod as [Manager.SetPodStatus] last
// had it, because the sink may show another one: after [APIServer.Seen], or when a
// mirror pod has appeared. It also revives a pod
// that the sink had called gone.
func (p *Publisher) Trigger(uid types.UID) {
	uid = p.cfg.Statuses.cfg.TranslateUID(uid)
	p.queue.again(uid, p.cfg.Statuses.entry(uid), p.cfg.Clock.Now())
}

// work publishes what is due of the pods that want returns true for, as many at a time
// as there are workers, until over returns true or ctx is done.
func (p *Publisher) work(ctx context.Context, want func(*record) bool, over func() bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, p.cfg.Workers)
	for ctx.Err() == nil {
		changed := p.queue.listen()
		if over() {
			return
		}
		// First a free worker, then the choice: what is urgent may come in between.
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		j, wait := p.queue.take(p.cfg.Clock.Now(), want)
		if j == nil {
			<-slots
			p.sleep(ctx, changed, wait)
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := p.publish(ctx, j); err != nil && ctx.Err() == nil && !errors.Is(err, ErrHeld) {
				p.cfg.Logger.WarnContext(ctx, "pod status not published", "podUID", j.uid(), "err", err)
			}
		})
	}
}

// sleep waits until woken, and at most for wait unless that is negative.
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

// publish publishes one pod and puts it back in the queue if need be.
func (p *Publisher) publish(ctx context.Context, j *job) error {
	call, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	err := p.cfg.Sink.Publish(call, j.change)
	now, pod := p.cfg.Clock.Now(), j.change.Pod
	o := outcome{sent: err == nil, gone: errors.Is(err, ErrGone)}
	switch {
	case o.sent || o.gone: // told before a Flush that waits for it returns
		p.cfg.Observer.Published(Publication{
			Pod: pod, Version: j.change.Version, Priority: j.priority, Latency: now.Sub(j.since),
			Again: j.version == j.change.Version, Gone: o.gone,
		})
	case ctx.Err() != nil:
		o.failures = j.failures + 1 // another call may try at once
	case errors.Is(err, ErrHeld):
		o.notBefore = now.Add(p.cfg.MinBackoff)
	default:
		wait := p.backoff(j.failures, err)
		o.failures, o.notBefore = j.failures+1, now.Add(wait)
		p.cfg.Observer.Failed(pod, err, wait)
	}
	if p.queue.done(j, o) {
		p.cfg.Sink.Forget(pod.UID)
		p.queue.forgotten(j)
	}
	if err != nil && !o.gone {
		return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// backoff returns how long to wait after one more failure than before in a row.
func (p *Publisher) backoff(before int, err error) time.Duration {
	wait := backoff.After(before, p.cfg.MinBackoff, p.cfg.MaxBackoff)
	spread := time.Duration(p.cfg.Random() * float64(wait/2))
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		return max(time.Duration(seconds)*time.Second+spread, wait)
	}
	return wait - spread
}
