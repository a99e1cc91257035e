package podsource

import (
	"errors"
	"io/fs"
	"maps"
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

// How long a folder must be unchanged after a change before a pass begins. An editor saves
// a file in several steps, and between two steps the file may be incomplete or missing.
// After a write the delay is short, because most writes are complete at once. If changes
// continue, a pass begins after maxDelay.
const (
	quietAfterWrite  = 5 * time.Millisecond
	quietIncomplete  = 20 * time.Millisecond // the file is empty or its last line is incomplete
	quietAfterRemove = 50 * time.Millisecond
	maxDelay         = 75 * time.Millisecond
)

// watch triggers a pass of Run when the folder changes. Only the goroutine of Run calls the
// methods of a watch, with two exceptions: listen runs on a goroutine of its own, and calls
// addChanges.
type watch struct {
	open    func() (*fsnotify.Watcher, error)
	path    string
	trigger func()
	clock   clock.Clock

	watcher    *fsnotify.Watcher // nil until start has created it
	folder     os.FileInfo       // the watched folder; nil if no folder is watched
	replaced   atomic.Bool       // the folder at path may have been replaced
	goroutines sync.WaitGroup

	mu      sync.Mutex
	changed changes // since the last call of changedFiles, without changes that are still delayed
}

// changes are the changes of a folder.
type changes struct {
	names map[string]bool // of manifests
	other bool            // other manifests may have changed too
}

// add adds the change that event reports.
func (c *changes) add(event fsnotify.Event, folder string) {
	name := filepath.Base(event.Name)
	if event.Name == folder || !isManifestName(name) {
		c.other = true
		return
	}
	if c.names == nil {
		c.names = make(map[string]bool)
	}
	c.names[name] = true
}

// watchFolder watches the folder that is at the path now. Run calls watchFolder before each
// pass. The pass finds all changes up to this call, and the watch notifies about later changes.
// If the folder does not exist, watchFolder watches its parent, in which it may be created. If
// the path is a link, watchFolder watches the parent too, because the link may be replaced by a
// link to another folder.
func (w *watch) watchFolder() error {
	if err := w.start(); err != nil {
		return err
	}
	parent := filepath.Dir(w.path)
	if link, err := os.Lstat(w.path); err != nil || link.Mode()&os.ModeSymlink != 0 {
		if err := w.watcher.Add(parent); err != nil {
			return err
		}
	} else if slices.Contains(w.watcher.WatchList(), parent) {
		_ = w.watcher.Remove(parent)
	}
	now, err := os.Stat(w.path) // stat again, because the folder may have been created before the parent was watched
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.folder = nil
		return nil
	case err != nil:
		return err
	}
	replaced := w.replaced.Swap(false)
	if !replaced && w.folder != nil && os.SameFile(now, w.folder) && slices.Contains(w.watcher.WatchList(), w.path) {
		return nil
	}
	w.addChanges(changes{other: true})
	_ = w.watcher.Remove(w.path) // fails if the folder was removed, because the removal has ended the watch
	w.folder = nil
	if err := w.watcher.Add(w.path); err != nil {
		return err
	}
	w.folder = now
	return nil
}

// changedFiles returns the names of the manifests that have changed since its last call. It
// returns nil if no change is known, if other manifests may have changed too, or if no folder
// is watched. If changedFiles returns nil, Run checks all files.
func (w *watch) changedFiles() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.changed
	w.changed = changes{}
	if c.other || w.folder == nil {
		return nil
	}
	return slices.Collect(maps.Keys(c.names))
}

func (w *watch) addChanges(c changes) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed.other = w.changed.other || c.other
	if w.changed.names == nil {
		w.changed.names = c.names
	} else {
		maps.Copy(w.changed.names, c.names)
	}
}

// start creates the watcher if there is no watcher yet.
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
	w.goroutines.Go(func() { w.listen(watcher) })
	return nil
}

// stop ends the watch, and returns when its goroutines have ended.
func (w *watch) stop() {
	if w.watcher != nil {
		_ = w.watcher.Close()
	}
	w.goroutines.Wait()
}

// listen triggers a pass when the folder has stopped changing.
func (w *watch) listen(watcher *fsnotify.Watcher) {
	d := debounce{clock: w.clock}
	defer d.stop()
	var delayed changes
	for {
		select {
		case event, ok := <-watcher.Events:
			if !ok {
				return
			}
			if event.Name == w.path {
				w.replaced.Store(true)
			}
			if quiet := quietAfter(event, w.path); quiet > 0 {
				delayed.add(event, w.path)
				d.extend(quiet)
			}
		case _, ok := <-watcher.Errors:
			if !ok {
				return
			}
			// Events or the watch itself were lost: watchFolder restores the watch, and the next
			// pass finds the changes.
			w.replaced.Store(true)
			delayed.other = true
			d.extend(quietAfterWrite)
		case <-d.expired:
			d.stop()
			w.addChanges(delayed)
			delayed = changes{}
			w.trigger()
		}
	}
}

// debounce delays a pass after a change until the folder has stopped changing, at most for
// maxDelay.
type debounce struct {
	clock   clock.Clock
	first   time.Time // time of the first change; zero if no pass is pending
	until   time.Time // end of the delay; a later change never shortens it
	timer   clock.Timer
	expired <-chan time.Time
}

// extend starts the delay or extends it.
func (d *debounce) extend(quiet time.Duration) {
	now := d.clock.Now()
	if d.first.IsZero() {
		d.first, d.until = now, now
	} else {
		d.timer.Stop()
	}
	if until := now.Add(quiet); until.After(d.until) {
		d.until = until
	}
	d.timer = d.clock.NewTimer(max(0, min(d.until.Sub(now), maxDelay-now.Sub(d.first))))
	d.expired = d.timer.C()
}

func (d *debounce) stop() {
	if !d.first.IsZero() {
		d.timer.Stop()
	}
	d.first, d.expired = time.Time{}, nil
}

// quietAfter returns how long the folder must be unchanged after an event. It returns 0 for an
// irrelevant event, such as a change of an editor's temporary file.
func quietAfter(event fsnotify.Event, folder string) time.Duration {
	if event.Name != folder {
		dir, name := filepath.Split(event.Name)
		// The kubelet updates a mounted ConfigMap by replacing the link ..data.
		if filepath.Clean(dir) != folder || !isManifestName(name) && !strings.HasPrefix(name, "..") {
			return 0
		}
	}
	switch {
	case event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename):
		return quietAfterRemove
	case isIncomplete(event.Name):
		return quietIncomplete
	default:
		return quietAfterWrite
	}
}

// isIncomplete reports whether a file is probably still being written: it is empty, or its
// last line is incomplete.
func isIncomplete(path string) bool {
	info, err := os.Stat(path)
	if err != nil || checkInfo(info) != nil {
		return false // no further write to wait for
	}
	f, err := openFile(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // read-only
	var end [1]byte
	_, err = f.ReadAt(end[:], max(0, info.Size()-1))
	return err != nil || end[0] != '\n' && end[0] != '}' // a JSON file may end without a newline; if a file was cut after a }, the decoder rejects it
}
