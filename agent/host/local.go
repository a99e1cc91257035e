package host

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	goruntime "runtime"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

// LocalConfig configures [Local]. The zero value is valid.
type LocalConfig struct {
	// Runtime returns the resource usage of containers. If nil, figures of pods only come from
	// cgroups and folders. Optional.
	Runtime stats.Runtime
	// Images returns the filesystem of the images. If nil, [Host].ImageFS is nil. Optional.
	Images stats.ImageService
	// NodeName is the name of the node in the stats summary.
	NodeName string

	// Root is the absolute path of the agent's root directory, which need not exist yet. Its
	// folder "pods" has the volumes of pods, and its filesystem is the node's ephemeral storage.
	// If empty, the agent has no volumes, and the filesystem of / is the ephemeral storage.
	Root string
	// PodLogs is the absolute path of the folder of the pods' logs. If empty, the disk usage of
	// logs is not measured.
	PodLogs string
	// PodsCgroup is the path of the cgroup of all pods. Default: "/kubepods.slice" or
	// "/kubepods", depending on which exists.
	PodsCgroup string
	// ResolvConf is the absolute path of the machine's resolv.conf. Default /etc/resolv.conf.
	ResolvConf string
	// NoLookups has the effect of an empty resolvConf in the kubelet's configuration: see
	// [Facts].NoLookups. If NoLookups is set, ResolvConf must be empty.
	NoLookups bool

	// Thresholds are the agent's eviction thresholds. While a signal is below its threshold,
	// Stats.Pods waits up to 2 s for figures that are newer than the last measurement of the node.
	// So eviction ranks the pods by their current usage.
	Thresholds []eviction.Threshold
	// VolumePeriod is the age after which the disk usage of a pod's volumes is measured again.
	// Default 1m.
	VolumePeriod time.Duration
	// UsageEvents enables wake-ups by memory usage on cgroup v1: see [stats.Config].
	UsageEvents bool

	// Clock is the time source. Default: the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger

	machine machine // the zero value except in tests
}

// machine is the location of the machine's files.
type machine struct {
	root       string                     // the folder that contains /proc, /sys and /etc
	interfaces func() ([]net.Addr, error) // returns the addresses of the network interfaces
}

// noFolder is a path at which nothing exists.
const noFolder = "/nonexistent"

// Validate returns all problems with c as one error.
func (c LocalConfig) Validate() error {
	var errs []error
	for _, f := range []struct{ name, path string }{
		{"Root", c.Root},
		{"PodLogs", c.PodLogs},
		{"PodsCgroup", c.PodsCgroup},
		{"ResolvConf", c.ResolvConf},
	} {
		// The path of a cgroup starts with a slash on every operating system.
		if f.path != "" && !filepath.IsAbs(f.path) && f.path[0] != '/' {
			errs = append(errs, fmt.Errorf("field %s: path %q is not absolute", f.name, f.path))
		}
	}
	if c.NoLookups && c.ResolvConf != "" {
		errs = append(errs, fmt.Errorf("field NoLookups: can't be combined with ResolvConf %q", c.ResolvConf))
	}
	if c.VolumePeriod < 0 {
		errs = append(errs, fmt.Errorf("field VolumePeriod: %v is negative", c.VolumePeriod))
	}
	return errors.Join(errs...)
}

// withDefaults returns c with the defaults of the fields that are not set.
func (c LocalConfig) withDefaults() LocalConfig {
	c.Root = cmp.Or(c.Root, "/")
	c.PodLogs = cmp.Or(c.PodLogs, noFolder)
	c.ResolvConf = cmp.Or(c.ResolvConf, c.machine.path("/etc/resolv.conf"))
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.machine.interfaces == nil {
		c.machine.interfaces = net.InterfaceAddrs
	}
	return c
}

// path returns the path of a file of the machine.
func (m machine) path(name string) string { return filepath.Join(m.root, name) }

// Local returns the Host of this process's machine. It opens and starts nothing: each
// capability reads its files when it is used. On Linux, the Host has every capability except Dial,
// because the agent's default for Dial is right for this machine. If c.Images is nil, ImageFS is
// nil too. On other operating systems, the Host only has Facts.
func Local(c LocalConfig) (*Host, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("host: invalid config: %w", err)
	}
	c = c.withDefaults()
	h := &Host{Facts: newReader(c).read}
	if goruntime.GOOS != "linux" {
		return h, nil
	}
	provider, err := stats.New(stats.Config{
		Runtime: c.Runtime, Images: c.Images, NodeName: c.NodeName,
		ProcRoot: c.machine.path("/proc"), CgroupRoot: c.machine.path("/sys/fs/cgroup"), PodsCgroup: c.PodsCgroup,
		NodePath: c.Root, LogPath: c.PodLogs,
		WalkPeriod: c.VolumePeriod, UsageEvents: c.UsageEvents, Clock: c.Clock, Logger: c.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	s := newStatistics(provider, c)
	h.Stats, h.Waker, h.Run = s, s, s.run
	h.Cgroups = provider.Cgroups // needs no calls of s.enter and s.leave, because it leaves no file open
	h.Mounter = volumes.NewMounter()
	if c.Images != nil {
		h.ImageFS = imagegc.RuntimeFS{Runtime: c.Images}
	}
	h.OOM, err = oomSources(c)
	return h, err
}
