package podlogs

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/utils/clock"
)

// follow copies later lines of the current file, which was read to its end, and of later
// files. It closes the file that it reads last.
func (c *copier) follow(current *logFile, split *splitter) (err error) {
	defer func() { _ = current.close() }() // read-only
	events, lost, stop := c.watch()
	defer stop()
	poll := clock.RealClock{}.NewTicker(c.timing.poll)
	defer poll.Stop()
	for rescan, lingered := true, false; ; {
		ended := c.src.Ended != nil && c.src.Ended() // what the runtime wrote before this call is read below
		if err := errors.Join(c.drain(split), c.flush()); err != nil {
			return err
		}
		if current.wasTruncated(split) {
			c.from = 0 // the offset belongs to the previous content
			if split, err = c.read(current, 0); err != nil {
				return err
			}
			continue
		}
		var later successors
		if rescan || ended {
			if later, err = c.later(current); err != nil {
				return err
			}
		}
		switch {
		case later.last != nil:
			current, split, err = c.advance(current, split, later)
		case ended && lingered:
			return c.end(split, true)
		case ended:
			lingered, err = true, c.pause()
		default:
			lingered = false
			rescan, err = c.await(poll.C(), events, lost)
		}
		if err != nil {
			return err
		}
	}
}

// await waits until the log may have changed. It reports whether a file may have been
// created.
func (c *copier) await(poll <-chan time.Time, events <-chan fsnotify.Event, lost <-chan error) (rescan bool, err error) {
	select {
	case <-c.ctx.Done():
		return false, c.ctx.Err()
	case <-poll:
	case err := <-lost:
		return err != nil, nil
	case e := <-events:
		return e.Op != fsnotify.Write, nil
	}
	return true, nil
}

// watch returns the file system events of the directory, and a channel that reports lost
// events. Both channels are nil if the kernel provides no events; the follower then only
// polls.
func (c *copier) watch() (events <-chan fsnotify.Event, lost <-chan error, stop func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, func() {}
	}
	stop = func() { _ = watcher.Close() } // never fails
	if err := watcher.Add(filepath.Join(c.src.Root, c.src.Dir)); err != nil {
		stop()
		return nil, nil, func() {}
	}
	return watcher.Events, watcher.Errors, stop
}

// pause waits until the runtime has probably written the last lines of a file.
func (c *copier) pause() error {
	timer := clock.RealClock{}.NewTimer(c.timing.linger)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// advance copies the rest of the current file, and the later files. It returns the last
// file and its splitter.
func (c *copier) advance(current *logFile, split *splitter, later successors) (*logFile, *splitter, error) {
	c.from, c.nextFrom = 0, 0
	if err := errors.Join(c.pause(), c.drain(split), c.end(split, later.names[0].attempt != current.attempt)); err != nil {
		_ = later.last.close() // read-only
		return current, split, err
	}
	_ = current.close() // read-only
	if err := c.upToLast(later.names, later.before); err != nil {
		return later.last, split, err
	}
	split, err := c.read(later.last, 0)
	return later.last, split, err
}

// successors are the files after a file of the log.
type successors struct {
	names  []name
	last   *logFile // the last of these files, the only open file
	before key      // key of the file before the first
}

// later returns the files after the current file, even if the current file was renamed.
func (c *copier) later(current *logFile) (s successors, err error) {
	list := func() (names []name, err error) {
		names, s.before, err = c.listLater(current)
		return names, err
	}
	for range tries {
		if s.names, s.last, err = c.dir.openLast(list); err == nil || !isMoved(err) {
			if len(s.names) == 1 {
				s.last.before = s.before
			}
			return s, err
		}
	}
	return successors{}, nil // the next check tries again
}

// listLater lists the files after the current file. It also returns the key of the file
// that precedes them.
func (c *copier) listLater(current *logFile) (names []name, before key, err error) {
	if names, err = c.dir.list(current.attempt); err != nil {
		return nil, key{}, err
	}
	at := slices.IndexFunc(names, func(n name) bool { return n.attempt == current.attempt && current.has(c.dir, n) })
	if at < 0 {
		at = slices.IndexFunc(names, func(n name) bool {
			return n.attempt == current.attempt && n.compare(current.before) > 0 && current.compressedTo(c.dir, n)
		})
	}
	if at < 0 { // the current file was removed: the files after its predecessor are later
		at = slices.IndexFunc(names, func(n name) bool { return n.compare(current.before) > 0 }) - 1
		if at < -1 {
			return nil, key{}, nil
		}
	}
	before = current.before
	if at >= 0 {
		before = names[at].key
	}
	return names[at+1:], before, nil
}
