package podsource

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/loop"
)

// ErrRunning says that the Directory runs already.
var ErrRunning = loop.ErrRunning

// Directory gives the pods whose manifests are in a folder. Make it with
// [NewDirectory]; all methods are safe for concurrent use.
type Directory struct {
	cfg  DirectoryConfig
	loop *loop.Loop

	step       sync.Mutex // serialises passes, and is held during callbacks
	files      map[string]*file
	byUID      map[types.UID]*corev1.Pod
	inFiles    []Problem // what is wrong with the files of the last pass that saw the folder
	generation int       // of the set of pods; 0 until the folder has been read

	mu       sync.Mutex // guards the rest, and is never held during callbacks
	pods     []*corev1.Pod
	problems []Problem
}

// Result is what a pass has found.
type Result struct {
	// Pods are all pods that should run, by file name and by place in the file. Both
	// the pods and the slice are shared and must not be modified.
	Pods []*corev1.Pod
	// Problems are those that there are now, in the same order.
	Problems []Problem
	// FilesRead is how many files were opened: none if nothing has changed.
	FilesRead int
}

// NewDirectory returns a Directory that has read nothing yet. It starts nothing.
func NewDirectory(cfg DirectoryConfig) (*Directory, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podsource: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Directory{cfg: cfg, loop: loop.New(cfg.Clock)}, nil
}

// Run loads at once and then every period, and tells the Handler of the pods, until
// ctx is done; then it returns nil. Problems do not end it. A second Run beside the
// first returns [ErrRunning].
func (d *Directory) Run(ctx context.Context) error {
	told := 0
	return d.loop.Run(ctx, func(ctx context.Context) time.Duration {
		res, generation, err := d.load(ctx)
		if err != nil && ctx.Err() != nil {
			return d.cfg.Period
		}
		// Any other error is a Problem, and has been reported as one.
		if generation != told {
			d.cfg.Handler(ctx, res.Pods)
			told = generation
		}
		return d.cfg.Period
	})
}

// Trigger asks Run for a pass soon. It never blocks.
func (d *Directory) Trigger() { d.loop.Trigger() }

// Problems returns the problems that the last pass has found. The slice is the
// caller's.
func (d *Directory) Problems() []Problem {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.problems)
}

// Load reads what has changed in the folder since the last pass, and returns all
// pods and all problems. Bad manifests are problems and no error. The error says
// that the folder could not be read, which is a problem as well, or that ctx was
// done; the pods are then those from before.
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
	d.mu.Lock()
	res = Result{Pods: d.pods, Problems: slices.Clone(d.problems), FilesRead: read}
	d.mu.Unlock()
	d.cfg.Observer.Loaded(res, err)
	return res, d.generation, err
}

// pass is load without what it returns. A pass that is cut short changes nothing.
func (d *Directory) pass(ctx context.Context) (read int, err error) {
	names, err := manifestNames(d.cfg.Path)
	if err != nil {
		// The disk may be away for a moment. Nobody has removed a manifest.
		folder := Problem{File: d.cfg.Path, Err: fmt.Errorf("folder cannot be read: %w", withoutPath(err))}
		d.publish(ctx, append([]Problem{folder}, d.inFiles...))
		return 0, folder
	}
	now := d.cfg.Clock.Now()
	files := make(map[string]*file, len(names))
	changed := d.generation == 0
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
		d.resolve(now)
	}
	d.publish(ctx, d.inFiles)
	return read, nil
}

// resolve works out from the files which pods there are.
func (d *Directory) resolve(now time.Time) {
	var files []*file
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		files = append(files, d.files[name])
	}
	manifests, problems := choose(files)
	pods, byUID := settle(manifests, d.byUID, now)
	d.inFiles = problems
	if d.generation > 0 && maps.Equal(byUID, d.byUID) {
		return // the same pods, perhaps from other files
	}
	d.byUID = byUID
	d.generation++
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pods = slices.Clip(pods)
}

// publish makes problems those that there are, and tells of the difference.
func (d *Directory) publish(ctx context.Context, problems []Problem) {
	d.mu.Lock()
	added, gone := compareProblems(d.problems, problems)
	d.problems = problems
	d.mu.Unlock()
	for _, p := range added {
		d.cfg.Logger.WarnContext(ctx, "manifest problem", "file", p.File, "document", p.Document, "err", p.Err)
	}
	for _, p := range gone {
		d.cfg.Logger.InfoContext(ctx, "manifest problem is gone", "file", p.File, "document", p.Document)
	}
	if len(added)+len(gone) > 0 {
		d.cfg.Observer.ProblemsChanged(added, gone)
	}
}
