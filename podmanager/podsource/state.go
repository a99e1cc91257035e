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

// Result is the result of one pass of a source.
type Result struct {
	// Pods are all pods that should run, in the order of the source. Both the pods and the
	// slice are shared and must not be modified.
	Pods []*corev1.Pod
	// Problems are the current problems, also in the order of the source.
	Problems []Problem
	// FilesRead is the number of files that the pass has read. For an [HTTP] it is 1 if the
	// response differs from the previous response, and 0 otherwise.
	FilesRead int
}

// state is the current state of a source, with the logger, observer and store that are
// notified of changes. The lock that serialises the source's passes guards the fields above
// mu.
type state struct {
	log      *slog.Logger
	observer Observer
	store    *Store // nil if the source accepts pods only

	byUID        map[types.UID]*corev1.Pod
	fileProblems []Problem // problems of the files of the last pass
	generation   int       // number of the current set of pods; 0 until the source has been read

	mu       sync.Mutex // guards the fields below, and is never held during callbacks
	pods     []*corev1.Pod
	problems []Problem
}

// update sets the pods and objects that the files define. The files must be in the order of
// the source.
func (s *state) update(files []*file, now time.Time) {
	found := selectManifests(files)
	pods, byUID := stampSeen(found.pods, s.byUID, now)
	s.fileProblems = found.problems
	if s.store != nil {
		s.store.set(found.objects) // before a pod that refers to an object is delivered
	}
	if s.generation > 0 && maps.Equal(byUID, s.byUID) {
		return // the same pods, perhaps from other files
	}
	s.byUID = byUID
	s.generation++
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = slices.Clip(pods)
}

// publish sets the current problems, and reports the differences from the previous
// problems.
func (s *state) publish(ctx context.Context, problems []Problem) {
	s.mu.Lock()
	added, resolved := compareProblems(s.problems, problems)
	s.problems = problems
	s.mu.Unlock()
	for _, p := range added {
		s.log.WarnContext(ctx, "could not use a manifest, will use its last valid version if there is one", append(p.attrs(), "err", p.Err)...)
	}
	for _, p := range resolved {
		s.log.InfoContext(ctx, "a problem with a manifest was resolved", p.attrs()...)
	}
	if len(added)+len(resolved) > 0 {
		s.observer.ProblemsChanged(added, resolved)
	}
}

// result returns the current state as the Result of a pass. The argument is the number of
// files that the pass has read.
func (s *state) result(read int) Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Result{Pods: s.pods, Problems: slices.Clone(s.problems), FilesRead: read}
}
