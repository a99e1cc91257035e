package podlogs

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// follow goes on with a file that was read to its end, and closes it.
func (c *copier) follow(current *logFile, split *splitter) (err error) {
	defer func() { _ = current.close() }() // it was only read
	events, lost, stop := c.watch()
	defer stop()
	poll := time.NewTicker(c.timing.poll)
	defer poll.Stop()
	for look, settled := true, false; ; {
		ended := c.src.Ended != nil && c.src.Ended() // what was written before that is read below
		if err := errors.Join(c.drain(split), c.flush()); err != nil {
			return err
		}
		var later []*logFile
		if look || ended {
			if later, err = c.later(current); err != nil {
				return err
			}
		}
		switch {
		case len(later) > 0:
			current, split, err = c.advance(current, split, later)
		case ended && settled:
			return c.end(split, true)
		case ended:
			settled, err = true, c.pause()
		default:
			settled = false
			look, err = c.await(poll.C, events, lost)
		}
		if err != nil {
			return err
		}
	}
}

// await returns when there may be something new, and whether that may be a file.
func (c *copier) await(poll <-chan time.Time, events <-chan fsnotify.Event, lost <-chan error) (look bool, err error) {
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

// watch returns the events of the folder, and when some were lost. Where they can't be
// had, polling has to do.
func (c *copier) watch() (events <-chan fsnotify.Event, lost <-chan error, stop func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, func() {}
	}
	stop = func() { _ = watcher.Close() } // which never fails
	if err := watcher.Add(filepath.Join(c.src.Root, c.src.Dir)); err != nil {
		stop()
		return nil, nil, func() {}
	}
	return watcher.Events, watcher.Errors, stop
}

// pause gives the runtime the time to write what it has in hand.
func (c *copier) pause() error {
	timer := time.NewTimer(c.timing.settle)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// advance reads what is left of a file that has successors, and those, up to the end
// of the last one, which is the one to go on with.
func (c *copier) advance(current *logFile, split *splitter, later []*logFile) (*logFile, *splitter, error) {
	c.from = 0
	if err := errors.Join(c.pause(), c.drain(split), c.end(split, later[0].attempt != current.attempt)); err != nil {
		closeAll(later)
		return current, split, err
	}
	_ = current.close() // it was only read
	for len(later) > 1 {
		err := c.whole(later[0], 0, later[1].attempt)
		_ = later[0].close()
		if later = later[1:]; err != nil {
			closeAll(later[1:])
			return later[0], split, err
		}
	}
	split, err := c.read(later[0], 0)
	return later[0], split, err
}

// later opens the files after a file of the log, whatever its name is by now.
func (c *copier) later(current *logFile) ([]*logFile, error) {
	for range tries {
		files, err := c.laterListed(current)
		if err == nil || !isMoved(err) {
			return files, err
		}
	}
	return nil, nil // the next look will tell
}

func (c *copier) laterListed(current *logFile) (files []*logFile, err error) {
	defer func() {
		if err != nil {
			closeAll(files)
			files = nil
		}
	}()
	names, err := c.dir.list(current.attempt)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(names, func(n name) bool { return n.attempt == current.attempt && current.is(c.dir, n) })
	if at < 0 { // it was removed: what is left is all later
		at = slices.IndexFunc(names, func(n name) bool { return n.compare(current.before) > 0 }) - 1
		if at < -1 {
			return nil, nil
		}
	}
	for i, n := range names[at+1:] {
		l, err := c.dir.open(n)
		if err != nil {
			return files, err
		}
		if l.before = current.before; at+i >= 0 {
			l.before = names[at+i].key
		}
		files = append(files, l)
	}
	again, err := c.dir.list(current.attempt)
	if err == nil && !slices.Equal(names, again) {
		err = errMoved
	}
	return files, err
}
