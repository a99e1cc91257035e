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

// Runtime is the part of a container runtime that rotation calls, a literal subset
// of cri.RuntimeService of k8s.io/cri-api. A pass lists the containers once, and not
// at all with [Config].Running; a container's status is asked for once in its life.
type Runtime interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	ReopenContainerLog(ctx context.Context, containerID string) error
}

// DefaultPodLogs is the kubelet's folder of logs.
const DefaultPodLogs = "/var/log/pods"

// Log is the log of a running container.
type Log struct {
	// ContainerID is whose it is.
	ContainerID string
	// Path is the file that the runtime appends to, as the container's status says.
	Path string
}

// Policy says when logs are rotated. The zero Policy is the kubelet's.
type Policy struct {
	// MaxSizeBytes is the size from which on a log is rotated; see [ParseMaxSize].
	// Negative: never. Default 10 MiB.
	MaxSizeBytes int64
	// MaxFiles is how many files there are of one log, that in use included. More
	// than 1. Default 5.
	MaxFiles int
	// Workers is how many logs are rotated at a time. Default 1.
	Workers int
	// Interval is the time from the end of a pass to the next, at least 3s. Default
	// 10s.
	Interval time.Duration
}

// Config configures a [Rotator].
type Config struct {
	// Policy has the settings that programs leave to their users.
	Policy

	// Runtime lists containers and reopens logs. Required.
	Runtime Runtime
	// Running returns the logs of all running containers, for those who know them
	// already. Default: Runtime is asked.
	Running func(context.Context) ([]Log, error)
	// Owned says whether a container is ours; the logs of others are left alone. Not
	// used with Running. Default: all are.
	Owned func(*runtimeapi.Container) bool
	// PodLogs is the folder that the logs are below. Nothing outside of it is
	// touched, whatever links lie in it. Default [DefaultPodLogs].
	PodLogs string
	// CallTimeout bounds each call about one container, in real time even on a fake
	// clock. Default 10s.
	CallTimeout time.Duration
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives what metrics and tests want to know. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They must not block or start a pass; Rotated may
// run on several goroutines at a time.
type Observer struct {
	// Rotated is called after each log that was rotated, or should have been.
	Rotated func(Rotation)
	// Checked is called at the end of a pass.
	Checked func(Result, error)
}

// Rotation is what became of one log.
type Rotation struct {
	Log
	// SizeBytes is how large it was.
	SizeBytes int64
	// To is the path below PodLogs that it has now; empty if it was not renamed.
	To string
	// Took is how long that took, compression of older files included.
	Took time.Duration
	// Err is what went wrong. The log may be rotated all the same, such as when an
	// older one could not be compressed.
	Err error
}

// ParseMaxSize reads a size as in the kubelet's containerLogMaxSize, such as "10Mi".
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

// Validate reports every problem with c, joined, in the kubelet's words where it has
// some.
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
