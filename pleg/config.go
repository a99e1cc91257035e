package pleg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/podcache"
)

// Runtime is the part of a container runtime that the generator calls, a subset of
// cri.RuntimeService of k8s.io/cri-api. Calls must return when their context is done.
// The two status methods are called concurrently.
type Runtime interface {
	Lister
	PodSandboxStatus(ctx context.Context, podSandboxID string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
	ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
}

// Config configures a [Generator].
type Config struct {
	// Runtime lists and inspects sandboxes and containers. Required.
	Runtime Runtime
	// Cache receives the statuses of the pods. The generator must be its only writer.
	// Required. It is a concrete type because the generator relies on its rules of
	// freshness, which an interface cannot express.
	Cache *podcache.Cache
	// Handler receives the events, one at a time, during a pass and on its
	// goroutine. It may call every method of the generator except Run, Relist and
	// RelistPod, which would deadlock. An event is delivered when the handler
	// has returned. A slow handler delays the passes. Required.
	Handler func(context.Context, Event)
	// Lister replaces Runtime in global relists if it lists at lower cost. With it, a
	// global relist is done as soon as two pods have requests or hints. Default Runtime.
	Lister Lister
	// Events streams events that serve as hints. With them, changes are found within
	// milliseconds and global relists are less frequent. The contents of events are not
	// trusted: the generator lists the pod. Optional. It may be a CRI client whose runtime
	// does not support the stream.
	Events EventSource
	// LabelSelector restricts the generator to sandboxes and containers with all of
	// these labels, for an agent that shares its runtime. Default: no restriction.
	LabelSelector map[string]string
	// Period is the time between the end of a global relist and the beginning of
	// the next. Default 1s.
	Period time.Duration
	// MaxPeriod is that time while the event stream can be relied on. It is limited to
	// half of Threshold, so that waiting for it never makes the generator unhealthy.
	// Without Events, or below Period, it has no effect. Default 30s.
	MaxPeriod time.Duration
	// Threshold is the age of the last successful global relist above which
	// [Generator.Healthy] returns an error. Default 3m.
	Threshold time.Duration
	// ListTimeout limits the two lists of one relist together, in real time even on a
	// fake clock. A relist of a runtime that hangs fails after it. Default 2m.
	ListTimeout time.Duration
	// MaxInspections is the maximum number of pods inspected concurrently. Default 8.
	MaxInspections int
	// InspectTimeout limits the inspection of one pod, in real time even on a
	// fake clock. Default 10s.
	InspectTimeout time.Duration
	// Random returns random numbers in [0, 1), for the jitter of the back-off before the
	// event stream is opened again. Default: rand.Float64 of math/rand/v2.
	Random func() float64
	// Clock is the time source. It must never go backwards. Default: the system clock,
	// whose readings are monotonic.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives callbacks for metrics and tests. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They must not block and must not start a pass.
// The callbacks about the event stream are called at any time by the goroutines that
// read it. All others are called during a pass, one at a time.
type Observer struct {
	// RelistStart is called before the first call of a global relist.
	RelistStart func()
	// RelistEnd is called when a global relist has compared the lists and started
	// the inspections. The error is that of a list.
	RelistEnd func(Result, error)
	// PodInspected is called after the inspection of a pod, with its duration
	// including the time in the queue. If err is not nil, the inspection failed and
	// is retried with back-off.
	PodInspected func(uid types.UID, took time.Duration, err error)
	// Event is called for each event after its delivery, and for each
	// [ContainerChanged], which is not delivered.
	Event func(Event)
	// StreamOpened is called when the event stream is open. StreamEnded is called with
	// the reason when it has broken or could not be opened. They correspond to the
	// kubelet's evented_pleg_connection_success_count and _error_count.
	StreamOpened func()
	StreamEnded  func(err error)
	// HintReceived is called for every event of the stream except those of pods that
	// LabelSelector excludes, with its age by the runtime's clock. The age is 0 if the
	// event has no time or one in the future. It corresponds to the kubelet's
	// evented_pleg_connection_latency_seconds.
	HintReceived func(age time.Duration)
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(c.Runtime == nil, "field Runtime is required")
	refuse(c.Cache == nil, "field Cache is required")
	refuse(c.Handler == nil, "field Handler is required")
	refuse(c.Period < 0, "field Period: %v is negative", c.Period)
	refuse(c.MaxPeriod < 0, "field MaxPeriod: %v is negative", c.MaxPeriod)
	refuse(c.Threshold < 0, "field Threshold: %v is negative", c.Threshold)
	refuse(c.ListTimeout < 0, "field ListTimeout: %v is negative", c.ListTimeout)
	refuse(c.InspectTimeout < 0, "field InspectTimeout: %v is negative", c.InspectTimeout)
	refuse(c.MaxInspections < 0, "field MaxInspections: %d is negative", c.MaxInspections)
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Period = cmp.Or(c.Period, time.Second)
	c.Threshold = cmp.Or(c.Threshold, 3*time.Minute)
	c.MaxPeriod = max(c.Period, min(cmp.Or(c.MaxPeriod, 30*time.Second), c.Threshold/2))
	if c.Events == nil {
		c.MaxPeriod = c.Period
	}
	c.Lister = cmp.Or[Lister](c.Lister, c.Runtime)
	c.ListTimeout = cmp.Or(c.ListTimeout, 2*time.Minute)
	c.MaxInspections = cmp.Or(c.MaxInspections, 8)
	c.InspectTimeout = cmp.Or(c.InspectTimeout, 10*time.Second)
	c.Clock = cmp.Or[clock.Clock](c.Clock, clock.RealClock{})
	if c.Random == nil {
		c.Random = rand.Float64
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	o := &c.Observer
	if o.RelistStart == nil {
		o.RelistStart = func() {}
	}
	if o.RelistEnd == nil {
		o.RelistEnd = func(Result, error) {}
	}
	if o.PodInspected == nil {
		o.PodInspected = func(types.UID, time.Duration, error) {}
	}
	if o.Event == nil {
		o.Event = func(Event) {}
	}
	if o.StreamOpened == nil {
		o.StreamOpened = func() {}
	}
	if o.StreamEnded == nil {
		o.StreamEnded = func(error) {}
	}
	if o.HintReceived == nil {
		o.HintReceived = func(time.Duration) {}
	}
	return c
}
