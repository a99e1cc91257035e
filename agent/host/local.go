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
	// Runtime returns what containers use. Optional; without it figures of pods come from
	// cgroups and folders only.
	Runtime stats.Runtime
	// Images returns which filesystem holds the images. Optional; without it
	// [Host].ImageFS is nil.
	Images stats.ImageService
	// NodeName is the name of the node in the stats summary.
	NodeName string

	// Root is the agent's root directory, an absolute path: "pods" in it has the volumes of
	// pods. Its filesystem is the node's ephemeral storage. It need not exist yet. Empty:
	// the agent has no volumes, and the filesystem of / is the ephemeral storage.
	Root string
	// PodLogs is the folder of the pods' logs, an absolute path. Empty: the disk usage of
	// logs is not measured.
	PodLogs string
	// PodsCgroup is the cgroup of all pods, such as "/kubepods.slice". Default: that or
	// "/kubepods", whichever exists.
	PodsCgroup string
	// ResolvConf is the path of the machine's resolv.conf, absolute. Default
	// /etc/resolv.conf.
	ResolvConf string
	// NoLookups is the kubelet's empty resolvConf: see [Facts].NoLookups. ResolvConf has to
	// be empty then.
	NoLookups bool

	// Thresholds are the agent's eviction thresholds. While the node is below one of them,
	// the figures of pods are newer than the measurement that found this.
	Thresholds []eviction.Threshold
	// VolumePeriod is the age at which the disk usage of a pod's volumes is measured again.
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

// machine is where Local finds the machine.
type machine struct {
	root       string                     // the folder that has /proc, /sys and /etc
	interfaces func() ([]net.Addr, error) // the addresses of its network interfaces
}

// noFolder is a path at which nothing exists.
const noFolder = "/nonexistent"

// Validate reports every problem with c, joined.
func (c LocalConfig) Validate() error {
	var errs []error
	for _, f := range []struct{ name, path string }{
		{"Root", c.Root},
		{"PodLogs", c.PodLogs},
		{"PodsCgroup", c.PodsCgroup},
		{"ResolvConf", c.ResolvConf},
	} {
		// The path of a cgroup begins with a slash on every system.
		if f.path != "" && !filepath.IsAbs(f.path) && f.path[0] != '/' {
			errs = append(errs, fmt.Errorf("field %s: path %q is not absolute", f.name, f.path))
		}
	}
	if c.NoLookups && c.ResolvConf != "" {
		errs = append(errs, fmt.Errorf("field NoLookups: excludes ResolvConf %q", c.ResolvConf))
	}
	if c.VolumePeriod < 0 {
		errs = append(errs, fmt.Errorf("field VolumePeriod: %v is negative", c.VolumePeriod))
	}
	return errors.Join(errs...)
}

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

// Local returns the machine of this process. It opens and starts nothing: each capability
// reads what it needs when it is used. On Linux the Host has every capability, except
// ImageFS if c has no Images. On other systems it has Facts alone.
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
	h.Mounter = volumes.NewMounter()
	if c.Images != nil {
		h.ImageFS = imagegc.RuntimeFS{Runtime: c.Images}
	}
	h.OOM, err = oomSources(c)
	return h, err
}
