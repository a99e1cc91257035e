package podsource

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/internal/loop"
)

// ErrRunning says that the source runs already.
var ErrRunning = loop.ErrRunning

// Directory gives the pods whose manifests are in a folder. Make it with
// [NewDirectory]; all methods are safe for concurrent use.
type Directory struct {
	cfg    DirectoryConfig
	loop   *loop.Loop
	notify func() (*fsnotify.Watcher, error)

	step   sync.Mutex // serialises passes, and is held during callbacks
	files  map[string]*file
	answer answer
}

// NewDirectory returns a Directory that has read nothing yet. It starts nothing.
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
		answer: answer{log: cfg.Logger, observer: cfg.Observer, store: cfg.Store},
	}, nil
}

// Run loads at once, then whenever the folder has changed, and now and then besides,
// until ctx is done; then it returns nil. It calls set with the first pods that could be
// read, also if there are none, and then with each set of pods that differs from the one
// before. Set is called in Run's goroutine, and the next pass waits for it; it must
// modify neither the slice nor the pods. Problems do not end Run. A second Run beside the
// first returns [ErrRunning].
//
// Where the folder can't be watched, say because the machine has no watches left, it
// is polled, and tried again at each pass.
func (d *Directory) Run(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
	told := 0
	w := &watch{open: d.notify, path: d.cfg.Path, trigger: d.loop.Trigger, clock: d.cfg.Clock}
	watched := watchState{d: d}
	defer w.stop()
	return d.loop.Run(ctx, func(ctx context.Context) time.Duration {
		if !d.cfg.PollOnly {
			watched.set(ctx, w.arm())
		}
		res, generation, err := d.load(ctx)
		if err != nil && ctx.Err() != nil {
			return d.cfg.period(watched.yes)
		}
		// Any other error is a Problem, and has been reported as one.
		if generation != told {
			set(ctx, res.Pods)
			told = generation
		}
		return d.cfg.period(watched.yes)
	})
}

// watchState is whether the folder is watched, as far as it has been told.
type watchState struct {
	d     *Directory
	yes   bool
	known bool
}

func (s *watchState) set(ctx context.Context, err error) {
	yes := err == nil
	if s.known && yes == s.yes {
		return
	}
	switch log := s.d.cfg.Logger; {
	case !yes:
		log.WarnContext(ctx, "folder cannot be watched and is polled", "folder", s.d.cfg.Path, "err", err)
	case s.known:
		log.InfoContext(ctx, "folder is watched again", "folder", s.d.cfg.Path)
	}
	s.yes, s.known = yes, true
	s.d.cfg.Observer.WatchChanged(err)
}

// Trigger asks Run for a pass soon. It never blocks.
func (d *Directory) Trigger() { d.loop.Trigger() }

// Problems returns the problems that the last pass has found. The slice is the
// caller's.
func (d *Directory) Problems() []Problem { return d.answer.result(0).Problems }

// Load reads what has changed in the folder since the last pass, and returns all
// pods, by file name and by place in the file, and all problems. Bad manifests are
// problems and no error. The error says that the folder could not be read, which is a
// problem as well, or that ctx was done; the pods are then those from before.
//
// It waits for a pass that is going on.
func (d *Directory) Load(ctx context.Context) (Result, error) {
	res, _, err := d.load(ctx)
	return res, err
}

func (d *Directory) load(ctx context.Context) (res Result, generation int, err error) {
	d.step.Lock()
	defer d.step.Unlock()
	read, err := d.pass(ctx)
	res = d.answer.result(read)
	d.cfg.Observer.Loaded(res, err)
	return res, d.answer.generation, err
}

// pass is load without what it returns. A pass that is cut short changes nothing.
func (d *Directory) pass(ctx context.Context) (read int, err error) {
	names, err := manifestNames(d.cfg.Path)
	if err != nil {
		// The disk may be away for a moment. Nobody has removed a manifest.
		folder := Problem{File: d.cfg.Path, Err: fmt.Errorf("folder cannot be read: %w", withoutPath(err))}
		d.answer.publish(ctx, append([]Problem{folder}, d.answer.inFiles...))
		return 0, folder
	}
	now := d.cfg.Clock.Now()
	files := make(map[string]*file, len(names))
	changed := d.answer.generation == 0
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return read, err
		}
		f, opened := look(filepath.Join(d.cfg.Path, name), d.files[name], d.cfg.origin(), now)
		if opened {
			read++
		}
		if f != nil {
			files[name] = f
		}
		changed = changed || f != d.files[name]
	}
	if changed || len(files) != len(d.files) {
		d.files = files
		sorted := make([]*file, 0, len(files))
		for _, name := range slices.Sorted(maps.Keys(files)) {
			sorted = append(sorted, files[name])
		}
		d.answer.resolve(sorted, now)
	}
	d.answer.publish(ctx, d.answer.inFiles)
	return read, nil
}
