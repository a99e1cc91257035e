package oomwatch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
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
	told  map[string]tally
	part  bool      // the last look could not read everything
	seen  uint64    // the kernel's count at the last look
	since time.Time // all counters told by then
}

// tally counts kills in a cgroup itself and in all that is below it.
type tally struct{ own, groups, subtree uint64 }

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
func (c *Counters) Watch(ctx context.Context, emit func(Sighting)) error {
	if !exists(filepath.Join(c.cfg.Mount, "cgroup.controllers")) && !exists(filepath.Join(c.cfg.Mount, "memory.usage_in_bytes")) {
		return fmt.Errorf("watch the counters of cgroups: %s has no memory controller", c.cfg.Mount)
	}
	for again := true; ctx.Err() == nil; {
		// The kernel counts in this file first, so a look may come too early for
		// one that it counts in just now: hence another look after each rise.
		now := c.cfg.Clock.Now()
		kills, counted := c.kills()
		rose := !counted || kills != c.seen
		if rose || again || c.told == nil || c.part {
			c.Look(emit)
			emit(Sighting{}) // it can see
		}
		c.seen, again, c.since = kills, rose, now
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
	if err != nil {
		return 0, false
	}
	_, after, ok := bytes.Cut(content, []byte("\noom_kill "))
	kills, _ := decimal(after)
	return uint64(kills), ok
}

// Look reads all counters once and emits those that rose since the last look. It is
// the single step of Watch, for those who decide themselves when to look.
func (c *Counters) Look(emit func(Sighting)) {
	v2 := exists(filepath.Join(c.cfg.Mount, "cgroup.controllers"))
	l := look{
		mount: c.cfg.Mount, v2: v2, told: map[string]tally{}, before: c.told,
		emit: emit, now: c.cfg.Clock.Now(), since: c.since,
	}
	l.visit(path.Clean(c.cfg.Parent))
	if c.part = l.missed; c.part && c.told == nil {
		return // what was there before would seem new later
	}
	c.told, c.since = l.told, l.now
}

type look struct {
	mount        string
	v2           bool
	told, before map[string]tally
	emit         func(Sighting)
	now, since   time.Time
	missed       bool // something was there that could not be read
}

// visit looks at a cgroup and all below it and returns how many kills it told.
//
// The counter of the whole subtree is read before those in it. So what happens in
// between is told of the child now, and the parent's counter, when it catches up,
// has nothing more to tell.
func (l *look) visit(cgroup string) (told uint64) {
	dir := filepath.Join(l.mount, filepath.FromSlash(cgroup))
	entries, err := os.ReadDir(dir)
	if gone(err) {
		return 0 // its parent's counter has its kills
	}
	var total, own, groups uint64
	if l.v2 && err == nil {
		total, _, err = counters(filepath.Join(dir, "memory.events"))
	}
	if l.v2 && err == nil {
		own, groups, err = counters(filepath.Join(dir, "memory.events.local"))
	}
	if !l.v2 && err == nil {
		own, _, err = counters(filepath.Join(dir, "memory.oom_control"))
	}
	if err != nil {
		l.miss(cgroup)
		return 0
	}
	t := l.before[cgroup]
	if l.before == nil {
		t = tally{own: own, groups: groups, subtree: total}
	} else if own < t.own {
		t = tally{} // another cgroup of the same name
	}
	if n := own - t.own; n > 0 {
		l.tell(cgroup, n, groups-min(groups, t.groups))
		told += n
	}
	for _, entry := range entries {
		if entry.IsDir() {
			told += l.visit(path.Join(cgroup, entry.Name()))
		}
	}
	subtree := t.subtree + told
	if total > subtree && !l.missed { // else they may be those of a child that could not be read
		l.tell(cgroup, total-subtree, 0)
		told += total - subtree
		subtree = total
	}
	l.told[cgroup] = tally{own: own, groups: groups, subtree: subtree}
	return told
}

// miss keeps what was told of a cgroup and all below it, which the next look reads.
func (l *look) miss(cgroup string) {
	l.missed = true
	for other, t := range l.before {
		if other == cgroup || strings.HasPrefix(other, strings.TrimSuffix(cgroup, "/")+"/") {
			l.told[other] = t
		}
	}
}

// tell emits that a counter rose by n. In each group kill it counts the process twice
// that the kernel chose: it is killed alone first and then with all others.
func (l *look) tell(cgroup string, n, groups uint64) {
	kill := Kill{Time: l.now, VictimCgroup: cgroup, Kills: int(n), counted: int(n)}
	if groups > 0 {
		kill.Kind, kill.Kills = Group, int(n-min(groups, n-1))
	}
	l.emit(Sighting{Counter: true, Since: l.since, Kill: kill})
}

// counters reads oom_kill and oom_group_kill; zero is what a file without them, or
// none, says.
func counters(file string) (kills, groups uint64, err error) {
	content, err := os.ReadFile(file)
	if gone(err) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	for line := range bytes.Lines(content) {
		key, value, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
		n, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil {
			continue
		}
		switch string(key) {
		case "oom_kill":
			kills = n
		case "oom_group_kill":
			groups = n
		}
	}
	return kills, groups, nil
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
