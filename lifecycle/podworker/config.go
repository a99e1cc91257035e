package podworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/podcache"
)

// Cache is what the runtime says about pods. [podcache.Cache] is one.
type Cache interface {
	// Get returns what is known of the pod now, without waiting.
	Get(uid types.UID) (*podcache.Status, error)
	// Known reports whether the runtime was asked about the pod. Until then the
	// pod may run, whatever Get returns.
	Known(uid types.UID) bool
	// GetNewerThan waits until what is known of the pod is at least as new as t,
	// or ctx is done.
	GetNewerThan(ctx context.Context, uid types.UID, t time.Time) (*podcache.Status, error)
}

// Config configures [Workers].
type Config struct {
	// Syncer does the work. Required.
	Syncer Syncer
	// Cache says what the runtime knows of a pod. Required.
	Cache Cache
	// AfterSync is called after a turn that may have changed something in the runtime:
	// the pod became Terminating or Terminated by it, it was cut short, or its Syncer
	// called [Turn.Acted]. What the cache holds of the pod is out of date then, and the
	// next turn needs it newer. It is not called if the Syncer has called
	// [Turn.Refreshed]. It must not block. Optional.
	AfterSync func(uid types.UID)

	// ResyncPeriod is the time between two turns of a pod that is well. Up to
	// half of it is added at random. Default 1 m.
	ResyncPeriod time.Duration
	// BackoffPeriod is the time before a turn that failed is repeated, unless its
	// error says more: see [RetryError]. Up to half of it is added at random.
	// Default 10 s.
	BackoffPeriod time.Duration
	// TransientPeriod is the time before a turn is repeated that failed with a
	// [TransientError]. Up to half of it is added at random. Default 1 s.
	TransientPeriod time.Duration
	// FreshTimeout is how long the turn of a pod that ends waits for a status
	// that is new enough. After that it takes the last one, marked Stale: a
	// runtime that cannot be asked must not keep a pod from being killed. A pod
	// that is kept running has no such bound, because starting containers from
	// an old status makes them twice. Default 5 s.
	FreshTimeout time.Duration

	// Jitter returns random numbers from 0 up to 1, to any number of goroutines.
	// Default math/rand/v2.
	Jitter func() float64
	// Clock is the time source; the Cache must count on the same one. Default the
	// system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and tests. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They run on the goroutine of the turn or of
// the caller, for many pods at once, without a lock; a slow one delays that pod.
type Observer struct {
	// TurnEnd is called after every call of the Syncer, and after a turn that
	// could not make one.
	TurnEnd func(TurnInfo)
	// Moved is called when a pod has reached another phase, which it never
	// leaves backwards: for one pod in order and one at a time, by any of the
	// goroutines that have moved it.
	Moved func(uid types.UID, pod *corev1.Pod, phase Phase)
	// Ignored is called for an update that was not taken.
	Ignored func(u Update, reason string)
	// Restarted is called when a pod has ended that was asked for again meanwhile,
	// with the spec that has ended: the one of its UID that follows is another life of
	// it. It is the kubelet's restarted_pods_total.
	Restarted func(pod *corev1.Pod)
}

// TurnInfo describes a turn that has ended.
type TurnInfo struct {
	// UID names the pod.
	UID types.UID
	// Pod is its spec, nil if only the runtime knows it.
	Pod *corev1.Pod
	// Type is why there was a turn. First says that it was the pod's first, of
	// which Type need not be [Create] if there was another update meanwhile.
	Type  UpdateType
	First bool
	// Phase is the one that the pod was in when the turn began.
	Phase Phase
	// Waited is how long it took until a status was new enough, Duration how
	// long the Syncer took.
	Waited, Duration time.Duration
	// Stale says that the status was not new enough.
	Stale bool
	// Err is what the Syncer returned, or why it was not called.
	Err error
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	if c.Syncer == nil {
		errs = append(errs, errors.New("field Syncer is required"))
	}
	if c.Cache == nil {
		errs = append(errs, errors.New("field Cache is required"))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"ResyncPeriod", c.ResyncPeriod},
		{"BackoffPeriod", c.BackoffPeriod},
		{"TransientPeriod", c.TransientPeriod},
		{"FreshTimeout", c.FreshTimeout},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("field %s: %v is negative", d.name, d.value))
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&c.ResyncPeriod, time.Minute},
		{&c.BackoffPeriod, 10 * time.Second},
		{&c.TransientPeriod, time.Second},
		{&c.FreshTimeout, 5 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if c.AfterSync == nil {
		c.AfterSync = func(types.UID) {}
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Observer = c.Observer.withDefaults()
	return c
}

func (o Observer) withDefaults() Observer {
	if o.TurnEnd == nil {
		o.TurnEnd = func(TurnInfo) {}
	}
	if o.Moved == nil {
		o.Moved = func(types.UID, *corev1.Pod, Phase) {}
	}
	if o.Ignored == nil {
		o.Ignored = func(Update, string) {}
	}
	if o.Restarted == nil {
		o.Restarted = func(*corev1.Pod) {}
	}
	return o
}

func (c Config) periods() periods {
	return periods{resync: c.ResyncPeriod, backoff: c.BackoffPeriod, transient: c.TransientPeriod}
}
