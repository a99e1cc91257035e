package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// oomSources returns the sources of OOM kills: the kernel's log and the counters of cgroups.
func oomSources(c LocalConfig) ([]oomwatch.Source, error) {
	kmsg, err := oomwatch.NewKmsg(oomwatch.KmsgConfig{Clock: c.Clock})
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	return []oomwatch.Source{kmsg, &counters{machine: c.machine, clock: c.Clock}}, nil
}

// counters is an [oomwatch.Counters] that finds the cgroup hierarchy with the memory controller
// in each call of Watch.
type counters struct {
	machine machine
	clock   clock.Clock

	mount  string // the mount point used by source
	source *oomwatch.Counters
}

var _ oomwatch.Source = (*counters)(nil)

// Name returns "cgroup".
func (*counters) Name() string { return "cgroup" }

// Position returns the zero value: counters cannot be resumed.
func (*counters) Position() oomwatch.Position { return oomwatch.Position{} }

// Watch emits the OOM kills in all cgroups of the machine until ctx is done.
func (c *counters) Watch(ctx context.Context, from oomwatch.Position, emit func(oomwatch.Observation)) error {
	// Reuse the source of an earlier call, because it knows which counts were emitted already.
	if mount := c.findMount(); c.source == nil || c.mount != mount {
		source, err := oomwatch.NewCounters(oomwatch.CountersConfig{
			Mount: mount, Parent: "/", VMStat: c.machine.path("/proc/vmstat"), Clock: c.clock,
		})
		if err != nil {
			return err
		}
		c.mount, c.source = mount, source
	}
	return c.source.Watch(ctx, from, emit)
}

// findMount returns the mount point of the cgroup hierarchy with the memory controller. On
// cgroup v2, this is the only hierarchy.
func (c *counters) findMount() string {
	mount := c.machine.path("/sys/fs/cgroup")
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return mount
	}
	return filepath.Join(mount, "memory")
}
