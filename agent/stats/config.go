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

// Runtime returns the resource usage of containers. It has two of the methods of cri.RuntimeService
// of k8s.io/cri-api.
type Runtime interface {
	ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
	ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error)
}

// ImageService returns the locations of images and writable layers. It has one of the methods of
// cri.ImageManagerService.
type ImageService interface {
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Config configures a [Provider].
type Config struct {
	// Runtime is the container runtime. Refresh and Summary call it, Node and Pods do not. If
	// Runtime is nil, Pods returns only the logs of containers, and Summary returns no containers
	// and no network figures of pods. Optional.
	Runtime Runtime
	// Images returns the filesystems of images and writable layers; Refresh calls it. If Images
	// is nil, images are at ImagePath and writable layers at ContainerPath. Optional.
	Images ImageService
	// NodeName is the name of the node in the summary.
	NodeName string

	// ProcRoot is the mount point of proc. Default /proc.
	ProcRoot string
	// CgroupRoot is the mount point of cgroups, of either version. Default /sys/fs/cgroup.
	CgroupRoot string
	// PodsCgroup is the cgroup of all pods, below CgroupRoot. A name that ends in ".slice"
	// means the systemd driver. Default: /kubepods.slice or /kubepods, whichever exists.
	PodsCgroup string
	// NodePath is the root directory of the agent. It is on the filesystem of volumes, and its
	// folder "pods" has a folder for each pod, named after the UID. Default /var/lib/kubelet.
	NodePath string
	// LogPath is the directory with a folder for the logs of each pod, NAMESPACE_NAME_UID.
	// Default /var/log/pods.
	LogPath string
	// ImagePath is a path on the filesystem of images, and ContainerPath is a path on the
	// filesystem of writable layers. Both must be empty if Images is set. Default NodePath.
	ImagePath, ContainerPath string

	// Estimator selects how available memory is calculated. Default MemAvailable.
	Estimator Estimator
	// Period is the time in Run between the end of a refresh and the start of the next refresh.
	// Default 10s.
	Period time.Duration
	// WalkPeriod is the age at which Refresh measures a pod's disk usage again. Refresh
	// measures all pods earlier if the usage of the filesystems has grown. Default 1m.
	WalkPeriod time.Duration
	// WalkEntries is the maximum number of files that one refresh examines to measure volumes
	// and logs: 50,000 files take about 0.1 s. The next refresh continues with the remaining
	// files. Default 50000.
	WalkEntries int

	// Stall and StallWindow configure the wake-up by memory pressure. The kernel wakes up Watch
	// when processes have waited for memory for a total of Stall within StallWindow. The kernel
	// accepts windows of 500 ms to 10 s. Default 150ms in 1s.
	Stall, StallWindow time.Duration
	// UsageEvents enables a wake-up on cgroup version 1 when memory usage crosses a threshold.
	// The default is false, because these events have caused lockups in old kernels
	// (kubernetes#37853).
	UsageEvents bool

	// Clock is the time source of all figures, except of figures from the runtime, which have the
	// runtime's times. Default: the system clock.
	Clock clock.Clock
	// Logger receives errors of Run. Default: discard.
	Logger *slog.Logger
	// Observer has callbacks for metrics and tests. Optional.
	Observer Observer
}

// Observer has optional callbacks. They must not block or call the provider.
type Observer struct {
	// Refreshed is called by Refresh with its results.
	Refreshed func(Refreshed, error)
	// Watching is called by Watch with the names of the watched files, when Watch starts and when
	// the number of watched files changes.
	Watching func(sources []string)
}

// The kernel's limits for the window of a pressure trigger.
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
		// A cgroup's path starts with a slash on every operating system.
		if p.path != "" && !filepath.IsAbs(p.path) && p.path[0] != '/' {
			errs = append(errs, fmt.Errorf("field %s: %q is not absolute", p.name, p.path))
		}
	}
	if c.Images != nil && (c.ImagePath != "" || c.ContainerPath != "") {
		errs = append(errs, errors.New("fields ImagePath and ContainerPath have no effect if Images is set"))
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
		errs = append(errs, fmt.Errorf("field StallWindow: must be between %v and %v, is %v", minWindow, maxWindow, d.StallWindow))
	}
	if d.Stall < time.Microsecond || d.Stall > d.StallWindow {
		errs = append(errs, fmt.Errorf("field Stall: %v must be at least 1µs and at most StallWindow (%v)", d.Stall, d.StallWindow))
	}
	return errors.Join(errs...)
}

// withDefaults returns c with the defaults of the fields that are not set.
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
