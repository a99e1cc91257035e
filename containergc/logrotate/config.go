package logrotate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/internal/quantity"
)

// Runtime is the part of a container runtime that rotation calls. It is a literal subset
// of cri.RuntimeService of k8s.io/cri-api. A pass lists the containers once, or never if
// [Config].Running is set. ContainerStatus is called once for each container whose log path
// is unknown, and again only after an error.
type Runtime interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	ReopenContainerLog(ctx context.Context, containerID string) error
}

// DefaultPodLogs is the kubelet's log folder.
const DefaultPodLogs = "/var/log/pods"

// Log is the log of a running container.
type Log struct {
	// ContainerID is the ID of the container.
	ContainerID string
	// Path is the absolute path of the file that the runtime appends to, as in the
	// container's status.
	Path string
}

// Policy configures when logs are rotated. The zero Policy has the kubelet's defaults.
type Policy struct {
	// MaxSizeBytes is the size at which a log is rotated; see [ParseMaxSize]. A negative
	// size disables rotation. Default 10 MiB.
	MaxSizeBytes int64
	// MaxFiles is the maximum number of files of one log, including the file in use. It
	// must be more than 1. Default 5.
	MaxFiles int
	// Workers is the maximum number of logs that are rotated at the same time. Default 1.
	Workers int
	// Interval is the time from the end of a pass to the start of the next, at least 3s.
	// Default 10s.
	Interval time.Duration
}

// Config configures a [Rotator].
type Config struct {
	// Policy has the settings that programs usually expose to their users.
	Policy

	// Runtime lists containers and reopens logs. Required.
	Runtime Runtime
	// Running returns the logs of all running containers, for callers that already know
	// them. Default: the running containers are listed with Runtime.
	Running func(context.Context) ([]Log, error)
	// Owned reports whether a container is owned by this agent; the logs of other
	// containers are ignored. Owned is not used if Running is set. Default: this agent owns
	// all containers.
	Owned func(*runtimeapi.Container) bool
	// PodLogs is the folder that contains the logs. Files outside this folder are never changed,
	// even if a link in the folder points to them. Default [DefaultPodLogs].
	PodLogs string
	// CallTimeout limits each call about one container, in real time even with a fake
	// clock. Default 10s.
	CallTimeout time.Duration
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and tests. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They must not block or start a pass. Rotated may be
// called concurrently.
type Observer struct {
	// Rotated is called after each rotation, even if the rotation has failed.
	Rotated func(Rotation)
	// Checked is called at the end of a pass.
	Checked func(Result, error)
}

// Rotation is the result of rotating one log.
type Rotation struct {
	Log
	// SizeBytes is the log's size before the rotation.
	SizeBytes int64
	// To is the new path of the renamed log file, relative to PodLogs. It is empty if the
	// file was not renamed or has its old name again.
	To string
	// Took is how long the rotation took, including compression of older files.
	Took time.Duration
	// Err is the error of the rotation. The log may have been rotated nevertheless, for
	// example if an older file could not be compressed.
	Err error
}

// ParseMaxSize parses a size as in the kubelet's containerLogMaxSize, such as "10Mi".
func ParseMaxSize(size string) (int64, error) {
	q, err := quantity.Parse(size)
	if err != nil {
		return 0, fmt.Errorf("failed to parse container log max size %q: %w", size, err)
	}
	n, ok := q.AsInt64()
	if !ok || n == 0 {
		return 0, fmt.Errorf("failed to parse container log max size %q: invalid max log size", size)
	}
	return n, nil
}

// Validate returns every problem with c, joined. It uses the kubelet's message if the
// kubelet has one.
func (c Config) Validate() error {
	const shortest = 3 * time.Second
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Runtime == nil, "field Runtime is required")
	check(c.MaxFiles != 0 && c.MaxFiles <= 1, "invalid MaxFiles %d, must be > 1", c.MaxFiles)
	check(c.Workers < 0, "invalid configuration: containerLogMaxWorkers must be greater than or equal to 1")
	check(c.Interval != 0 && c.Interval < shortest,
		"invalid configuration: containerLogMonitorInterval must be a positive time duration greater than or equal to 3s")
	check(c.CallTimeout < 0, "field CallTimeout: %v is negative", c.CallTimeout)
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.PodLogs = cmp.Or(c.PodLogs, DefaultPodLogs)
	c.MaxSizeBytes = cmp.Or(c.MaxSizeBytes, 10<<20)
	c.MaxFiles = cmp.Or(c.MaxFiles, 5)
	c.Workers = cmp.Or(c.Workers, 1)
	c.Interval = cmp.Or(c.Interval, 10*time.Second)
	c.CallTimeout = cmp.Or(c.CallTimeout, 10*time.Second)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Owned == nil {
		c.Owned = func(*runtimeapi.Container) bool { return true }
	}
	if c.Observer.Rotated == nil {
		c.Observer.Rotated = func(Rotation) {}
	}
	if c.Observer.Checked == nil {
		c.Observer.Checked = func(Result, error) {}
	}
	return c
}
