package stats

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeparts/kubeparts/eviction"
)

// Watch implements [eviction.Waker] with kernel events. It watches a pressure trigger for the
// node. On cgroup version 2, it also watches a pressure trigger and the memory events of the
// pods' cgroup. On version 1, it also watches thresholds of memory usage if UsageEvents is
// set. Watch calls poll on the caller's goroutine. levels returns the eviction thresholds; it
// is only called on version 1 with UsageEvents, and may be nil.
//
// Watch returns nil when ctx is done. It returns an error if no source is available. It also
// returns an error if the pods' cgroup was removed, because poll reports the removal like pressure.
// The caller should then call Watch again. Whenever no event has occurred for 10 s, Watch adds the
// sources that have become available and sets the thresholds of version 1 again.
func (p *Provider) Watch(ctx context.Context, levels func() []eviction.Level, wake func(reason string)) (err error) {
	w := &watch{p: p, levels: levels}
	defer w.close()
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch: eventfd: %w", err)
	}
	w.sources = append(w.sources, source{fd: stop, events: unix.POLLIN})
	stopped := make(chan struct{})
	cancelStop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		_, _ = unix.Write(stop, binary.NativeEndian.AppendUint64(nil, 1)) // the counter can't overflow
	})
	defer func() {
		if !cancelStop() {
			<-stopped
		}
	}()
	if err := w.arm(); len(w.sources) == 1 {
		return fmt.Errorf("watch: no source of pressure can be watched: %w", err)
	}
	w.reportSources()
	for {
		reason, err := w.wait()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("watch: %w", err)
		case reason != "":
			wake(reason)
		}
	}
}

// source is a file descriptor to poll.
type source struct {
	name, reason string
	fd           int
	events       int16
	drain        bool // must be read after an event, otherwise poll reports it again
	usage        bool // a threshold of version 1, which is set again periodically
	cgroup       bool // a file of a cgroup, which may be removed
}

// watch is the state of one call of Watch. The first source has an event when the context of
// Watch is done.
type watch struct {
	p       *Provider
	levels  func() []eviction.Level
	sources []source
	polls   []unix.PollFd
}

func (w *watch) close() {
	for _, s := range w.sources {
		_ = unix.Close(s.fd)
	}
}

func (w *watch) reportSources() {
	names := make([]string, 0, len(w.sources))
	for _, s := range w.sources[1:] {
		names = append(names, s.name)
	}
	w.p.cfg.Observer.Watching(names)
}

// has reports whether a source with this name exists.
func (w *watch) has(name string) bool {
	for _, s := range w.sources {
		if s.name == name {
			return true
		}
	}
	return false
}

// open adds the source s, unless a source with the same name exists.
func (w *watch) open(s source, open func() (int, error)) error {
	if w.has(s.name) {
		return nil
	}
	fd, err := open()
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	s.fd = fd
	w.sources = append(w.sources, s)
	return nil
}

// arm adds all available sources that are not watched yet, and replaces the thresholds of
// version 1. The error describes the unavailable sources.
func (w *watch) arm() error {
	cfg := w.p.cfg
	trigger := pressureTrigger{cfg.Stall, cfg.StallWindow}
	pressure := func(path, who string, cgroup bool) error {
		s := source{name: path, reason: who + " waits for memory", events: unix.POLLPRI, cgroup: cgroup}
		return w.open(s, func() (int, error) { return openTrigger(path, trigger) })
	}
	errs := []error{pressure(filepath.Join(cfg.ProcRoot, "pressure", "memory"), "the node", false)}
	h := hierarchyAt(cfg.CgroupRoot)
	pods := h.findPods(cfg.PodsCgroup)
	if h.v2 && pods != "" {
		errs = append(errs, pressure(h.file("memory", pods, "memory.pressure"), "a pod", true))
		// memory.events.local (Linux 5.2) only has the events of the pods' common limit.
		// memory.events also has the events of each container's own limit, which do not affect
		// the node.
		events := h.file("memory", pods, "memory.events.local")
		if !exists(events) {
			events = h.file("memory", pods, "memory.events")
		}
		s := source{name: events, reason: "the pods reach their common memory limit", events: unix.POLLIN, drain: true, cgroup: true}
		errs = append(errs, w.open(s, func() (int, error) { return watchFile(events) }))
	}
	if !h.v2 && cfg.UsageEvents {
		errs = append(errs, w.armUsage(h, pods))
	}
	return errors.Join(errs...)
}

// armUsage replaces the thresholds of cgroup version 1.
func (w *watch) armUsage(h hierarchy, pods string) error {
	kept := w.sources[:0]
	for _, s := range w.sources {
		if s.usage {
			_ = unix.Close(s.fd)
			continue
		}
		kept = append(kept, s)
	}
	w.sources = kept
	if w.levels == nil {
		return nil
	}
	node, _ := w.p.node.measure(nil) // a signal that can't be measured gets no threshold
	levels := w.levels()
	var errs []error
	for _, c := range []struct {
		signal eviction.Signal
		cgroup string
	}{{eviction.MemoryAvailable, "/"}, {eviction.AllocatableMemoryAvailable, pods}} {
		threshold, ok := first(levels, c.signal)
		if c.cgroup == "" || !ok {
			continue
		}
		r := cgroupReader{hierarchy: h}
		used := r.number("memory", c.cgroup, h.memoryNames().usage)
		level := usageLevel(used, observed(node, c.signal), threshold)
		if !level.ok {
			continue // the signal is unknown, or it has already reached its threshold, which the periodic evaluation detects
		}
		dir := h.file("memory", c.cgroup, "")
		s := source{
			name: filepath.Join(dir, h.memoryNames().usage), reason: string(c.signal) + " passes its threshold",
			events: unix.POLLIN, drain: true, usage: true, cgroup: c.cgroup != "/",
		}
		errs = append(errs, w.open(s, func() (int, error) { return usageEvent(dir, level.n) }))
	}
	return errors.Join(errs...)
}

// wait waits for an event. If no event occurs for the rearm period, wait calls arm and
// returns. reason is empty if the caller need not wake up the eviction manager.
func (w *watch) wait() (reason string, err error) {
	w.polls = w.polls[:0]
	for _, s := range w.sources {
		w.polls = append(w.polls, unix.PollFd{Fd: int32(s.fd), Events: s.events})
	}
	n, err := unix.Poll(w.polls, int(w.p.rearm/time.Millisecond))
	switch {
	case errors.Is(err, unix.EINTR):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("poll: %w", err)
	case n == 0:
		before := len(w.sources)
		_ = w.arm() // the next call tries unavailable sources again
		if len(w.sources) != before {
			w.reportSources()
		}
		return "", nil
	}
	for i, polled := range w.polls {
		s := w.sources[i]
		if polled.Revents == 0 {
			continue
		}
		// For a trigger whose cgroup was removed, poll returns POLLERR|POLLPRI forever.
		if polled.Revents&(unix.POLLERR|unix.POLLNVAL|unix.POLLHUP) != 0 || s.cgroup && !exists(s.name) {
			return "", fmt.Errorf("%s was removed", s.name)
		}
		if s.drain {
			var events [4096]byte
			_, _ = unix.Read(s.fd, events[:]) // the content does not matter
		}
		if s.reason != "" {
			reason = s.reason
		}
	}
	return reason, nil
}

// openTrigger opens a trigger on a pressure file. If the kernel refuses the trigger,
// openTrigger tries the unprivileged variant.
func openTrigger(path string, t pressureTrigger) (int, error) {
	fd, err := tryTrigger(path, t)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
		return fd, err
	}
	if t.window >= minWindow && t.window <= maxWindow {
		if fd, again := tryTrigger(path, t.unprivileged()); again == nil {
			return fd, nil
		}
	}
	return -1, fmt.Errorf("the kernel refuses a trigger for %v in %v: windows must be between %v and %v, "+
		"and without CAP_SYS_RESOURCE a multiple of 2s: %w", t.stall, t.window, minWindow, maxWindow, err)
}

func tryTrigger(path string, t pressureTrigger) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	text := fmt.Sprintf("some %d %d\x00", t.stall.Microseconds(), t.window.Microseconds())
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		_ = unix.Close(fd)
		return -1, &os.PathError{Op: "write", Path: path, Err: err}
	}
	return fd, nil
}

// watchFile opens an inotify descriptor for changes of a kernel file.
func watchFile(path string) (int, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("inotify: %w", err)
	}
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY); err != nil {
		_ = unix.Close(fd)
		return -1, &os.PathError{Op: "inotify_add_watch", Path: path, Err: err}
	}
	return fd, nil
}

// usageEvent returns an eventfd on which the kernel reports that the memory usage of a version 1
// cgroup crossed the given number of bytes, in either direction. The kernel removes the threshold
// when the descriptor is closed.
func usageEvent(dir string, level uint64) (_ int, err error) {
	usage, err := os.Open(filepath.Join(dir, "memory.usage_in_bytes"))
	if err != nil {
		return -1, err
	}
	defer func() { _ = usage.Close() }()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("eventfd: %w", err)
	}
	control := fmt.Sprintf("%d %d %d", fd, usage.Fd(), level)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.event_control"), []byte(control), 0); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
