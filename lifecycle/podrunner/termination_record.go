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

// terminationRecordName is the name of the termination record. It contains the
// deadline of a terminating pod, so that a restarted agent does not give the
// pod a second grace period. A pod from a manifest has no deletion timestamp
// from which the agent could compute the deadline.
const terminationRecordName = "ending"

// terminationState is what the Runner knows about a pod's termination, which
// this agent or an earlier agent may have started.
type terminationState struct {
	none     bool                // the pod is not terminating: the store has no record
	deadline *lifecycle.Deadline // nil before this agent's first terminating sync

	mu         sync.Mutex // held during writes
	written    time.Time  // the deadline in the store, zero if the store has no deadline
	preStopped []string   // the container IDs in the store
}

// terminationRecord is the content of the termination record.
type terminationRecord struct {
	// Deadline is a wall-clock time, because two processes share no other
	// clock.
	Deadline time.Time `json:"deadline"`
	// PreStopped are the IDs of containers whose preStop hook has ended.
	PreStopped []string `json:"preStopped,omitempty"`
}

// parseTermination parses a record. The returned deadline is in UTC.
func parseTermination(text []byte) (terminationRecord, error) {
	var rec terminationRecord
	if err := json.Unmarshal(text, &rec); err != nil {
		return terminationRecord{}, err
	}
	if rec.Deadline.IsZero() {
		return terminationRecord{}, errors.New("the termination record has no deadline")
	}
	rec.Deadline = rec.Deadline.UTC()
	if _, err := rec.Deadline.MarshalJSON(); err != nil {
		return terminationRecord{}, fmt.Errorf("the deadline in the termination record is invalid: %w", err)
	}
	return rec, nil
}

// terminationDeadline returns the deadline of the pod's terminating syncs.
// given is the deadline of the pod's worker. terminationDeadline shortens and
// returns it. If the pod has no spec, given is nil, and the first sync computes
// the deadline from the grace period. The deadline is never later than the
// deadline that an earlier agent has stored. terminationDeadline converts the
// stored deadline once to the remaining time; after that, a step of the system
// clock does not affect the deadline.
func (r *Runner) terminationDeadline(ctx context.Context, uid types.UID, given *lifecycle.Deadline, grace time.Duration) *lifecycle.Deadline {
	isKnown := r.loadTermination(ctx, uid)
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.terminations[uid]
	if e == nil {
		e = &terminationState{}
		if isKnown {
			r.terminations[uid] = e
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

// storeDeadline stores the pod's deadline before the caller stops the first
// container. It stores the deadline again whenever the deadline moves, until
// the caller calls the returned function stop. It stores nothing if no
// container is left to stop.
func (r *Runner) storeDeadline(ctx context.Context, status *podcache.Status, deadline *lifecycle.Deadline) (stop func()) {
	if r.cfg.State == nil || !status.Stale && !slices.ContainsFunc(status.Containers, mayRun) {
		return func() {}
	}
	_, moved := deadline.State()
	r.writeTermination(ctx, status.UID)
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
			r.writeTermination(ctx, status.UID)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// writeTermination stores the pod's termination record if the pod is
// terminating and the record has changed. If the record can't be stored, the
// error is only logged, and the termination continues.
func (r *Runner) writeTermination(ctx context.Context, uid types.UID) {
	r.mu.Lock()
	e, preStopped := r.terminations[uid], slices.Sorted(maps.Keys(r.preStopped[uid]))
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
	text, err := json.Marshal(terminationRecord{Deadline: at.UTC(), PreStopped: preStopped})
	if err == nil {
		err = r.putRecord(ctx, uid, terminationRecordName, text)
	}
	if err != nil {
		r.cfg.Logger.ErrorContext(ctx, "could not store the termination deadline of a pod, a restarted agent will give the pod its whole grace period again",
			"podUID", uid, "err", err)
		return
	}
	e.written, e.preStopped = at, preStopped
}

// loadTermination reads the termination record that an earlier agent has
// stored. It reads the record only once. If the record can't be read,
// loadTermination assumes a termination with an unknown deadline. If ctx is
// done before the record was read, loadTermination returns false, and the next
// sync reads the record.
func (r *Runner) loadTermination(ctx context.Context, uid types.UID) bool {
	r.mu.Lock()
	isKnown := r.cfg.State == nil || r.terminations[uid] != nil
	r.mu.Unlock()
	if isKnown {
		return true
	}
	rec, err := r.readTermination(ctx, uid)
	none := errors.Is(err, fs.ErrNotExist)
	switch {
	case err == nil || none:
	case ctx.Err() != nil:
		return false
	default:
		r.cfg.Logger.ErrorContext(ctx, "could not read the termination deadline of a pod, will give the pod its whole grace period again if it is terminating", "podUID", uid, "err", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.terminations[uid] = &terminationState{none: none, written: rec.Deadline, preStopped: rec.PreStopped}
	for _, id := range rec.PreStopped {
		r.setPreStopped(uid, id)
	}
	return true
}

func (r *Runner) readTermination(ctx context.Context, uid types.UID) (terminationRecord, error) {
	text, err := r.cfg.State.Get(ctx, recordKey(uid, terminationRecordName))
	if err != nil {
		return terminationRecord{}, err
	}
	return parseTermination(text)
}

// clearTermination deletes the termination record of a pod that must run again.
// If the deletion fails, the next sync tries again.
func (r *Runner) clearTermination(ctx context.Context, uid types.UID) error {
	r.loadTermination(ctx, uid)
	r.mu.Lock()
	e := r.terminations[uid]
	begun := e != nil && !e.none
	if begun {
		delete(r.preStopped, uid)
		r.terminations[uid] = &terminationState{}
	}
	r.mu.Unlock()
	if !begun {
		return nil
	}
	if err := r.deleteRecords(ctx, uid, terminationRecordName); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.terminations[uid] = &terminationState{none: true}
	return nil
}

// recordKey returns the key of a record of a pod. If State stores files below
// RootDir, the record is a file in the pod's directory.
func recordKey(uid types.UID, name string) string {
	return "pods/" + url.PathEscape(string(uid)) + "/" + name
}

// putRecord stores a record of a pod. If State has PutUnsynced, putRecord calls
// it and does not wait for the disk. The record need not survive a crash of the
// machine, because the crash also ends the containers.
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
