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

// Cache holds the state of pods in the runtime. [podcache.Cache] implements it.
type Cache interface {
	// Get returns the latest known status of the pod without waiting.
	Get(uid types.UID) (*podcache.Status, error)
	// Known reports whether the runtime was queried about the pod. If not, the
	// pod may run, whatever Get returns.
	Known(uid types.UID) bool
	// GetNewerThan waits until the pod's status is at least as new as t, or
	// until ctx is done.
	GetNewerThan(ctx context.Context, uid types.UID, t time.Time) (*podcache.Status, error)
}

// Config configures [Workers].
type Config struct {
	// Syncer does the work for a pod. Required.
	Syncer Syncer
	// Cache returns the state of pods in the runtime. Required.
	Cache Cache
	// AfterSync is called after a sync that may have changed something in the
	// runtime: the sync made the pod Terminating or Terminated, the sync was
	// cancelled, or the Syncer called [SyncRequest.Acted]. The cached status of
	// the pod is then outdated, and the next sync waits for a newer status.
	// AfterSync is not called if the Syncer has called [SyncRequest.Refreshed].
	// It must not block. Optional.
	AfterSync func(uid types.UID)

	// ResyncPeriod is the time between two syncs of a pod after a success. Up
	// to half of it is added at random. Default 1 m.
	ResyncPeriod time.Duration
	// BackoffPeriod is the delay before a failed sync is repeated. Up to half
	// of it is added at random. The error of the sync may request another
	// delay, to which nothing is added: see [RetryError]. Default 10 s.
	BackoffPeriod time.Duration
	// TransientPeriod is the delay before a sync that failed with a
	// [TransientError] is repeated. Up to half of it is added at random.
	// Default 1 s.
	TransientPeriod time.Duration
	// FreshTimeout is how long a sync of a Terminating or Terminated pod waits
	// for a status that is new enough. After that, the sync gets the last known
	// status, marked Stale. Thus a pod can be killed even if the runtime does
	// not respond. A sync in the phase Syncing waits without a limit, because
	// with an old status it could create containers twice. Default 5 s.
	FreshTimeout time.Duration

	// Jitter returns random numbers in [0, 1). It must be safe for concurrent
	// use. Default math/rand/v2.
	Jitter func() float64
	// Clock is the time source; the Cache must use the same clock. Default the
	// system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and tests. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They run on the goroutine of the sync or
// of the caller, concurrently for many pods, and without a lock. A slow
// callback delays its pod.
type Observer struct {
	// SyncEnded is called after every call of the Syncer, and after a sync that
	// failed before that call.
	SyncEnded func(SyncInfo)
	// PhaseChanged is called when a pod has entered another phase. Phases never
	// go back. For one pod the calls are in order and one at a time, but they
	// may come from different goroutines.
	PhaseChanged func(uid types.UID, pod *corev1.Pod, phase Phase)
	// Ignored is called for an update that was ignored.
	Ignored func(u Update, reason string)
	// Restarted is called when [Workers.SyncKnownPods] forgets a finished pod
	// that was created again under the same UID while it was terminating. The
	// new pod can then be created. The callback gets the spec of the finished
	// pod. The kubelet counts such pods in restarted_pods_total.
	Restarted func(pod *corev1.Pod)
}

// SyncInfo describes a finished sync.
type SyncInfo struct {
	// UID is the UID of the pod.
	UID types.UID
	// Pod is the pod's spec, nil if only the runtime knows the pod.
	Pod *corev1.Pod
	// Type is the reason for the sync. First reports whether the sync was the
	// pod's first sync. The Type of the first sync need not be [Create],
	// because another update may have replaced the first update.
	Type  UpdateType
	First bool
	// Phase is the pod's phase when the sync began.
	Phase Phase
	// Waited is how long the sync waited for a status that was new enough, and
	// Duration is how long the Syncer ran.
	Waited, Duration time.Duration
	// Stale reports whether the status was not new enough.
	Stale bool
	// Err is the error of the Syncer. If the Syncer was not called, Err is a
	// [StatusError] in the phase Syncing, and the error of the sync's ctx in
	// the other phases.
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
	if o.SyncEnded == nil {
		o.SyncEnded = func(SyncInfo) {}
	}
	if o.PhaseChanged == nil {
		o.PhaseChanged = func(types.UID, *corev1.Pod, Phase) {}
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
