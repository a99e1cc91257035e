package oomwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// CountersConfig configures a [Counters].
type CountersConfig struct {
	// Mount is the mount point of the hierarchy with the memory controller:
	// /sys/fs/cgroup for v2, /sys/fs/cgroup/memory for v1. Required.
	Mount string
	// Parent is the cgroup of all pods relative to Mount, such as "/kubepods". "/" watches
	// every cgroup of the machine. The cgroup need not exist yet. Required.
	Parent string
	// VMStat is the file with the kernel's count of all kills, by default /proc/vmstat.
	// After the first read, the cgroups are read again only when this count has risen (twice
	// for each rise) or cannot be read, or when the last read has failed.
	VMStat string
	// Period is the time between two reads of VMStat. Default 1 s.
	Period time.Duration
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
}

// Validate returns every problem with c, joined.
func (c CountersConfig) Validate() error {
	var errs []error
	if !filepath.IsAbs(c.Mount) {
		errs = append(errs, fmt.Errorf("field Mount: %q is not an absolute path", c.Mount))
	}
	if !path.IsAbs(c.Parent) {
		errs = append(errs, fmt.Errorf("field Parent: %q does not start with /", c.Parent))
	}
	if c.Period < 0 {
		errs = append(errs, fmt.Errorf("field Period: %s is negative", c.Period))
	}
	return errors.Join(errs...)
}

// Counters is the source that reads the kernel's kill counter of each cgroup:
// memory.events.local and memory.events of cgroup v2, memory.oom_control of v1 (since
// Linux 4.13). It needs only the permission to read these files. Counters observes kills
// whose log records were overwritten, and finds the victim's cgroup if the log does not
// name it.
//
// If a cgroup was removed before its counters were read, its kills are reported for the
// parent cgroup, because memory.events of the parent includes them. v1 has no counter that
// includes the kills of removed cgroups, so on v1 Counters does not report these kills.
type Counters struct {
	cfg CountersConfig
	// reported has the counter values up to which kills were reported, by the path of the
	// cgroup. It is nil before the first read, which reports no kills.
	reported  map[string]tally
	failed    bool      // the last read was incomplete
	lastCount uint64    // the kernel's count at the last read
	since     time.Time // all rises of counters up to this time were emitted
}

// tally has the counters of a cgroup: kills in the cgroup itself, group kills in it, and
// kills in its subtree.
type tally struct{ own, groups, subtree uint64 }

// reading has the counters that were read from the files of a cgroup.
type reading struct {
	cgroup string
	tally
}

var _ Source = (*Counters)(nil)

// NewCounters returns the source. The error reports every problem with cfg.
func NewCounters(cfg CountersConfig) (*Counters, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("oomwatch: invalid config of counters: %w", err)
	}
	cfg.VMStat = cmp.Or(cfg.VMStat, "/proc/vmstat")
	cfg.Period = cmp.Or(cfg.Period, time.Second)
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Counters{cfg: cfg}, nil
}

// Name returns "cgroup".
func (c *Counters) Name() string { return "cgroup" }

// Position returns the zero value: counters cannot be resumed.
func (c *Counters) Position() Position { return Position{} }

// Watch reads the kernel's count of all kills every Period until ctx is done. When the
// count has risen, it reads the cgroups: see [CountersConfig].VMStat. Kills from before the
// first read are not reported; cgroups that are created later start at zero. When Watch is
// called again, it continues where it stopped. It must not be called concurrently.
func (c *Counters) Watch(ctx context.Context, _ Position, emit func(Observation)) error {
	if !exists(filepath.Join(c.cfg.Mount, "cgroup.controllers")) && !exists(filepath.Join(c.cfg.Mount, "memory.usage_in_bytes")) {
		return fmt.Errorf("watch the counters of cgroups: no memory controller in %s", c.cfg.Mount)
	}
	for again := true; ctx.Err() == nil; {
		// The kernel increases the count in VMStat before the counter of the cgroup. Look
		// may read the cgroup's counter in between. Therefore the cgroups are read once
		// more after each rise of the count.
		now := c.cfg.Clock.Now()
		kills, counted := c.killCount()
		rose := !counted || kills != c.lastCount
		if rose || again || c.reported == nil || c.failed {
			c.Look(emit)
			emit(Observation{}) // the source is ready
		}
		if c.lastCount, again = kills, rose; !c.failed {
			c.since = now
		}
		timer := c.cfg.Clock.NewTimer(c.cfg.Period)
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
	}
	return nil
}

// killCount returns the kernel's count of all kills. ok is false if the count cannot be
// read: kernels before Linux 4.13 do not have it. Watch then reads the cgroups every
// Period.
func (c *Counters) killCount() (n uint64, ok bool) {
	content, err := os.ReadFile(c.cfg.VMStat)
	text := string(content)
	return count(text, "oom_kill"), err == nil && strings.Contains(text, "\noom_kill ")
}

// Look reads all counters once and emits Observations of the kills since the last call. A
// kill in a cgroup is not emitted again for the cgroups above it, whose counters also rise.
// If a read fails with an error that may be temporary, Look emits nothing, and the next call
// emits all kills since the last successful call. Look is a single step of Watch, for callers
// with their own schedule.
func (c *Counters) Look(emit func(Observation)) {
	now := c.cfg.Clock.Now()
	all, err := c.read(path.Clean(c.cfg.Parent))
	if c.failed = err != nil; c.failed {
		return
	}
	report := func(cgroup string, n, groups uint64) {
		kill := Kill{Time: now, VictimCgroup: cgroup, Kills: int(n), counted: int(n)}
		if groups > 0 { // the kernel counts the chosen process of a group kill twice: alone, and then with the group
			kill.Kind, kill.Kills = Group, int(n-min(groups, n-1))
		}
		emit(Observation{Counter: true, Since: c.since, Kill: kill})
	}
	reported, below := map[string]tally{}, map[string]uint64{}
	for _, r := range slices.Backward(all) { // each cgroup after its descendants
		t := c.reported[r.cgroup]
		if c.reported == nil {
			t = r.tally
		} else if r.own < t.own {
			t = tally{} // a new cgroup with the same name
		}
		kills := below[r.cgroup]
		if n := r.own - t.own; n > 0 {
			report(r.cgroup, n, r.groups-min(r.groups, t.groups))
			kills += n
		}
		t.subtree += kills
		if r.subtree > t.subtree {
			report(r.cgroup, r.subtree-t.subtree, 0)
			kills += r.subtree - t.subtree
			t.subtree = r.subtree
		}
		reported[r.cgroup] = tally{r.own, r.groups, t.subtree}
		below[path.Dir(r.cgroup)] += kills
	}
	c.reported, c.since = reported, now
}

// read reads the counters of a cgroup and of all cgroups below it, each cgroup before its
// children. If a kill happens between the reads of the parent and of the child, Look
// reports it for the child, and does not report it again for the parent.
func (c *Counters) read(cgroup string) (all []reading, err error) {
	dir := filepath.Join(c.cfg.Mount, filepath.FromSlash(cgroup))
	entries, err := os.ReadDir(dir)
	if isMissing(err) {
		return nil, nil // the parent's counter includes the kills in a removed cgroup
	}
	content := func(file string) string {
		b, e := os.ReadFile(filepath.Join(dir, file))
		if e != nil && !isMissing(e) {
			err = e
		}
		return string(b)
	}
	r := reading{cgroup: cgroup}
	if exists(filepath.Join(c.cfg.Mount, "cgroup.controllers")) { // version 2
		r.subtree = count(content("memory.events"), "oom_kill")
		local := content("memory.events.local")
		r.own, r.groups = count(local, "oom_kill"), count(local, "oom_group_kill")
	} else {
		r.own = count(content("memory.oom_control"), "oom_kill")
	}
	all = []reading{r}
	for _, entry := range entries {
		if entry.IsDir() && err == nil {
			var below []reading
			below, err = c.read(path.Join(cgroup, entry.Name()))
			all = append(all, below...)
		}
	}
	return all, err
}

// count returns the number after the given name in a file whose lines are names and
// numbers. It returns zero if no line has the name.
func count(content, name string) uint64 {
	_, after, _ := strings.Cut("\n"+content, "\n"+name+" ")
	n, _ := decimal(after)
	return uint64(max(n, 0))
}

// isMissing reports whether a file does not exist, or can never be read by this process.
// Other errors, such as too many open files, may be temporary.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENODEV)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
