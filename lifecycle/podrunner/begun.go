package podrunner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/podcache"
)

// What a pod's folder holds as long as the pod ends: when it must have ended, so
// that an agent that is killed and started again gives it no second grace period.
// A pod from a manifest has no deletion timestamp that would say so.
const endFile = "ending"

// begunEnd is the end of a pod that has begun, in this agent's time or before.
type begunEnd struct {
	deadline *lifecycle.Deadline // nil before this agent's first terminating turn

	mu         sync.Mutex // one writes at a time
	written    time.Time  // the deadline on disk, zero if none is
	preStopped []string   // who is on disk
}

// endRecord is what is on disk.
type endRecord struct {
	// Deadline is on the wall clock: no other goes on from one process to the next.
	Deadline time.Time `json:"deadline"`
	// PreStopped are the ids of containers whose preStop hook has ended.
	PreStopped []string `json:"preStopped,omitempty"`
}

// parseEnd reads a record, whose deadline it returns in UTC.
func parseEnd(text []byte) (endRecord, error) {
	var rec endRecord
	if err := json.Unmarshal(text, &rec); err != nil {
		return endRecord{}, err
	}
	if rec.Deadline.IsZero() {
		return endRecord{}, errors.New("it names no deadline")
	}
	rec.Deadline = rec.Deadline.UTC()
	if _, err := rec.Deadline.MarshalJSON(); err != nil {
		return endRecord{}, fmt.Errorf("its deadline could not be written again: %w", err)
	}
	return rec, nil
}

// endBy returns the deadline of the pod's terminating turns: the worker's, or the
// one that the first turn made of its grace period; and never one that is later
// than what an agent before has written down. That one counts as time left from
// now: from then on a step of the system clock does not matter to it.
func (r *Runner) endBy(ctx context.Context, uid types.UID, given *lifecycle.Deadline, grace time.Duration) *lifecycle.Deadline {
	r.recall(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.ends[uid]
	if e == nil {
		e = &begunEnd{}
		r.ends[uid] = e
	}
	now := r.cfg.Clock.Now()
	before := e.deadline
	switch {
	case given != nil:
		e.deadline = given
	case before == nil:
		e.deadline = lifecycle.NewDeadline(r.cfg.Clock, now.Add(grace))
	default:
		e.deadline.Shorten(now.Add(grace))
	}
	switch {
	case before != nil:
		e.deadline.Shorten(before.At())
	case !e.written.IsZero():
		e.deadline.Shorten(now.Add(max(0, e.written.Sub(now))))
	}
	return e.deadline
}

// keepEnd has on disk by when the pod must have ended before anything of it is
// stopped, and whenever that moves, until stop is called. A pod of which no
// container is left to stop costs no write.
func (r *Runner) keepEnd(ctx context.Context, status *podcache.Status, deadline *lifecycle.Deadline) (stop func()) {
	if r.cfg.RootDir == "" || !status.Stale && !slices.ContainsFunc(status.Containers, mayRun) {
		return func() {}
	}
	_, moved := deadline.State()
	r.writeEnd(ctx, status.UID)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-moved:
			}
			_, moved = deadline.State()
			r.writeEnd(ctx, status.UID)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// writeEnd writes down what is known of the pod's end, if it has begun and that is
// not on disk. It is no reason not to end the pod that this fails.
func (r *Runner) writeEnd(ctx context.Context, uid types.UID) {
	r.mu.Lock()
	e, preStopped := r.ends[uid], slices.Sorted(maps.Keys(r.preStopped[uid]))
	r.mu.Unlock()
	if r.cfg.RootDir == "" || e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.deadline.At()
	if !e.written.IsZero() && !at.Before(e.written) {
		if slices.Equal(preStopped, e.preStopped) {
			return
		}
		at = e.written
	}
	if err := replaceEnd(r.podRoot(), uid, endRecord{Deadline: at.UTC(), PreStopped: preStopped}); err != nil {
		r.cfg.Logger.ErrorContext(ctx, "the end of a pod could not be written down, an agent started anew would begin its grace period again",
			"podUID", uid, "err", err)
		return
	}
	e.written, e.preStopped = at, preStopped
}

// replaceEnd makes the file whole or not at all for whoever starts after this
// process. It need not survive the machine: nor do the containers.
func replaceEnd(podRoot string, uid types.UID, rec endRecord) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return replacePodFile(podRoot, uid, endFile, text)
}

// recall reads, once, which ends had begun before this agent.
func (r *Runner) recall(ctx context.Context) {
	if r.cfg.RootDir == "" {
		return
	}
	r.recalled.Do(func() {
		found, err := readEnds(r.podRoot())
		if err != nil {
			r.cfg.Logger.ErrorContext(ctx, "what is written about pods that were ending cannot be read, it counts as if there were nothing", "err", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for uid, rec := range found {
			r.ends[uid] = &begunEnd{written: rec.Deadline, preStopped: rec.PreStopped}
			for _, id := range rec.PreStopped {
				r.setPreStopped(uid, id)
			}
		}
	})
}

// readEnds reads all records there are; that of a file that can't be read is the
// zero value. The errors are joined.
func readEnds(podRoot string) (found map[types.UID]endRecord, err error) {
	root, err := os.OpenRoot(podRoot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	pods, err := fs.ReadDir(root.FS(), ".")
	errs := []error{err}
	found = map[types.UID]endRecord{}
	for _, pod := range pods {
		rec, err := readEnd(root, filepath.Join(pod.Name(), endFile))
		if !pod.IsDir() || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("end of pod %s: %w", pod.Name(), err))
		}
		found[types.UID(pod.Name())] = rec
	}
	return found, errors.Join(errs...)
}

func readEnd(root *os.Root, file string) (endRecord, error) {
	text, err := readRegular(root, file)
	if err != nil {
		return endRecord{}, err
	}
	return parseEnd(text)
}

// unend forgets the end of a pod that is wanted again. What can't be removed is
// tried again in the next turn.
func (r *Runner) unend(ctx context.Context, uid types.UID) error {
	r.recall(ctx)
	r.mu.Lock()
	begun := r.ends[uid] != nil
	if begun {
		delete(r.preStopped, uid)
		r.ends[uid] = &begunEnd{}
	}
	r.mu.Unlock()
	if !begun {
		return nil
	}
	if err := r.removeFiles(uid, endFile, newFile(endFile)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ends, uid)
	return nil
}
