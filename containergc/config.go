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

// Runtime lists containers and sandboxes. It is a literal subset of cri.RuntimeService of
// k8s.io/cri-api. A pass calls each list method at most once, or never if [Config].Snapshot is
// set. A pass calls ContainerStatus for a container if the policy needs the container's exit time
// and the snapshot does not contain it. Later passes repeat the call only after an error.
type Runtime interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
}

// Remover removes containers and sandboxes. It is a literal subset of cri.RuntimeService.
// Its methods are called concurrently. Each call has a deadline.
type Remover interface {
	StopContainer(ctx context.Context, containerID string, timeout int64) error
	RemoveContainer(ctx context.Context, containerID string) error
	StopPodSandbox(ctx context.Context, podSandboxID string) error
	RemovePodSandbox(ctx context.Context, podSandboxID string) error
}

// PodState returns the state of the pod workers. The methods have the names of the kubelet's
// methods; package lifecycle/podworker implements them. After a decision, the pod may be defined
// again. Therefore a pass calls these methods again right before it removes a container that was
// never started, or the log folder of a pod.
type PodState interface {
	// ShouldPodContentBeRemoved reports whether the pod's containers and their data can be
	// removed: the pod was evicted, the pod was deleted and has terminated, or the pod is
	// unknown.
	ShouldPodContentBeRemoved(uid types.UID) bool
	// ShouldPodRuntimeBeRemoved reports whether no container of the pod runs or will run:
	// the pod has terminated or is unknown.
	ShouldPodRuntimeBeRemoved(uid types.UID) bool
}

// EventRecorder records events. The recorders of client-go implement it.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// DefaultPodLogs and DefaultContainerLogs are the kubelet's log folders.
const (
	DefaultPodLogs       = "/var/log/pods"
	DefaultContainerLogs = "/var/log/containers"
)

// Event reasons of the kubelet.
const (
	// ReasonFailed is the reason of the event about a pass with failures.
	ReasonFailed = "ContainerGCFailed"
	// ReasonKilling is the reason of the event about a container in an unknown state that
	// is stopped before it is removed.
	ReasonKilling = "Killing"
	// ReasonFailedPreStop is the reason of the event about a failed preStop hook of a
	// container in an unknown state.
	ReasonFailedPreStop = "FailedPreStopHook"
)

// Config configures a [Manager].
type Config struct {
	// Runtime lists containers and sandboxes. Required.
	Runtime Runtime
	// Remover removes containers and sandboxes. It is usually the same client as Runtime.
	// Required.
	Remover Remover
	// Pods reports which pods have terminated or were deleted. Required.
	Pods PodState
	// SourcesReady reports whether every pod source has been read: before that, running
	// pods may look deleted. While it returns false, nothing is removed. Required.
	SourcesReady func() bool
	// Policy limits how many dead containers are kept.
	Policy Policy
	// PodLogs is the folder with one folder per pod, such as [DefaultPodLogs]. Default:
	// pod logs are not removed.
	PodLogs string
	// ContainerLogs is the folder with links to the logs, such as [DefaultContainerLogs].
	// Default: links are not removed.
	ContainerLogs string
	// Owned reports whether an object is owned by this agent. An object that is not owned is never
	// removed. Owned must neither retain nor modify the labels. Default: all objects are owned, as
	// in the kubelet. If a container or sandbox of a pod is not owned, the log folder of the pod is
	// kept, whatever Owned reports for the folder.
	Owned func(Object) bool
	// Snapshot replaces the lists of Runtime, for callers that already have a snapshot.
	// The Manager does not modify the result. Default: ListPodSandbox and ListContainers.
	Snapshot func(context.Context) (Snapshot, error)
	// Period is the time from one full pass of [Manager.Run] to the next. Default 1m.
	Period time.Duration
	// Workers is the maximum number of pods that are cleaned up at the same time. Default
	// 4.
	Workers int
	// CallTimeout limits each call to the Remover, in real time even with a fake clock. For
	// StopContainer, the grace period is added to CallTimeout. When the number of timed-out calls
	// of a pass reaches Workers, the pass starts no more removals. ContainerStatus calls are
	// limited to CallTimeout or ten seconds, whichever is shorter. Default 2m.
	CallTimeout time.Duration
	// PreStop runs the preStop hook of a container in an unknown state before the
	// container is stopped, for at most the grace period of the container. Default: no
	// hook is run.
	PreStop func(context.Context, Container) error
	// Recorder records events: warnings about failures, and events about containers in an
	// unknown state that are stopped. It may be called concurrently. Optional.
	Recorder EventRecorder
	// Node is the object of the event about failures. Required with Recorder.
	Node runtime.Object
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and tests. Optional.
	Observer Observer
}

// Policy limits how many dead containers are kept; see [PlanRemovals] for the rules in
// order. The zero value has the kubelet's defaults.
type Policy struct {
	// MinAge is how long a container is exempt from all rules after its exit. Default 0.
	MinAge time.Duration
	// MaxPerPodContainer is how many dead containers with the same name in the same pod
	// are kept. A negative number means no limit. Default (nil) 1.
	MaxPerPodContainer *int
	// MaxContainers is how many dead containers are kept in total. A negative number means
	// no limit. Default (nil) -1.
	MaxContainers *int
}

// Observer holds optional callbacks. Planned is called by one pass at a time; Removed and
// Collected may be called concurrently. No callback may block or start a pass.
type Observer struct {
	// Planned is called when a pass has decided what to remove.
	Planned func(Plan)
	// Removed is called after each removal, with its error.
	Removed func(object Object, took time.Duration, err error)
	// Collected is called at the end of a pass.
	Collected func(Result, error)
}

// Validate returns every problem with c, joined.
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
	check(c.Policy.MinAge < 0, "invalid minimum garbage collection age: %v", c.Policy.MinAge) // the kubelet's text
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
	// Copies, so that the caller cannot change them later.
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

// limit returns *n, or the default if n is nil.
func limit(n *int, or int) int {
	if n == nil {
		return or
	}
	return *n
}
