package podrunner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/podcache"
)

// endRecordName is the name of the record of when a pod must have ended, as long as it
// ends: an agent that is killed and started again gives it no second grace period. A pod
// from a manifest has no deletion timestamp that would say so.
const endRecordName = "ending"

// begunEnd is the end of a pod that has begun, in this agent's time or before.
type begunEnd struct {
	none     bool                // no end has begun: the store has no record
	deadline *lifecycle.Deadline // nil before this agent's first terminating turn

	mu         sync.Mutex // one writes at a time
	written    time.Time  // the deadline in the store, zero if it has none
	preStopped []string   // the ids in the store
}

// endRecord is what is in the store.
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
	isKnown := r.recallEnd(ctx, uid)
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.ends[uid]
	if e == nil {
		e = &begunEnd{}
		if isKnown {
			r.ends[uid] = e
		}
	}
	e.none = false
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

// keepEnd records by when the pod must have ended before anything of it is stopped, and
// whenever that moves, until stop is called. A pod of which no container is left to stop
// costs no write.
func (r *Runner) keepEnd(ctx context.Context, status *podcache.Status, deadline *lifecycle.Deadline) (stop func()) {
	if r.cfg.State == nil || !status.Stale && !slices.ContainsFunc(status.Containers, mayRun) {
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

// writeEnd records what is known of the pod's end, if it has begun and the record is
// another. If that fails, the pod ends all the same.
func (r *Runner) writeEnd(ctx context.Context, uid types.UID) {
	r.mu.Lock()
	e, preStopped := r.ends[uid], slices.Sorted(maps.Keys(r.preStopped[uid]))
	begun := e != nil && e.deadline != nil
	r.mu.Unlock()
	if r.cfg.State == nil || !begun {
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
	text, err := json.Marshal(endRecord{Deadline: at.UTC(), PreStopped: preStopped})
	if err == nil {
		err = r.putRecord(ctx, uid, endRecordName, text)
	}
	if err != nil {
		r.cfg.Logger.ErrorContext(ctx, "could not record when a pod must have ended, an agent that is restarted will begin its grace period again",
			"podUID", uid, "err", err)
		return
	}
	e.written, e.preStopped = at, preStopped
}

// recallEnd reads, once, whether the end of a pod had begun before this agent. A record that
// can't be read counts as an end whose deadline is unknown. It reports false if ctx is done
// and the record was not read: then the next turn reads it.
func (r *Runner) recallEnd(ctx context.Context, uid types.UID) bool {
	r.mu.Lock()
	isKnown := r.cfg.State == nil || r.ends[uid] != nil
	r.mu.Unlock()
	if isKnown {
		return true
	}
	rec, err := r.readEnd(ctx, uid)
	none := errors.Is(err, fs.ErrNotExist)
	switch {
	case err == nil || none:
	case ctx.Err() != nil:
		return false
	default:
		r.cfg.Logger.ErrorContext(ctx, "could not read when a pod must have ended, its grace period begins again if it is ending", "podUID", uid, "err", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends[uid] = &begunEnd{none: none, written: rec.Deadline, preStopped: rec.PreStopped}
	for _, id := range rec.PreStopped {
		r.setPreStopped(uid, id)
	}
	return true
}

func (r *Runner) readEnd(ctx context.Context, uid types.UID) (endRecord, error) {
	text, err := r.cfg.State.Get(ctx, recordKey(uid, endRecordName))
	if err != nil {
		return endRecord{}, err
	}
	return parseEnd(text)
}

// unend forgets the end of a pod that is wanted again. A record that can't be deleted is
// tried again in the next turn.
func (r *Runner) unend(ctx context.Context, uid types.UID) error {
	r.recallEnd(ctx, uid)
	r.mu.Lock()
	e := r.ends[uid]
	begun := e != nil && !e.none
	if begun {
		delete(r.preStopped, uid)
		r.ends[uid] = &begunEnd{}
	}
	r.mu.Unlock()
	if !begun {
		return nil
	}
	if err := r.deleteRecords(ctx, uid, endRecordName); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends[uid] = &begunEnd{none: true}
	return nil
}

// recordKey returns the key of a record of a pod. In a store of files below RootDir it is
// in the pod's folder.
func recordKey(uid types.UID, name string) string {
	return "pods/" + url.PathEscape(string(uid)) + "/" + name
}

// putRecord stores a record of a pod, without waiting for the disk if the store can do so:
// a record about containers need not survive the machine.
func (r *Runner) putRecord(ctx context.Context, uid types.UID, name string, text []byte) error {
	put := r.cfg.State.Put
	if quick, ok := r.cfg.State.(unsynced); ok {
		put = quick.PutUnsynced
	}
	return put(ctx, recordKey(uid, name), text)
}

// deleteRecords deletes records of a pod.
func (r *Runner) deleteRecords(ctx context.Context, uid types.UID, names ...string) error {
	if r.cfg.State == nil || uid == "" {
		return nil
	}
	for _, name := range names {
		if err := r.cfg.State.Delete(ctx, recordKey(uid, name)); err != nil {
			return fmt.Errorf("delete records: %w", err)
		}
	}
	return nil
}
