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

// ImageService lists and deletes images. It is a literal subset of
// cri.ImageManagerService of k8s.io/cri-api. Calls must return when their context is
// done.
type ImageService interface {
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
}

// Runtime returns the containers and the images that they use. It is a literal subset of
// cri.RuntimeService. ListContainers must return all containers, in any state and of any client.
// The Manager does not modify the result, so an agent may return a recent list that it also uses
// itself. ContainerStatus is called concurrently.
type Runtime interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
}

// EventRecorder records events about the node. The recorders of client-go implement it.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Config configures a [Manager].
type Config struct {
	// Images is the runtime's image service. Required.
	Images ImageService
	// Runtime is the runtime's container service. Required.
	Runtime Runtime
	// FS measures the filesystem of the images; [RuntimeFS] implements it. If nil, images
	// are never deleted for space, only for their age and by [Manager.DeleteUnusedImages].
	// Optional.
	FS FS
	// RuntimeClassInImageCriAPI is the kubelet's feature gate of that name. If it is set, a
	// container with a runtime handler does not protect an image that was pulled for another
	// handler, even if both images have the same id.
	RuntimeClassInImageCriAPI bool
	// Policy configures when images are deleted. The zero Policy has the kubelet's
	// defaults.
	Policy Policy
	// Preference returns the user's preference for an image. It must be fast and must not
	// call the Manager. Default: [Default] for all images.
	Preference func(Image) Preference
	// State stores the ages of images across restarts. If nil, all images are new after a
	// restart. Optional.
	State Store
	// AfterGC is called at the end of each pass that tried to delete images, with the sorted ids
	// of all images that are left, and the time when the pass started. AfterGC must not start a
	// pass. Optional.
	AfterGC func(ctx context.Context, remaining []string, began time.Time)
	// Period is the time between two collections of [Manager.Run]. Default 5m.
	Period time.Duration
	// DetectPeriod is the time between two updates of the images in use. Default 1m.
	DetectPeriod time.Duration
	// MaxNodeImages is the maximum length of [Manager.Images]; a negative number means no
	// limit. Default 50.
	MaxNodeImages int
	// Events records events about Node. Set both or neither.
	Events EventRecorder
	Node   runtime.Object
	// EventPeriod is the minimum time between two events with the same reason and subject. This
	// time ends early if a collection of [Manager.Run] succeeds. Default 1h.
	EventPeriod time.Duration
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and tests. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They are called during a pass, one at a time. They
// must not block or start a pass.
type Observer struct {
	// Removed is called after each deletion. The reason is [ReasonAge] or [ReasonSpace].
	// These are the labels of kubelet_image_garbage_collected_total, which counts the
	// deletions without an error.
	Removed func(image Image, reason Reason, took time.Duration, err error)
	// Measured is called after each valid measurement of the filesystem, except the first
	// measurement of DeleteUnusedImages.
	Measured func(Usage)
	// Collected is called at the end of each pass that may delete images.
	Collected func(Result, error)
	// StoreFailed is called when the ages cannot be read or written. The pass continues.
	StoreFailed func(error)
}

// Validate returns every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	check := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Images == nil, "field Images is required")
	check(c.Runtime == nil, "field Runtime is required")
	check((c.Events == nil) != (c.Node == nil), "fields Events and Node must be set together")
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
