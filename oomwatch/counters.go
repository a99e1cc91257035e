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
	// Mount is the folder of the hierarchy that has the memory controller:
	// /sys/fs/cgroup for version 2, /sys/fs/cgroup/memory for version 1. Required.
	Mount string
	// Parent is the cgroup of all pods as seen from Mount, "/kubepods". Required;
	// "/" is every cgroup of the machine. It need not exist yet.
	Parent string
	// VMStat is the file with the kernel's count of all kills, /proc/vmstat by default.
	// As long as it stands still there is nothing to look for.
	VMStat string
	// Period is the time between two reads of that. Default 1 s.
	Period time.Duration
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
}

// Validate returns all problems with c, joined; nil if there are none.
func (c CountersConfig) Validate() error {
	var errs []error
	if !filepath.IsAbs(c.Mount) {
		errs = append(errs, fmt.Errorf("field Mount %q: want an absolute path", c.Mount))
	}
	if !path.IsAbs(c.Parent) {
		errs = append(errs, fmt.Errorf("field Parent %q: want a path that begins with /", c.Parent))
	}
	if c.Period < 0 {
		errs = append(errs, fmt.Errorf("field Period %s: want none or a positive one", c.Period))
	}
	return errors.Join(errs...)
}

// Counters is the source that reads how often the kernel has killed in each cgroup:
// memory.events.local and memory.events of version 2, memory.oom_control of version
// 1 (since Linux 4.13). It needs no right but to read them. It sees kills of which
// the log was overwritten, and knows the cgroup where the log leaves it out.
//
// The kills in a cgroup that is gone before it was looked at are told of its parent,
// whose memory.events counts them too. Version 1 has nothing like it.
type Counters struct {
	cfg CountersConfig
	// told is what has been told of each cgroup, by its path; nil before the
	// first look, which tells nothing.
	told   map[string]tally
	failed bool      // the last look could not read everything
	seen   uint64    // the kernel's count at the last look
	since  time.Time // all counters told by then
}

// tally counts kills in a cgroup itself, of those the whole groups, and in all that is
// below it.
type tally struct{ own, groups, subtree uint64 }

// reading is what was read of a cgroup.
type reading struct {
	cgroup string
	tally
}

var _ Source = (*Counters)(nil)

// NewCounters returns the source, or an error that names every problem with cfg.
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

// Position is the zero value: counters have no past to resume.
func (c *Counters) Position() Position { return Position{} }

// Watch reads the kernel's count until ctx is done, and looks when that has risen. What
// counters say at the first look is not told; later cgroups begin at zero. It may be
// called again when it has returned, by one goroutine at a time, and goes on where it
// was.
func (c *Counters) Watch(ctx context.Context, _ Position, emit func(Sighting)) error {
	if !exists(filepath.Join(c.cfg.Mount, "cgroup.controllers")) && !exists(filepath.Join(c.cfg.Mount, "memory.usage_in_bytes")) {
		return fmt.Errorf("watch the counters of cgroups: %s has no memory controller", c.cfg.Mount)
	}
	for again := true; ctx.Err() == nil; {
		// The kernel counts in this file first, so a look may come too early for
		// one that it counts in just now: hence another look after each rise.
		now := c.cfg.Clock.Now()
		kills, counted := c.kills()
		rose := !counted || kills != c.seen
		if rose || again || c.told == nil || c.failed {
			c.Look(emit)
			emit(Sighting{}) // it can see
		}
		if c.seen, again = kills, rose; !c.failed {
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

// kills is the kernel's count of all kills; it has none before 4.13.
func (c *Counters) kills() (n uint64, ok bool) {
	content, err := os.ReadFile(c.cfg.VMStat)
	return count(string(content), "oom_kill"), err == nil && strings.Contains(string(content), "\noom_kill ")
}

// Look reads all counters once and emits those that rose since the last look. If one
// can't be read, it emits nothing, and the next look reports every rise since. It is the single step of Watch, for
// those who decide themselves when to look.
func (c *Counters) Look(emit func(Sighting)) {
	now := c.cfg.Clock.Now()
	all, err := c.read(path.Clean(c.cfg.Parent))
	if c.failed = err != nil; c.failed {
		return
	}
	tell := func(cgroup string, n, groups uint64) {
		kill := Kill{Time: now, VictimCgroup: cgroup, Kills: int(n), counted: int(n)}
		if groups > 0 { // each counts the process twice that the kernel chose: alone, and then with all others
			kill.Kind, kill.Kills = Group, int(n-min(groups, n-1))
		}
		emit(Sighting{Counter: true, Since: c.since, Kill: kill})
	}
	told, below := map[string]tally{}, map[string]uint64{}
	for _, r := range slices.Backward(all) { // each after all that is below it
		t := c.told[r.cgroup]
		if c.told == nil {
			t = r.tally
		} else if r.own < t.own {
			t = tally{} // another cgroup of the same name
		}
		kills := below[r.cgroup]
		if n := r.own - t.own; n > 0 {
			tell(r.cgroup, n, r.groups-min(r.groups, t.groups))
			kills += n
		}
		t.subtree += kills
		if r.subtree > t.subtree {
			tell(r.cgroup, r.subtree-t.subtree, 0)
			kills += r.subtree - t.subtree
			t.subtree = r.subtree
		}
		told[r.cgroup] = tally{r.own, r.groups, t.subtree}
		below[path.Dir(r.cgroup)] += kills
	}
	c.told, c.since = told, now
}

// read reads the counters of a cgroup and all below it, each before those in it. So what
// happens in between is told of the child now, and the parent's counter, when it catches
// up, has nothing more to tell.
func (c *Counters) read(cgroup string) (all []reading, err error) {
	dir := filepath.Join(c.cfg.Mount, filepath.FromSlash(cgroup))
	entries, err := os.ReadDir(dir)
	if gone(err) {
		return nil, nil // its parent's counter has its kills
	}
	content := func(file string) string {
		b, e := os.ReadFile(filepath.Join(dir, file))
		if e != nil && !gone(e) {
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

// count returns a number in a file of names and numbers; zero if it has none.
func count(content, name string) uint64 {
	_, after, _ := strings.Cut("\n"+content, "\n"+name+" ")
	n, _ := decimal(after)
	return uint64(max(n, 0))
}

// gone reports whether a file does not exist, or can never be read by this process. Any
// other error, such as too many open files, may pass.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENODEV)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
