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

// Killer terminates pods.
type Killer interface {
	// Kill terminates the pod within the grace period of e, publishes the status that
	// [Eviction.Apply] sets, and returns when the pod has terminated. The Manager calls
	// Kill on a new goroutine. If the pod must terminate sooner, the Manager calls Kill
	// again, with a shorter grace period. Both calls must return when the pod has
	// terminated.
	Kill(ctx context.Context, pod *corev1.Pod, e Eviction) error
}

// ImageGC deletes images.
type ImageGC interface {
	// DeleteUnusedImages deletes unused images and returns when they are deleted. It must
	// free at least need.Amount bytes or inodes if that is possible. It may delete all
	// unused images, as the kubelet does.
	DeleteUnusedImages(ctx context.Context, need ReclaimPlan) error
}

// ContainerGC deletes containers.
type ContainerGC interface {
	// DeleteAllUnusedContainers deletes dead containers, including those of pods that have
	// terminated but are not deleted yet, and returns when the containers are deleted.
	DeleteAllUnusedContainers(ctx context.Context) error
}

// EventRecorder records events. The recorders of client-go implement it.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// AnnotatedEventRecorder records events with annotations. The recorders of client-go
// implement it.
type AnnotatedEventRecorder interface {
	AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any)
}

// Mode selects which actions a [Manager] takes. The zero value is [Act].
type Mode string

// Modes.
const (
	// Act evicts pods and reclaims disks.
	Act Mode = ""
	// ObserveOnly evicts no pods and reclaims no disks. The Manager sets node conditions
	// and refuses pods as in [Act].
	ObserveOnly Mode = "observe-only"
	// DryRun changes nothing: the Manager only makes decisions and passes them to the
	// [Observer].
	DryRun Mode = "dry-run"
)

// Config configures a [Manager].
type Config struct {
	// Stats measures the node and its pods. Required.
	Stats Stats
	// Pods returns the active pods, with their allocated resources. The Manager does not
	// modify the result. Required.
	Pods func() []*corev1.Pod
	// Killer terminates pods. Required for [Act].
	Killer Killer
	// Policy configures when pods are evicted, and in which order. The zero Policy has no
	// thresholds, so that only local storage limits cause evictions. [ParseThresholds]
	// returns thresholds.
	Policy Policy
	// Mode selects which actions are taken. Default [Act].
	Mode Mode

	// ContainerGC and ImageGC free disk space before a pod is evicted. Optional.
	ContainerGC ContainerGC
	ImageGC     ImageGC
	// CleanedUp reports whether all data of a terminated pod was removed from the node's disks.
	// After a pod has terminated, the Manager counts the pod's disk space as being freed until
	// CleanedUp returns true, for at most 30 s. If CleanedUp is nil, the Manager counts it for 30
	// s. Optional.
	CleanedUp func(uid types.UID) bool
	// Waker requests evaluations before the next poll is due. Optional.
	Waker Waker

	// MinInterval and MaxInterval limit the time between two evaluations, which depends on
	// how soon a threshold can be reached. For 3 s after a wake-up, the time is at most
	// 50 ms, even if MinInterval is longer. Defaults 100 ms and 10 s.
	MinInterval, MaxInterval time.Duration
	// LimitsPeriod is the time between two checks of local storage limits.
	// Default 10 s.
	LimitsPeriod time.Duration
	// KillRetry is the minimum time between a failed kill of a pod and the next attempt to
	// evict the pod. After this time, the pod may be evicted again, but only after all other
	// pods. Default 10 s.
	KillRetry time.Duration
	// EventPeriod is the minimum time between two [EvictionThresholdMet] events for one
	// resource. Default 10 s, as in the kubelet.
	EventPeriod time.Duration

	// Node is the object of events about the node. If nil, these events are not recorded.
	// Optional.
	Node runtime.Object
	// Events records events. If AnnotatedEvents is set, then AnnotatedEvents records the
	// events whose reason is [Reason], with the kubelet's annotations, and Events does not
	// record them. Both are optional.
	Events          EventRecorder
	AnnotatedEvents AnnotatedEventRecorder

	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and tests. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They must not block or call [Manager.Evaluate],
// [Manager.Run] or [Manager.Wait].
type Observer struct {
	// Evaluated is called after every evaluation, before its actions start. err joins the
	// errors of failed measurements.
	Evaluated func(d Decision, err error)
	// Evicting is called when an eviction starts, and again when its grace period is
	// shortened.
	Evicting func(pod *corev1.Pod, e Eviction)
	// Evicted is called when an evicted pod has terminated or could not be killed.
	Evicted func(pod *corev1.Pod, e Eviction, took time.Duration, err error)
	// Overdue is called when an evicted pod has not terminated by its deadline. The
	// Manager still waits for the pod, but no longer expects the pod to free anything.
	Overdue func(pod *corev1.Pod, e Eviction)
	// Reclaimed is called after every node-level reclaim.
	Reclaimed func(r ReclaimPlan, took time.Duration, err error)
	// ConditionsChanged is called when the set of true node conditions changes.
	ConditionsChanged func(conditions []corev1.NodeConditionType)
	// Refused is called for every pod that [Manager.Admit] refuses because of a node
	// condition.
	Refused func(pod *corev1.Pod, message string)
	// Woken is called, from any goroutine, when the [Waker] requests an evaluation.
	Woken func(reason string)
}

// Validate returns every problem with c, joined.
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
		errs = append(errs, fmt.Errorf("field Mode: unknown mode %q", c.Mode))
	}
	for _, d := range c.durations() {
		if *d.value < 0 {
			errs = append(errs, fmt.Errorf("field %s: %v is negative", d.name, *d.value))
		}
	}
	if c.MinInterval > 0 && c.MaxInterval > 0 && c.MinInterval > c.MaxInterval {
		errs = append(errs, fmt.Errorf("field MinInterval: %v is longer than MaxInterval, %v", c.MinInterval, c.MaxInterval))
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
