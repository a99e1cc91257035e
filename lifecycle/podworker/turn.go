package podworker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/podcache"
)

// run is one turn of a worker that is under way.
type run struct {
	p     *worker
	ctx   context.Context
	turn  Turn
	since time.Time // what the status must be as new as
	ended time.Time
	info  TurnInfo
	// synced says that the Syncer was called, acted that it changed something, and
	// terminal that the pod has run to completion. Since refreshed, if not zero, it
	// has changed nothing, and the cache is as new.
	synced, acted, terminal bool
	refreshed               time.Time
}

// work takes p's turns, one after another, for as long as it wants one.
func (w *Workers) work(p *worker) {
	for t := w.begin(p); t != nil; t = w.begin(p) {
		w.take(t)
		w.end(t)
	}
}

// begin claims p's next turn. If there is none it returns nil, and p has no goroutine
// any more.
func (w *Workers) begin(p *worker) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.open() || !p.wanted || w.blocked(p) {
		p.working = false
		return nil
	}
	w.queue.Remove(p)
	first := !p.started
	p.wanted, p.started = false, true
	p.stopping = p.stopping || p.phase >= Terminating
	if p.phase == Terminating && p.deadline == nil {
		p.deadline = w.firstDeadline(p)
	}
	t := &run{
		p:     p,
		turn:  Turn{Type: p.why, Pod: p.pod, Status: p.running, Grace: p.grace, Evict: p.evicted, StatusFn: p.statusFn},
		since: p.since,
		info:  TurnInfo{UID: p.uid, Pod: p.pod, Type: p.why, First: first, Phase: p.phase},
	}
	t.turn.acted, t.turn.refreshed = &t.acted, &t.refreshed
	p.follows.Store(false)
	if p.phase == Terminating {
		t.turn.deadline, t.turn.follows = p.deadline, &p.follows
	}
	t.ctx, p.cancel = context.WithCancel(w.run)
	p.why = Sync // the reason of the next turn, unless an update gives another
	return t
}

// firstDeadline is when a pod is to have ended whose first terminating turn begins
// now. One that was being deleted when this agent first heard of it does not begin
// its grace period anew.
func (w *Workers) firstDeadline(p *worker) *lifecycle.Deadline {
	now := w.cfg.Clock.Now()
	at := now.Add(p.grace)
	if p.resumed {
		at = lifecycle.ResumedDeadline(p.pod, now, p.grace)
	}
	return lifecycle.NewDeadline(w.cfg.Clock, at)
}

// take waits for a status that is new enough and calls the Syncer.
func (w *Workers) take(t *run) {
	began := w.cfg.Clock.Now()
	status, err := w.status(t)
	called := w.cfg.Clock.Now()
	t.ended = called
	t.info.Waited, t.info.Err = called.Sub(began), err
	if err != nil {
		return
	}
	t.turn.Status, t.info.Stale, t.synced = status, status.Stale, true
	switch {
	case t.info.Phase == Syncing:
		t.terminal, t.info.Err = w.cfg.Syncer.SyncPod(t.ctx, t.turn)
	case t.info.Phase == Terminated:
		t.info.Err = w.cfg.Syncer.SyncTerminatedPod(t.ctx, t.turn)
	case t.turn.Pod == nil:
		t.info.Err = w.cfg.Syncer.SyncTerminatingRuntimePod(t.ctx, t.turn)
	default:
		t.info.Err = w.cfg.Syncer.SyncTerminatingPod(t.ctx, t.turn)
	}
	t.ended = w.cfg.Clock.Now()
	t.info.Duration = t.ended.Sub(called)
}

// end moves the pod on after a turn, and sees to it that there is another one
// unless it has finished.
func (w *Workers) end(t *run) {
	w.mu.Lock()
	p := t.p
	cancelled := t.ctx.Err() != nil
	p.cancel()
	p.cancel, p.lastErr = nil, t.info.Err
	switch {
	case !t.refreshed.IsZero():
		p.since = t.refreshed
	case t.synced:
		// On a clock that stands still, a status of that very time may be older.
		p.since = t.ended.Add(time.Nanosecond)
	}
	next, moved, report := advance(p.state, verdict{phase: t.info.Phase, terminal: t.terminal, err: t.info.Err})
	p.state = next
	if moved {
		w.moved(p)
	}
	w.report(report, nil)
	switch {
	case p.phase == Finished:
		w.leave(p)
		if p.pod == nil {
			w.drop(p) // nobody asks for what nobody described
		}
	case cancelled && t.info.Err != nil:
		p.wanted = true // what cancelled it wants one, or the next Run does
	case !p.wanted:
		w.schedule(p, t.ended.Add(w.cfg.periods().delay(t.info.Err, t.ended, w.cfg.Jitter())))
	}
	untold := len(p.moves) > 0
	w.mu.Unlock()

	if t.info.Err != nil && !cancelled {
		w.logFailure(t)
	}
	w.cfg.Observer.TurnEnd(t.info)
	if untold {
		w.tell(p)
	}
	outdated := moved && t.info.Phase < Terminated || t.acted || cancelled && t.synced
	if outdated && t.refreshed.IsZero() {
		w.cfg.AfterSync(p.uid)
	}
}

// logFailure logs a turn that failed, quietly if that was to be expected.
func (w *Workers) logFailure(t *run) {
	level := slog.LevelError
	var wished wishes
	if wished.collect(t.info.Err); !wished.plain {
		level = slog.LevelDebug
	}
	w.cfg.Logger.Log(t.ctx, level, "turn of a pod failed, it will be repeated",
		"podUID", t.info.UID, "type", t.info.Type.String(), "phase", t.info.Phase.String(), "err", t.info.Err)
}

// status returns a status that is new enough. A pod that ends gets the last known
// one, marked stale, if there is none in time or none to be had.
func (w *Workers) status(t *run) (*podcache.Status, error) {
	uid := t.info.UID
	if t.info.Phase == Syncing {
		s, err := w.cfg.Cache.GetNewerThan(t.ctx, uid, t.since)
		if err == nil && s == nil {
			err = errors.New("the cache returned no status")
		}
		return s, err
	}
	if s, err := w.inTime(t.ctx, t); err == nil && s != nil {
		return s, nil
	}
	if err := t.ctx.Err(); err != nil {
		return nil, err
	}
	last := podcache.Status{UID: uid}
	// The error beside it is why it is stale.
	if s, _ := w.cfg.Cache.Get(uid); s != nil && len(s.Sandboxes)+len(s.Containers) > 0 {
		last = *s
	} else if t.turn.Status != nil {
		last = *t.turn.Status
	}
	last.Stale = true
	return &last, nil
}

// inTime waits for a new status for no longer than the configured time, on the
// configured clock.
func (w *Workers) inTime(ctx context.Context, t *run) (*podcache.Status, error) {
	ctx, stop := within(ctx, w.cfg.Clock, w.cfg.FreshTimeout)
	defer stop()
	return w.cfg.Cache.GetNewerThan(ctx, t.info.UID, t.since)
}
