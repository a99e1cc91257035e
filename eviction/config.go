package eviction

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Killer ends pods.
type Killer interface {
	// Kill ends the pod within the grace period of e, publishes the status that
	// [Eviction.Apply] makes, and returns when nothing of the pod runs any more.
	// It is called on a goroutine of its own, and again with a shorter grace
	// period for a pod that is to end sooner than it was told: both calls then
	// return when it has.
	Kill(ctx context.Context, pod *corev1.Pod, e Eviction) error
}

// ImageGC removes images.
type ImageGC interface {
	// DeleteUnusedImages removes images that nothing uses, at least as many as
	// need says if it can, and returns when that is done. Removing all of them
	// is what the kubelet does.
	DeleteUnusedImages(ctx context.Context, need ReclaimPlan) error
}

// ContainerGC removes containers.
type ContainerGC interface {
	// DeleteAllUnusedContainers removes containers that have ended, those of
	// pods that still exist too, and returns when that is done.
	DeleteAllUnusedContainers(ctx context.Context) error
}

// EventRecorder records events. The recorders of client-go are of this kind.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// AnnotatedEventRecorder records events with annotations. The recorders of
// client-go are of this kind.
type AnnotatedEventRecorder interface {
	AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any)
}

// Mode is how much a [Manager] does. The zero value does everything.
type Mode string

// Modes.
const (
	// Act evicts pods and frees disks.
	Act Mode = ""
	// ObserveOnly evicts nothing and frees nothing; node conditions hold and
	// admission refuses pods as always.
	ObserveOnly Mode = "observe-only"
	// DryRun changes nothing at all: decisions are made and can be observed.
	DryRun Mode = "dry-run"
)

// Config configures a [Manager].
type Config struct {
	// Stats measures the node and its pods. Required.
	Stats Stats
	// Pods returns the active pods, with the resources that they were given. What
	// it returns is not modified. Required.
	Pods func() []*corev1.Pod
	// Killer ends pods. Required for [Act].
	Killer Killer
	// Policy says when something is done and to whom. Its defaults leave only
	// local storage limits: thresholds come from [ParseThresholds].
	Policy Policy
	// Mode is how much is done. Default [Act].
	Mode Mode

	// ContainerGC and ImageGC free disks before a pod has to go. Optional.
	ContainerGC ContainerGC
	ImageGC     ImageGC
	// CleanedUp says whether nothing is left of an ended pod on the node's disks.
	// Until it says so, and for 30 s at most, what the pod held is still expected
	// to become free. Optional: without it that is after those 30 s.
	CleanedUp func(uid types.UID) bool
	// Waker tells when to look before the next poll is due. Optional.
	Waker Waker

	// MinInterval and MaxInterval bound the time between two looks, which follows
	// from how soon a threshold can be met. For 3 s after a wake-up it is 50 ms.
	// Defaults 100 ms and 10 s.
	MinInterval, MaxInterval time.Duration
	// LimitsPeriod is the time between two checks of local storage limits.
	// Default 10 s.
	LimitsPeriod time.Duration
	// KillRetry is how long a pod that could not be killed is left alone. After that it
	// is tried again, if no other pod can go. Default 10 s.
	KillRetry time.Duration
	// EventPeriod is the least time between two events [EvictionThresholdMet] of
	// one resource. Default 10 s, as often as the kubelet does it.
	EventPeriod time.Duration

	// Node is the object that events about the node are for. Without it there are
	// none. Optional.
	Node runtime.Object
	// Events records events. AnnotatedEvents, if there, records those of evicted
	// pods instead, with details in annotations as the kubelet does. Optional.
	Events          EventRecorder
	AnnotatedEvents AnnotatedEventRecorder

	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and tests. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They must not block, and not call
// [Manager.Evaluate].
type Observer struct {
	// Evaluated is called after every evaluation, before anything is done about
	// it, with what could not be measured.
	Evaluated func(d Decision, err error)
	// Evicting is called when a pod is told to end, and again when it is told to
	// end sooner.
	Evicting func(pod *corev1.Pod, e Eviction)
	// Evicted is called when the pod has ended, or could not be killed.
	Evicted func(pod *corev1.Pod, e Eviction, took time.Duration, err error)
	// Overdue is called when a pod has not ended in time. Its end is still waited
	// for, and no longer counted on.
	Overdue func(pod *corev1.Pod, e Eviction)
	// Reclaimed is called after every node-level reclaim.
	Reclaimed func(r ReclaimPlan, took time.Duration, err error)
	// ConditionsChanged is called when other node conditions hold than before.
	ConditionsChanged func(conditions []corev1.NodeConditionType)
	// Refused is called for every pod that is not admitted.
	Refused func(pod *corev1.Pod, message string)
	// Woken is called, from any goroutine, when the [Waker] asks for a look.
	Woken func(reason string)
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	for _, f := range []struct {
		name    string
		missing bool
	}{
		{"Stats", c.Stats == nil},
		{"Pods", c.Pods == nil},
		{"Killer", c.Killer == nil && c.Mode == Act},
	} {
		if f.missing {
			errs = append(errs, fmt.Errorf("field %s is required", f.name))
		}
	}
	switch c.Mode {
	case Act, ObserveOnly, DryRun:
	default:
		errs = append(errs, fmt.Errorf("field Mode: %q does not exist", c.Mode))
	}
	for _, d := range c.durations() {
		if *d.value < 0 {
			errs = append(errs, fmt.Errorf("field %s: %v is negative", d.name, *d.value))
		}
	}
	if c.MinInterval > 0 && c.MaxInterval > 0 && c.MinInterval > c.MaxInterval {
		errs = append(errs, fmt.Errorf("field MinInterval: %v is more than MaxInterval, %v", c.MinInterval, c.MaxInterval))
	}
	if err := c.Policy.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("field Policy: %w", err))
	}
	return errors.Join(errs...)
}

type durationField struct {
	name  string
	value *time.Duration
	def   time.Duration
}

func (c *Config) durations() []durationField {
	return []durationField{
		{"MinInterval", &c.MinInterval, 100 * time.Millisecond},
		{"MaxInterval", &c.MaxInterval, 10 * time.Second},
		{"LimitsPeriod", &c.LimitsPeriod, 10 * time.Second},
		{"KillRetry", &c.KillRetry, 10 * time.Second},
		{"EventPeriod", &c.EventPeriod, 10 * time.Second},
	}
}

func (c Config) withDefaults() Config {
	for _, d := range c.durations() {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	c.MaxInterval = max(c.MaxInterval, c.MinInterval)
	c.Policy = c.Policy.withDefaults()
	if c.CleanedUp == nil {
		c.CleanedUp = func(types.UID) bool { return false }
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
	if o.Evaluated == nil {
		o.Evaluated = func(Decision, error) {}
	}
	if o.Evicting == nil {
		o.Evicting = func(*corev1.Pod, Eviction) {}
	}
	if o.Evicted == nil {
		o.Evicted = func(*corev1.Pod, Eviction, time.Duration, error) {}
	}
	if o.Overdue == nil {
		o.Overdue = func(*corev1.Pod, Eviction) {}
	}
	if o.Reclaimed == nil {
		o.Reclaimed = func(ReclaimPlan, time.Duration, error) {}
	}
	if o.ConditionsChanged == nil {
		o.ConditionsChanged = func([]corev1.NodeConditionType) {}
	}
	if o.Refused == nil {
		o.Refused = func(*corev1.Pod, string) {}
	}
	if o.Woken == nil {
		o.Woken = func(string) {}
	}
	return o
}
