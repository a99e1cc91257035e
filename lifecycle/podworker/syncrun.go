package podworker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/podcache"
)

// syncRun is one running sync of a worker.
type syncRun struct {
	p     *worker
	ctx   context.Context
	req   SyncRequest
	since time.Time // the status must be at least as new as this time
	ended time.Time
	info  SyncInfo
	// synced: the Syncer was called. acted: the Syncer has called Acted.
	// terminal: the pod has run to completion. refreshed is the time that the
	// Syncer has passed to Refreshed, else zero.
	synced, acted, terminal bool
	refreshed               time.Time
}

// work runs p's syncs, one after another, as long as a sync is due.
func (w *Workers) work(p *worker) {
	for t := w.begin(p); t != nil; t = w.begin(p) {
		w.doSync(t)
		w.finish(t)
	}
}

// begin returns p's next sync. If no sync is due or may start, begin returns
// nil and p's goroutine ends.
func (w *Workers) begin(p *worker) *syncRun {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.acceptsSyncs() || !p.pending || w.blocked(p) {
		p.working = false
		return nil
	}
	w.queue.Remove(p)
	first := !p.started
	p.pending, p.started = false, true
	p.stopping = p.stopping || p.phase >= Terminating
	if p.phase == Terminating && p.deadline == nil {
		p.deadline = w.firstDeadline(p)
	}
	t := &syncRun{
		p:     p,
		req:   SyncRequest{Type: p.why, Pod: p.pod, Status: p.running, Grace: p.grace, Evict: p.evicted, StatusFn: p.statusFn},
		since: p.since,
		info:  SyncInfo{UID: p.uid, Pod: p.pod, Type: p.why, First: first, Phase: p.phase},
	}
	t.req.acted, t.req.refreshed = &t.acted, &t.refreshed
	p.usesDeadline.Store(false)
	if p.phase == Terminating {
		t.req.deadline, t.req.usesDeadline = p.deadline, &p.usesDeadline
	}
	t.ctx, p.cancel = context.WithCancel(w.run)
	p.why = Sync // the type of the next sync if no update comes before it
	return t
}

// firstDeadline returns the deadline of a pod whose first terminating sync
// begins now. A pod that was already being deleted when this agent started does
// not get its whole grace period again.
func (w *Workers) firstDeadline(p *worker) *lifecycle.Deadline {
	now := w.cfg.Clock.Now()
	at := now.Add(p.grace)
	if p.resumed {
		at = lifecycle.ResumedDeadline(p.pod, now, p.grace)
	}
	return lifecycle.NewDeadline(w.cfg.Clock, at)
}

// doSync waits for a status that is new enough and calls the Syncer.
func (w *Workers) doSync(t *syncRun) {
	began := w.cfg.Clock.Now()
	status, err := w.status(t)
	called := w.cfg.Clock.Now()
	t.ended = called
	t.info.Waited, t.info.Err = called.Sub(began), err
	if err != nil {
		return
	}
	t.req.Status, t.info.Stale, t.synced = status, status.Stale, true
	switch {
	case t.info.Phase == Syncing:
		t.terminal, t.info.Err = w.cfg.Syncer.SyncPod(t.ctx, t.req)
	case t.info.Phase == Terminated:
		t.info.Err = w.cfg.Syncer.SyncTerminatedPod(t.ctx, t.req)
	case t.req.Pod == nil:
		t.info.Err = w.cfg.Syncer.SyncTerminatingRuntimePod(t.ctx, t.req)
	default:
		t.info.Err = w.cfg.Syncer.SyncTerminatingPod(t.ctx, t.req)
	}
	t.ended = w.cfg.Clock.Now()
	t.info.Duration = t.ended.Sub(called)
}

// finish updates the pod's state after a sync. It also schedules the next sync
// if the pod's phase is not Finished.
func (w *Workers) finish(t *syncRun) {
	w.mu.Lock()
	p := t.p
	cancelled := t.ctx.Err() != nil
	p.cancel()
	p.cancel, p.lastErr = nil, t.info.Err
	switch {
	case !t.refreshed.IsZero():
		p.since = t.refreshed
	case t.synced:
		// Add 1 ns: if the clock does not advance, a status with the time of the
		// sync's end may still be from before the end of the sync.
		p.since = t.ended.Add(time.Nanosecond)
	}
	next, moved, report := advance(p.state, outcome{phase: t.info.Phase, terminal: t.terminal, err: t.info.Err})
	p.state = next
	if moved {
		w.recordPhaseChange(p)
	}
	w.notifyWaiters(report, nil)
	switch {
	case p.phase == Finished:
		w.leave(p)
		if p.pod == nil {
			w.drop(p) // no source defines this pod, so its record is not needed any more
		}
	case cancelled && t.info.Err != nil:
		p.pending = true // a new sync is needed now, or in the next Run
	case !p.pending:
		w.schedule(p, t.ended.Add(w.cfg.periods().delay(t.info.Err, t.ended, w.cfg.Jitter())))
	}
	hasChanges := len(p.phaseChanges) > 0
	w.mu.Unlock()

	if t.info.Err != nil && !cancelled {
		w.logFailure(t)
	}
	w.cfg.Observer.SyncEnded(t.info)
	if hasChanges {
		w.notifyPhaseChanges(p)
	}
	outdated := moved && t.info.Phase < Terminated || t.acted || cancelled && t.synced
	if outdated && t.refreshed.IsZero() {
		w.cfg.AfterSync(p.uid)
	}
}

// logFailure logs a failed sync, at debug level if the failure was expected.
func (w *Workers) logFailure(t *syncRun) {
	level := slog.LevelError
	var wished retryRequests
	if wished.collect(t.info.Err); !wished.plain {
		level = slog.LevelDebug
	}
	name := ""
	if p := t.info.Pod; p != nil {
		name = p.Namespace + "/" + p.Name
	}
	w.cfg.Logger.Log(t.ctx, level, "sync of a pod failed, will retry",
		"pod", name, "podUID", t.info.UID, "type", t.info.Type.String(), "phase", t.info.Phase.String(), "err", t.info.Err)
}

// status returns a status that is new enough. In the phases Terminating and
// Terminated it returns the last known status, marked stale, if no newer status
// arrives in time.
func (w *Workers) status(t *syncRun) (*podcache.Status, error) {
	uid := t.info.UID
	if t.info.Phase == Syncing {
		s, err := w.cfg.Cache.GetNewerThan(t.ctx, uid, t.since)
		if err == nil && s == nil {
			err = errors.New("the cache returned no status")
		}
		if err != nil {
			return nil, &StatusError{Err: err}
		}
		return s, nil
	}
	if s, err := w.awaitStatus(t.ctx, t); err == nil && s != nil {
		return s, nil
	}
	if err := t.ctx.Err(); err != nil {
		return nil, err
	}
	last := podcache.Status{UID: uid}
	// Ignore the error: the status is marked stale in any case.
	if s, _ := w.cfg.Cache.Get(uid); s != nil && len(s.Sandboxes)+len(s.Containers) > 0 {
		last = *s
	} else if t.req.Status != nil {
		last = *t.req.Status
	}
	last.Stale = true
	return &last, nil
}

// StatusError means that the Syncer was not called, because the Cache has
// returned no status of the pod.
type StatusError struct {
	// Err is the error of the Cache.
	Err error
}

// Error implements error.
func (e *StatusError) Error() string {
	return "read the state of the pod in the runtime: " + e.Err.Error()
}

// Unwrap returns Err.
func (e *StatusError) Unwrap() error { return e.Err }

// awaitStatus waits for a new status for at most FreshTimeout, on the
// configured clock.
func (w *Workers) awaitStatus(ctx context.Context, t *syncRun) (*podcache.Status, error) {
	ctx, stop := within(ctx, w.cfg.Clock, w.cfg.FreshTimeout)
	defer stop()
	return w.cfg.Cache.GetNewerThan(ctx, t.info.UID, t.since)
}
