package imagegc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/status/nodestatus"
)

// ImageService lists and removes images, a literal subset of
// cri.ImageManagerService of k8s.io/cri-api. Calls must end when their context
// does.
type ImageService interface {
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
}

// Runtime tells which images containers use, a literal subset of cri.RuntimeService.
// It lists all containers, whatever their state and whoever made them, and nothing in the
// list is modified: an agent may answer from a list that it has just made. The statuses
// are asked for by several goroutines at a time.
type Runtime interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
}

// EventRecorder takes events about the node; client-go's recorder fits.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Config configures a [Manager].
type Config struct {
	// Images is the runtime's image service. Required.
	Images ImageService
	// Runtime is the runtime itself. Required.
	Runtime Runtime
	// FS measures the filesystem of the images; [RuntimeFS] asks the kernel. Without
	// it images are never deleted for space, only for their age and by
	// [Manager.DeleteUnusedImages]. Optional.
	FS FS
	// RuntimeClassInImageCriAPI is the kubelet's feature gate of that name: a container
	// keeps the image that was pulled for its runtime handler, and no longer those of the
	// same id that were pulled for others.
	RuntimeClassInImageCriAPI bool
	// Policy says when images go. The zero Policy is the kubelet's.
	Policy Policy
	// Preference returns what the user wants of an image. It must be fast and not call
	// the Manager. Default: nothing.
	Preference func(Image) Preference
	// State keeps the ages of images over restarts. Default: they begin anew with the
	// process.
	State Store
	// AfterGC is called at the end of each pass that tried to delete images, with the
	// ids of all images that there are then and the time at which the pass began. It
	// must not start a pass. Optional.
	AfterGC func(ctx context.Context, remaining []string, began time.Time)
	// Period is the time between two collections of [Manager.Run]. Default 5m.
	Period time.Duration
	// DetectPeriod is the time between two looks at what is in use. Default 1m.
	DetectPeriod time.Duration
	// MaxNodeImages is the length of [Manager.Images]; below 0 there is no limit.
	// Default 50.
	MaxNodeImages int
	// Events receives the events, about Node. Both or none.
	Events EventRecorder
	Node   runtime.Object
	// EventPeriod is the time for which an event is not repeated, unless a collection
	// has succeeded in between. Default 1h.
	EventPeriod time.Duration
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives what metrics and tests want to know. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They are called during a pass, one at a time;
// they must not block and not start a pass.
type Observer struct {
	// Removed is called after each deletion. The reason is [ReasonAge] or
	// [ReasonSpace], the labels of kubelet_image_garbage_collected_total, which
	// counts those without an error.
	Removed func(image Image, reason Reason, took time.Duration, err error)
	// Measured is called after each measurement of the filesystem.
	Measured func(Usage)
	// Collected is called at the end of each pass that may delete.
	Collected func(Result, error)
	// StoreFailed is called when the ages cannot be read or written. The pass goes on.
	StoreFailed func(error)
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	check := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Images == nil, "field Images is required")
	check(c.Runtime == nil, "field Runtime is required")
	check((c.Events == nil) != (c.Node == nil), "fields Events and Node: both or none")
	check(c.Period < 0, "field Period: %v is negative", c.Period)
	check(c.DetectPeriod < 0, "field DetectPeriod: %v is negative", c.DetectPeriod)
	check(c.EventPeriod < 0, "field EventPeriod: %v is negative", c.EventPeriod)
	return errors.Join(append(errs, c.Policy.Validate())...)
}

func (c Config) withDefaults() Config {
	c.Period = cmp.Or(c.Period, 5*time.Minute)
	c.DetectPeriod = cmp.Or(c.DetectPeriod, time.Minute)
	c.MaxNodeImages = cmp.Or(c.MaxNodeImages, nodestatus.DefaultMaxImages)
	c.EventPeriod = cmp.Or(c.EventPeriod, time.Hour)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Preference == nil {
		c.Preference = func(Image) Preference { return Default }
	}
	c.Observer = c.Observer.withDefaults()
	return c
}

func (o Observer) withDefaults() Observer {
	if o.Removed == nil {
		o.Removed = func(Image, Reason, time.Duration, error) {}
	}
	if o.Measured == nil {
		o.Measured = func(Usage) {}
	}
	if o.Collected == nil {
		o.Collected = func(Result, error) {}
	}
	if o.StoreFailed == nil {
		o.StoreFailed = func(error) {}
	}
	return o
}
