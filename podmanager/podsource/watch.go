package podsource

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/utils/clock"
)

// How long a folder must be quiet after a change before it is looked at. An editor
// saves in several steps, and what is in the folder between two of them is nothing
// to act upon, least of all a file that is away for the moment. What was written is
// there in one piece nearly always, and a pod waits for it. A folder that is never
// quiet is looked at anyway.
const (
	quietAfterWrite  = 5 * time.Millisecond
	quietWhileEmpty  = 20 * time.Millisecond // a file that is about to be written
	quietAfterRemove = 50 * time.Millisecond
	mostDelay        = 75 * time.Millisecond
)

// watch tells a Run when its folder changes. Only Run's goroutine calls its methods.
type watch struct {
	open    func() (*fsnotify.Watcher, error)
	path    string
	trigger func()
	clock   clock.Clock

	watcher *fsnotify.Watcher // nil until it could be made
	folder  os.FileInfo       // the one that is watched; nil if none is
	moved   atomic.Bool       // there may be another folder at path by now
	joined  sync.WaitGroup
}

// arm makes the watch one of what is at the path now. It is called before each pass:
// what has changed by then the pass sees, and what changes later is told. While there
// is no folder, the one above is watched for it to come, and so it is if the path is
// a link, which can be turned to another folder.
func (w *watch) arm() error {
	if err := w.start(); err != nil {
		return err
	}
	above := filepath.Dir(w.path)
	if link, err := os.Lstat(w.path); err != nil || link.Mode()&os.ModeSymlink != 0 {
		if err := w.watcher.Add(above); err != nil {
			return err
		}
	} else if slices.Contains(w.watcher.WatchList(), above) {
		_ = w.watcher.Remove(above)
	}
	now, err := os.Stat(w.path) // again, for it may have come before the watch above did
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.folder = nil
		return nil
	case err != nil:
		return err
	}
	moved := w.moved.Swap(false)
	if !moved && w.folder != nil && os.SameFile(now, w.folder) && slices.Contains(w.watcher.WatchList(), w.path) {
		return nil
	}
	_ = w.watcher.Remove(w.path) // which fails if the folder is gone, and the watch with it
	w.folder = nil
	if err := w.watcher.Add(w.path); err != nil {
		return err
	}
	w.folder = now
	return nil
}

// start makes the watcher, unless there is one.
func (w *watch) start() error {
	if w.watcher != nil {
		return nil
	}
	path, err := filepath.Abs(w.path)
	if err != nil {
		return err
	}
	watcher, err := w.open()
	if err != nil {
		return err
	}
	w.path, w.watcher = path, watcher
	w.joined.Go(func() { w.listen(watcher) })
	return nil
}

// stop ends the watch and returns when nothing of it is left.
func (w *watch) stop() {
	if w.watcher != nil {
		_ = w.watcher.Close()
	}
	w.joined.Wait()
}

// listen triggers a pass when the folder has been quiet after a change.
func (w *watch) listen(watcher *fsnotify.Watcher) {
	p := pause{clock: w.clock}
	defer p.end()
	for {
		select {
		case event, ok := <-watcher.Events:
			if !ok {
				return
			}
			if event.Name == w.path {
				w.moved.Store(true)
			}
			if quiet := quietAfter(event, w.path); quiet > 0 {
				p.extend(quiet)
			}
		case _, ok := <-watcher.Errors:
			if !ok {
				return
			}
			// Events were lost, or the watch was: arm knows, and a pass sees the rest.
			w.moved.Store(true)
			p.extend(quietAfterWrite)
		case <-p.over:
			p.end()
			w.trigger()
		}
	}
}

// pause is the time between the first of some changes and the pass that sees them.
type pause struct {
	clock clock.Clock
	first time.Time // of the changes; zero while there is no pause
	until time.Time // what asks for little time takes none from what asked for more
	timer clock.Timer
	over  <-chan time.Time
}

// extend begins a pause, or puts its end off.
func (p *pause) extend(quiet time.Duration) {
	now := p.clock.Now()
	if p.first.IsZero() {
		p.first, p.until = now, now
	} else {
		p.timer.Stop()
	}
	if until := now.Add(quiet); until.After(p.until) {
		p.until = until
	}
	p.timer = p.clock.NewTimer(max(0, min(p.until.Sub(now), mostDelay-now.Sub(p.first))))
	p.over = p.timer.C()
}

func (p *pause) end() {
	if !p.first.IsZero() {
		p.timer.Stop()
	}
	p.first, p.over = time.Time{}, nil
}

// quietAfter returns how long to wait after an event before looking at the folder:
// 0 if it is of no concern, as what editors write beside a file while they save it.
func quietAfter(event fsnotify.Event, folder string) time.Duration {
	if event.Name != folder {
		dir, name := filepath.Split(event.Name)
		// What is switched in a mounted ConfigMap is named ..data.
		if filepath.Clean(dir) != folder || !isManifestName(name) && !strings.HasPrefix(name, "..") {
			return 0
		}
	}
	switch {
	case event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename):
		return quietAfterRemove
	case isEmpty(event.Name):
		return quietWhileEmpty
	default:
		return quietAfterWrite
	}
}

func isEmpty(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() == 0
}
