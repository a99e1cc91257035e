package stats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// Runtime is the part of a container runtime that tells what containers use, a
// literal subset of cri.RuntimeService of k8s.io/cri-api.
type Runtime interface {
	ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
	ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error)
}

// ImageService is the part that tells where images and containers are, a literal
// subset of cri.ImageManagerService.
type ImageService interface {
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Config configures a [Provider].
type Config struct {
	// Runtime is asked what containers use, by Refresh and Summary and never by
	// Node or Pods. Optional; without it there are no figures of containers.
	Runtime Runtime
	// Images is asked by Refresh which filesystems have images and writable
	// layers. Optional; without it they are at ImagePath and ContainerPath.
	Images ImageService
	// NodeName is told in the summary.
	NodeName string

	// ProcRoot is where proc is mounted. Default /proc.
	ProcRoot string
	// CgroupRoot is where cgroups are mounted, of either version. Default
	// /sys/fs/cgroup.
	CgroupRoot string
	// PodsCgroup is the cgroup of all pods, below CgroupRoot. Its name tells
	// which driver made it: one that ends in ".slice" is systemd's. Default:
	// /kubepods.slice or /kubepods, whichever exists.
	PodsCgroup string
	// NodePath is on the filesystem of volumes: the root directory of the agent,
	// in which "pods" has a folder for each UID. Default /var/lib/kubelet.
	NodePath string
	// LogPath has a folder for the logs of each pod, NAMESPACE_NAME_UID. Default
	// /var/log/pods.
	LogPath string
	// ImagePath and ContainerPath are on the filesystems of images and of
	// writable layers, where Images is not given. Default NodePath.
	ImagePath, ContainerPath string

	// Estimator says how available memory is calculated. Default MemAvailable.
	Estimator Estimator
	// Period is the time between the end of a refresh and the beginning of the
	// next one in Run. Default 10s.
	Period time.Duration
	// WalkPeriod is how old the disk usage of a pod becomes before it is measured
	// again, unless the filesystem has grown meanwhile. Default 1m.
	WalkPeriod time.Duration
	// WalkEntries is how many files one refresh looks at, at most, to find out
	// what volumes and logs take: 50,000 files take about 0.1 s. What is not
	// finished goes on in the next one. Default 50000.
	WalkEntries int

	// Stall and StallWindow are the wake-up by pressure: processes waited for
	// memory for Stall within StallWindow, together. The kernel takes windows of
	// 500 ms to 10 s. Default 150ms in 1s.
	Stall, StallWindow time.Duration
	// UsageEvents asks on cgroup version 1 for a wake-up when the memory in use
	// passes a threshold. It is off by default because old kernels have locked up
	// with it (kubernetes#37853).
	UsageEvents bool

	// Clock tells the time of each figure. Default the system clock.
	Clock clock.Clock
	// Logger receives what Run can't return. Default: discard.
	Logger *slog.Logger
	// Observer receives what metrics and tests want to know. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They must not block or call the provider.
type Observer struct {
	// Refreshed is called after each refresh, with how many files it looked at.
	Refreshed func(Refreshed, error)
	// Watching is called by Watch once it does, with what it watches.
	Watching func(sources []string)
}

// The windows that the kernel takes.
const (
	minWindow = 500 * time.Millisecond
	maxWindow = 10 * time.Second
)

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	errs := []error{c.Estimator.validate()}
	paths := []struct{ name, path string }{
		{"ProcRoot", c.ProcRoot},
		{"CgroupRoot", c.CgroupRoot},
		{"PodsCgroup", c.PodsCgroup},
		{"NodePath", c.NodePath},
		{"LogPath", c.LogPath},
		{"ImagePath", c.ImagePath},
		{"ContainerPath", c.ContainerPath},
	}
	for _, p := range paths {
		// A cgroup's path begins with a slash on every system.
		if p.path != "" && !filepath.IsAbs(p.path) && p.path[0] != '/' {
			errs = append(errs, fmt.Errorf("field %s: %q is not absolute", p.name, p.path))
		}
	}
	if c.Images != nil && (c.ImagePath != "" || c.ContainerPath != "") {
		errs = append(errs, errors.New("fields ImagePath and ContainerPath have no effect beside Images"))
	}
	if c.Period < 0 {
		errs = append(errs, fmt.Errorf("field Period: %v is negative", c.Period))
	}
	if c.WalkPeriod < 0 {
		errs = append(errs, fmt.Errorf("field WalkPeriod: %v is negative", c.WalkPeriod))
	}
	if c.WalkEntries < 0 {
		errs = append(errs, fmt.Errorf("field WalkEntries: %d is negative", c.WalkEntries))
	}
	d := c.withDefaults()
	if d.StallWindow < minWindow || d.StallWindow > maxWindow {
		errs = append(errs, fmt.Errorf("field StallWindow: the kernel takes %v to %v, not %v", minWindow, maxWindow, d.StallWindow))
	}
	if d.Stall < time.Microsecond || d.Stall > d.StallWindow {
		errs = append(errs, fmt.Errorf("field Stall: %v is not within the window of %v", d.Stall, d.StallWindow))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.ProcRoot = cmp.Or(c.ProcRoot, "/proc")
	c.CgroupRoot = cmp.Or(c.CgroupRoot, "/sys/fs/cgroup")
	c.NodePath = cmp.Or(c.NodePath, "/var/lib/kubelet")
	c.LogPath = cmp.Or(c.LogPath, "/var/log/pods")
	c.ImagePath = cmp.Or(c.ImagePath, c.NodePath)
	c.ContainerPath = cmp.Or(c.ContainerPath, c.NodePath)
	c.Estimator = cmp.Or(c.Estimator, MemAvailable)
	c.Period = cmp.Or(c.Period, 10*time.Second)
	c.WalkPeriod = cmp.Or(c.WalkPeriod, time.Minute)
	c.WalkEntries = cmp.Or(c.WalkEntries, 50_000)
	c.Stall = cmp.Or(c.Stall, 150*time.Millisecond)
	c.StallWindow = cmp.Or(c.StallWindow, time.Second)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observer.Refreshed == nil {
		c.Observer.Refreshed = func(Refreshed, error) {}
	}
	if c.Observer.Watching == nil {
		c.Observer.Watching = func([]string) {}
	}
	return c
}
