package imagegc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// ImageService lists and removes images, a literal subset of
// cri.ImageManagerService of k8s.io/cri-api. Calls must end when their context
// does; several images may be removed at a time.
type ImageService interface {
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
}

// Runtime tells which images containers use, a literal subset of
// cri.RuntimeService. The statuses are asked for by several goroutines at a time.
type Runtime interface {
	Containers
	ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
}

// Containers lists all containers, whatever their state and whoever made them. An
// agent that has just relisted may hand that list over: nothing in it is modified.
type Containers interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
}

// ImageStatus describes one image, a literal subset of cri.ImageManagerService.
type ImageStatus interface {
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error)
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
	// FS measures the filesystem of the images; [RuntimeFS] asks the kernel.
	// Required.
	FS FS
	// Containers lists in place of Runtime. Default Runtime.
	Containers Containers
	// NoImageVolumes says that no pod of this node mounts an image as a volume. Only
	// a container's status tells such mounts; without them, a status is asked for
	// only where the list lacks the image's id.
	NoImageVolumes bool
	// RuntimeClassInImageCriAPI is the kubelet's feature gate of that name: a container
	// keeps the image that was pulled for its runtime handler, and no longer those of the
	// same id that were pulled for others.
	RuntimeClassInImageCriAPI bool
	// Policy says when images go. The zero Policy is the kubelet's.
	Policy Policy
	// Keep are images that never go, Prefer those that go before all others.
	Keep, Prefer []Pattern
	// Preference is asked about each image and adds to both; Keep by anyone wins. It must
	// be fast and not call the Manager. Optional.
	Preference func(Image) Preference
	// Labels is asked once for each new image, verbosely, for the labels of its
	// config, which lists do not have. An image whose labels cannot be had stays.
	// Default: no image has labels.
	Labels ImageStatus
	// Store keeps the ages of images over restarts; [FileStore] is one. Default: they
	// begin anew with the process.
	Store Store
	// AfterGC is called at the end of each pass that tried to delete images, with the
	// ids of all images that there are then and the time at which the pass began. It
	// must not start a pass. Optional.
	AfterGC func(ctx context.Context, remaining []string, began time.Time)
	// Period is the time between two collections of [Manager.Run]. Default 5m.
	Period time.Duration
	// DetectPeriod is the time between two looks at what is in use. Default 1m.
	DetectPeriod time.Duration
	// MaxDeletions is the number of images deleted at a time. Default 2.
	MaxDeletions int
	// RemoveTimeout bounds the deletion of one image, in real time even on a fake
	// clock, and so the time for which [Manager.Acquire] may have to wait. Default 2m.
	RemoveTimeout time.Duration
	// Settle is waited between a deletion and the measurement after it, for
	// filesystems that free space in the background. Default 0.
	Settle time.Duration
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
	// Detected is called after each look, with the number of images, that of
	// containers, and that of statuses asked for.
	Detected func(images, containers, statuses int, took time.Duration)
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
	check(c.FS == nil, "field FS is required")
	check((c.Events == nil) != (c.Node == nil), "fields Events and Node: both or none")
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"Period", c.Period},
		{"DetectPeriod", c.DetectPeriod},
		{"RemoveTimeout", c.RemoveTimeout},
		{"Settle", c.Settle},
		{"EventPeriod", c.EventPeriod},
	} {
		check(d.value < 0, "field %s: %v is negative", d.name, d.value)
	}
	check(c.MaxDeletions < 0, "field MaxDeletions: %d is negative", c.MaxDeletions)
	errs = append(errs, c.Policy.Validate(), validatePatterns("Keep", c), validatePatterns("Prefer", c))
	return errors.Join(errs...)
}

func validatePatterns(field string, c Config) error {
	patterns := c.Keep
	if field == "Prefer" {
		patterns = c.Prefer
	}
	var errs []error
	for i, p := range patterns {
		if p.Name == "" && len(p.Labels) == 0 {
			errs = append(errs, fmt.Errorf("field %s[%d]: needs a Name or Labels", field, i))
		}
		if len(p.Labels) > 0 && c.Labels == nil {
			errs = append(errs, fmt.Errorf("field %s[%d]: Labels need field Labels of the Config", field, i))
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Containers == nil {
		c.Containers = c.Runtime
	}
	orDefault(&c.Period, 5*time.Minute)
	orDefault(&c.DetectPeriod, time.Minute)
	orDefault(&c.MaxDeletions, 2)
	orDefault(&c.RemoveTimeout, 2*time.Minute)
	orDefault(&c.MaxNodeImages, 50)
	orDefault(&c.EventPeriod, time.Hour)
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
	if o.Detected == nil {
		o.Detected = func(int, int, int, time.Duration) {}
	}
	if o.StoreFailed == nil {
		o.StoreFailed = func(error) {}
	}
	return o
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
