package containergc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// Runtime is what the manager asks a container runtime, a literal subset of
// cri.RuntimeService of k8s.io/cri-api. Lists are asked for at most once a pass,
// and not at all with [Config].Snapshot; the status of a container once in its
// life, if a rule of the policy needs its end and the snapshot does not tell.
type Runtime interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
}

// Remover is what the manager does to a container runtime, of the same
// interface. Several goroutines call it at a time, with a deadline each.
type Remover interface {
	StopContainer(ctx context.Context, containerID string, timeout int64) error
	RemoveContainer(ctx context.Context, containerID string) error
	StopPodSandbox(ctx context.Context, podSandboxID string) error
	RemovePodSandbox(ctx context.Context, podSandboxID string) error
}

// PodState answers what the pod workers know, by the names that the kubelet's
// have; those of lifecycle/podworker fit. It is asked again right before a
// removal that a pod's return would make wrong.
type PodState interface {
	// ShouldPodContentBeRemoved says whether the pod's containers and their data
	// can go: it was evicted, or deleted and has ended, or nobody knows it.
	ShouldPodContentBeRemoved(uid types.UID) bool
	// ShouldPodRuntimeBeRemoved says whether nothing of the pod runs or will: it
	// has ended, or nobody knows it.
	ShouldPodRuntimeBeRemoved(uid types.UID) bool
}

// EventRecorder makes events; client-go's recorder fits.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// DefaultPodLogs and DefaultContainerLogs are the kubelet's folders.
const (
	DefaultPodLogs       = "/var/log/pods"
	DefaultContainerLogs = "/var/log/containers"
)

// Reasons of events, the kubelet's.
const (
	// ReasonFailed is that of the event about a pass with failures.
	ReasonFailed = "ContainerGCFailed"
	// ReasonKilling is that of the event about a container in an unknown state that is
	// stopped before it is removed.
	ReasonKilling = "Killing"
	// ReasonFailedPreStop is that of the event about its preStop hook.
	ReasonFailedPreStop = "FailedPreStopHook"
)

// Config configures a [Manager].
type Config struct {
	// Runtime tells what there is. Required.
	Runtime Runtime
	// Remover removes it; the same client, as a rule. Required.
	Remover Remover
	// Pods knows which pods are gone. Required.
	Pods PodState
	// SourcesReady says whether every source of pods has been read, as without
	// them all pods look gone. While it says no, nothing is removed. Required.
	SourcesReady func() bool
	// Policy says what goes.
	Policy Policy
	// PodLogs is the folder with one folder per pod, such as [DefaultPodLogs].
	// Default: logs are left alone.
	PodLogs string
	// ContainerLogs is the folder with links to them, such as
	// [DefaultContainerLogs]. Default: links are left alone.
	ContainerLogs string
	// Owned says whether an object is ours; what is not, is never touched. It
	// must not keep or change the labels. Default: all is, as for the kubelet.
	// Whatever it says of a pod's folder, one whose pod has anything in the
	// runtime that is not ours is left alone.
	Owned func(Object) bool
	// Snapshot replaces the lists of Runtime, for those who have one already. Its
	// result is not modified. Default: ListPodSandbox and ListContainers.
	Snapshot func(context.Context) (Snapshot, error)
	// Period is the time from the end of a pass of [Manager.Run] to the next.
	// Default 1m.
	Period time.Duration
	// Workers is how many pods are cleaned up at a time. Default 4.
	Workers int
	// CallTimeout bounds each call to the Remover, in real time even on a fake clock; a
	// pass begins no more removals when so many as there are Workers have reached it.
	// Default 2m. ContainerStatus has ten seconds at most.
	CallTimeout time.Duration
	// PreStop runs the preStop hook of a container in an unknown state before it is
	// stopped, for no longer than its grace period. Default: no hook is run.
	PreStop func(context.Context, Container) error
	// Recorder receives events: warnings about failures, and those about containers in
	// an unknown state that are stopped. Several goroutines may call it. Optional.
	Recorder EventRecorder
	// Node is what the event about failures is about. Required with Recorder.
	Node runtime.Object
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives what metrics and tests want to know. Optional.
	Observer Observer
}

// Policy says which dead containers go; see [Decide] for the rules in order. The
// zero value is the kubelet's default.
type Policy struct {
	// MinAge is how long after its end a container is left alone by every rule.
	// Default 0.
	MinAge time.Duration
	// MaxPerPodContainer is how many dead containers are kept of one name in one
	// pod. Negative: no limit. Default (nil) 1.
	MaxPerPodContainer *int
	// MaxContainers is how many dead containers are kept in all. Negative: no
	// limit. Default (nil) -1.
	MaxContainers *int
}

// Observer holds optional callbacks. Planned is called by one pass at a time; Removed
// and Collected may be called by several goroutines. They must not block or start a
// pass.
type Observer struct {
	// Planned is called when it is decided what goes.
	Planned func(Plan)
	// Removed is called after each removal, with its error.
	Removed func(object Object, took time.Duration, err error)
	// Collected is called at the end of a pass.
	Collected func(Result, error)
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Runtime == nil, "field Runtime is required")
	check(c.Remover == nil, "field Remover is required")
	check(c.Pods == nil, "field Pods is required")
	check(c.SourcesReady == nil, "field SourcesReady is required")
	check(c.Policy.MinAge < 0, "invalid minimum garbage collection age: %v", c.Policy.MinAge) // the kubelet's words
	check(c.Period < 0, "field Period: %v is negative", c.Period)
	check(c.Workers < 0, "field Workers: %d is negative", c.Workers)
	check(c.CallTimeout < 0, "field CallTimeout: %v is negative", c.CallTimeout)
	check(c.Recorder != nil && c.Node == nil, "field Node is required with Recorder")
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	orDefault(&c.Period, time.Minute)
	orDefault(&c.Workers, 4)
	orDefault(&c.CallTimeout, 2*time.Minute)
	// Copies, which the caller cannot change.
	c.Policy.MaxPerPodContainer = new(limit(c.Policy.MaxPerPodContainer, 1))
	c.Policy.MaxContainers = new(limit(c.Policy.MaxContainers, -1))
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observer.Planned == nil {
		c.Observer.Planned = func(Plan) {}
	}
	if c.Observer.Removed == nil {
		c.Observer.Removed = func(Object, time.Duration, error) {}
	}
	if c.Observer.Collected == nil {
		c.Observer.Collected = func(Result, error) {}
	}
	return c
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// limit returns what a pointer says, or the default.
func limit(n *int, or int) int {
	if n == nil {
		return or
	}
	return *n
}
