package podsource

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Result is what a pass has found.
type Result struct {
	// Pods are all pods that should run, in the order in which the source has them.
	// Both the pods and the slice are shared and must not be modified.
	Pods []*corev1.Pod
	// Problems are those that there are now, in the same order.
	Problems []Problem
	// FilesRead is how many files or answers were read: none if nothing has changed.
	FilesRead int
}

// answer is what a source says, and who is told of it. The lock of the source's pass
// guards the first group of fields.
type answer struct {
	log      *slog.Logger
	observer Observer
	store    *Store // nil if the source gives pods only

	byUID      map[types.UID]*corev1.Pod
	inFiles    []Problem // what is wrong with the files that were seen last
	generation int       // of the set of pods; 0 until the source has been read

	mu       sync.Mutex // guards the rest, and is never held during callbacks
	pods     []*corev1.Pod
	problems []Problem
}

// resolve works out from the files, in order, which pods there are.
func (a *answer) resolve(files []*file, now time.Time) {
	found := choose(files)
	pods, byUID := settle(found.pods, a.byUID, now)
	a.inFiles = found.problems
	if a.store != nil {
		a.store.set(found.objects) // before anybody hears of a pod that refers to one
	}
	if a.generation > 0 && maps.Equal(byUID, a.byUID) {
		return // the same pods, perhaps from other files
	}
	a.byUID = byUID
	a.generation++
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods = slices.Clip(pods)
}

// publish makes problems those that there are, and tells of the difference.
func (a *answer) publish(ctx context.Context, problems []Problem) {
	a.mu.Lock()
	added, gone := compareProblems(a.problems, problems)
	a.problems = problems
	a.mu.Unlock()
	for _, p := range added {
		a.log.WarnContext(ctx, "manifest problem", "file", p.File, "document", p.Document, "err", p.Err)
	}
	for _, p := range gone {
		a.log.InfoContext(ctx, "manifest problem is gone", "file", p.File, "document", p.Document)
	}
	if len(added)+len(gone) > 0 {
		a.observer.ProblemsChanged(added, gone)
	}
}

// result is the answer as of a pass that has read so many files.
func (a *answer) result(read int) Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Result{Pods: a.pods, Problems: slices.Clone(a.problems), FilesRead: read}
}
