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

// Runtime is the part of a container runtime that the generator calls, a literal
// subset of cri.RuntimeService of k8s.io/cri-api. Calls must end when their
// context does; the statuses are asked for by several goroutines at a time.
type Runtime interface {
	Lister
	PodSandboxStatus(ctx context.Context, podSandboxID string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
	ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
}

// Config configures a [Generator].
type Config struct {
	// Runtime is asked what there is. Required.
	Runtime Runtime
	// Cache receives what the runtime says, and nobody else may write to it.
	// Required. It is the concrete type because the generator relies on its
	// contract about freshness, which a signature does not tell.
	Cache *podcache.Cache
	// Handler receives the events, one at a time, during a pass and from its
	// goroutine. It may call every method of the generator but Run, Relist and
	// RelistPod, which would wait for themselves. An event is delivered when it
	// has returned; a slow one slows the passes. Required.
	Handler func(context.Context, Event)
	// Lister lists in place of Runtime in global relists, for less: with it, one
	// serves already two pods that are asked for. Default Runtime.
	Lister Lister
	// Events streams hints, which make changes seen within milliseconds and let the
	// global relists become rarer. What it says is not believed, only looked at.
	// Optional; a CRI client whose runtime has no such stream does no harm.
	Events EventSource
	// LabelSelector restricts the view to sandboxes and containers with all of
	// these labels, for an agent that shares its runtime. Default: no restriction.
	LabelSelector map[string]string
	// Period is the time between the end of a global relist and the beginning of
	// the next. Default 1s.
	Period time.Duration
	// MaxPeriod is that time while the stream of Events can be relied on. No more than
	// half of Threshold is used, so that resting is never taken for being stuck. Without
	// Events, or below Period, it has no effect. Default 30s.
	MaxPeriod time.Duration
	// Threshold is the age of the last successful global relist from which on
	// [Generator.Healthy] complains. Default 3m.
	Threshold time.Duration
	// ListTimeout bounds the two lists of one relist together, in real time even on a
	// fake clock, so that a runtime which hangs is a relist that fails. Default 2m.
	ListTimeout time.Duration
	// MaxInspections is the number of pods inspected at a time. Default 8.
	MaxInspections int
	// InspectTimeout bounds the inspection of one pod, in real time even on a
	// fake clock. Default 10s.
	InspectTimeout time.Duration
	// Random returns random numbers from 0 up to 1, for the pauses before a broken event
	// stream is opened again. Default: that of math/rand/v2.
	Random func() float64
	// Clock is the time source. It must not step back, and the default, the system
	// clock with its monotonic reading, does not.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives what metrics and tests want to know. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They must not block and, like a handler, not
// start a pass. Those about the stream of events are called by the goroutines that
// read it, at any time, all others during a pass, one at a time.
type Observer struct {
	// RelistStart is called before the first call of a global relist.
	RelistStart func()
	// RelistEnd is called when a global relist has compared the lists and set
	// off the inspections. The error is that of a list.
	RelistEnd func(Result, error)
	// PodInspected is called after the inspection of a pod, with its duration
	// including the wait for its turn. The error is the reason for setting the
	// pod aside.
	PodInspected func(uid types.UID, took time.Duration, err error)
	// Event is called for each event after its delivery, and for
	// [ContainerChanged], which is not delivered.
	Event func(Event)
	// StreamOpened is called when the stream of events is open, and StreamEnded when
	// it has ended before its time or could not be opened, with the reason: the
	// kubelet's evented_pleg_connection_success_count and _error_count.
	StreamOpened func()
	StreamEnded  func(err error)
	// Hinted is called for every event of the stream about a pod that is ours, with
	// its age by the runtime's clock; 0 if it has none, or is from the future. It is
	// the kubelet's evented_pleg_connection_latency_seconds.
	Hinted func(age time.Duration)
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
	if o.Hinted == nil {
		o.Hinted = func(time.Duration) {}
	}
	return c
}
