package podsource

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/internal/loop"
)

// ErrRunning is returned by Run if the source's Run is already running.
var ErrRunning = loop.ErrRunning

// Directory delivers the pods whose manifests are in a folder. Create it with
// [NewDirectory]; all methods are safe for concurrent use.
type Directory struct {
	cfg    DirectoryConfig
	loop   *loop.Loop
	notify func() (*fsnotify.Watcher, error)

	requested atomic.Bool // Trigger was called since the last pass over all files

	step     sync.Mutex // serialises passes, and is held during Loaded and ProblemsChanged
	files    map[string]*file
	listed   time.Time // time of the last pass over all files; zero if that pass failed
	hasLinks bool      // a manifest is a symbolic link, so its content may change without an event in this folder
	state    state
}

// NewDirectory returns a Directory that has not read its folder yet. It starts nothing.
func NewDirectory(cfg DirectoryConfig) (*Directory, error) {
	err := cfg.Validate()
	if err == nil && cfg.Store != nil {
		err = cfg.Store.claim()
	}
	if err != nil {
		return nil, fmt.Errorf("podsource: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Directory{
		cfg: cfg, loop: loop.New(cfg.Clock), notify: fsnotify.NewWatcher,
		state: state{log: cfg.Logger, observer: cfg.Observer, store: cfg.Store},
	}, nil
}

// Run reads the folder at once, then after each change and periodically, until ctx is done;
// then it returns nil. It passes all pods to the callback set: after the first successful
// pass, even if there are no pods, and then whenever the pods have changed. The callback
// runs in the goroutine that called Run, and Run starts the next pass after the callback has
// returned. The callback must modify neither the slice nor the pods. Problems do not end
// Run. A second concurrent Run returns [ErrRunning].
//
// If the folder cannot be watched, for example because the machine has reached its limit of
// watches, Run polls the folder and tries to watch it again in each pass.
func (d *Directory) Run(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
	delivered := 0
	w := &watch{open: d.notify, path: d.cfg.Path, trigger: d.loop.Trigger, clock: d.cfg.Clock}
	watching := watchState{d: d}
	defer w.stop()
	return d.loop.Run(ctx, func(ctx context.Context) time.Duration {
		var changed []string
		if !d.cfg.PollOnly {
			watching.set(ctx, w.watchFolder())
			changed = w.changedFiles()
		}
		res, generation, err := d.load(ctx, changed)
		if err != nil && ctx.Err() != nil {
			return d.cfg.period(watching.watched)
		}
		// Any other error is a Problem, which load has reported already.
		if generation != delivered {
			set(ctx, res.Pods)
			delivered = generation
		}
		return d.cfg.period(watching.watched)
	})
}

// watchState records whether the folder is watched, so that Run reports only the changes.
type watchState struct {
	d       *Directory
	watched bool
	known   bool
}

func (s *watchState) set(ctx context.Context, err error) {
	watched := err == nil
	if s.known && watched == s.watched {
		return
	}
	switch log := s.d.cfg.Logger; {
	case !watched:
		log.WarnContext(ctx, "could not watch manifest folder, will poll it", "folder", s.d.cfg.Path, "err", err)
	case s.known:
		log.InfoContext(ctx, "watching manifest folder again", "folder", s.d.cfg.Path)
	}
	s.watched, s.known = watched, true
	s.d.cfg.Observer.WatchChanged(err)
}

// Trigger makes Run start a pass soon. It never blocks.
func (d *Directory) Trigger() {
	d.requested.Store(true)
	d.loop.Trigger()
}

// Problems returns the problems that the last pass found. The caller owns the slice.
func (d *Directory) Problems() []Problem { return d.state.result(0).Problems }

// Load reads the files that have changed since the last pass, and returns all pods, ordered
// by file name and position in the file, and all problems. A bad manifest is a problem and
// not an error. If the folder could not be read, or if ctx is done, Load returns an error
// and the pods of the previous pass. A folder that could not be read is also in the
// problems.
//
// If a pass is in progress, Load first waits for its end.
func (d *Directory) Load(ctx context.Context) (Result, error) {
	res, _, err := d.load(ctx, nil)
	return res, err
}

// load does one pass and calls the observer with its result.
func (d *Directory) load(ctx context.Context, changed []string) (res Result, generation int, err error) {
	d.step.Lock()
	defer d.step.Unlock()
	read, err := d.pass(ctx, changed)
	res = d.state.result(read)
	d.cfg.Observer.Loaded(res, err)
	return res, d.state.generation, err
}

// pass checks the changed files, or all files if the list of changed files is empty or does
// not suffice, and updates d.state. A pass that ctx interrupts does not change d.state.
func (d *Directory) pass(ctx context.Context, changed []string) (read int, err error) {
	now := d.cfg.Clock.Now()
	if files, read := d.readChanged(ctx, changed, now); files != nil {
		d.apply(ctx, files, now)
		return read, nil
	}
	d.requested.Store(false)
	d.listed = time.Time{}
	names, hasLinks, err := manifestNames(d.cfg.Path)
	if err != nil {
		// The disk may be temporarily unavailable, so the pods stay.
		folder := Problem{File: d.cfg.Path, Err: fmt.Errorf("folder cannot be read: %w", withoutPath(err))}
		d.state.publish(ctx, append([]Problem{folder}, d.state.fileProblems...))
		return 0, folder
	}
	files := make(map[string]*file, len(names))
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return read, err
		}
		f, opened := load(filepath.Join(d.cfg.Path, name), d.files[name], d.cfg.origin(), now)
		if opened {
			read++
		}
		if f != nil {
			files[name] = f
		}
	}
	d.apply(ctx, files, now)
	d.listed, d.hasLinks = now, hasLinks
	return read, nil
}

// readChanged checks the changed files only. It returns nil if all files must be checked:
//   - The list of changed files is empty, as in the first pass and in Load.
//   - Trigger was called.
//   - A manifest is a link, so its content may have changed without an event.
//   - A changed file does not exist any more. The whole folder may be missing, and then the
//     pass must keep the pods.
//   - The last pass over all files has failed, or is longer ago than the period.
func (d *Directory) readChanged(ctx context.Context, changed []string, now time.Time) (files map[string]*file, read int) {
	if len(changed) == 0 || d.hasLinks || d.requested.Load() || d.listed.IsZero() || now.Sub(d.listed) >= d.cfg.period(true) {
		return nil, 0
	}
	files = maps.Clone(d.files)
	for _, name := range changed {
		path := filepath.Join(d.cfg.Path, name)
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&os.ModeSymlink != 0 || ctx.Err() != nil {
			return nil, 0
		}
		f, opened := load(path, d.files[name], d.cfg.origin(), now)
		if f == nil {
			return nil, 0
		}
		if opened {
			read++
		}
		files[name] = f
	}
	return files, read
}

// apply updates d.state to the files of a pass.
func (d *Directory) apply(ctx context.Context, files map[string]*file, now time.Time) {
	if d.state.generation == 0 || !maps.Equal(files, d.files) {
		d.files = files
		sorted := make([]*file, 0, len(files))
		for _, name := range slices.Sorted(maps.Keys(files)) {
			sorted = append(sorted, files[name])
		}
		d.state.update(sorted, now)
	}
	d.state.publish(ctx, d.state.fileProblems)
}
