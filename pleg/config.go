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
	// Required. Cache is a concrete type because the generator relies on the cache's rules
	// of freshness, which an interface cannot express.
	Cache *podcache.Cache
	// Handler is called with each event, one event at a time, on the goroutine of the pass.
	// Handler may call every method of the generator except Run, Relist and RelistPod,
	// which would deadlock. An event counts as delivered when Handler has returned. A slow
	// Handler delays the passes. Required.
	Handler func(context.Context, Event)
	// Lister does the lists of global relists instead of Runtime, at lower cost. If it is
	// set, Run does a global relist as soon as two pods have due requests or hints.
	// Default Runtime.
	Lister Lister
	// Events streams the runtime's events, which the generator uses as hints. With Events,
	// the generator finds within milliseconds that a container or sandbox has stopped, and
	// does global relists less often. The generator does not trust the contents of an
	// event, but lists the pod. If the runtime does not support the stream, the generator
	// does a global relist every Period. Optional.
	Events EventSource
	// LabelSelector restricts the generator to sandboxes and containers with all of these
	// labels, for an agent that shares the runtime with other agents. Default: no
	// restriction.
	LabelSelector map[string]string
	// Period is the time between the end of a global relist and the beginning of
	// the next. Default 1s.
	Period time.Duration
	// MaxPeriod replaces Period while the generator relies on the event stream. The
	// generator limits MaxPeriod to half of Threshold, so that the wait for the next
	// relist never makes the generator unhealthy. MaxPeriod has no effect if Events is not
	// set, or if MaxPeriod is less than Period. Default 30s.
	MaxPeriod time.Duration
	// Threshold is the age of the last successful global relist above which
	// [Generator.Healthy] returns an error. Default 3m.
	Threshold time.Duration
	// ListTimeout is the time limit for both lists of a relist together, measured in real
	// time even if Clock is fake. If the runtime hangs, the relist fails after
	// ListTimeout. Default 2m.
	ListTimeout time.Duration
	// MaxInspections is the maximum number of pods inspected concurrently. Default 8.
	MaxInspections int
	// InspectTimeout is the time limit for the inspection of one pod, measured in real
	// time even if Clock is fake. Default 10s.
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

// Observer holds optional callbacks. They must not block and must not start a pass. The
// goroutines that read the event stream call StreamOpened, StreamEnded and HintReceived at
// any time. All other callbacks are called during a pass, one at a time.
type Observer struct {
	// RelistStart is called before the first list of a global relist.
	RelistStart func()
	// RelistEnd is called when a global relist has compared the lists and started the
	// inspections, or when a list has failed. The error is the error of that list, or nil.
	RelistEnd func(Result, error)
	// PodInspected is called after the inspection of a pod. took is the duration of the
	// inspection, including the time in the queue. If err is not nil, the inspection
	// failed, and the generator retries it with back-off.
	PodInspected func(uid types.UID, took time.Duration, err error)
	// Event is called for each event after its delivery, and for each
	// [ContainerChanged], which is not delivered.
	Event func(Event)
	// StreamOpened is called when the event stream is open. StreamEnded is called with the
	// reason when the stream has broken or could not be opened. The callbacks correspond
	// to the kubelet's evented_pleg_connection_success_count and _error_count.
	StreamOpened func()
	StreamEnded  func(err error)
	// HintReceived is called for each event of the stream, except for events of pods that
	// LabelSelector excludes. age is the time since the timestamp that the runtime set in
	// the event. It is 0 if the event has no timestamp or a timestamp in the future.
	// HintReceived corresponds to the kubelet's evented_pleg_connection_latency_seconds.
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
