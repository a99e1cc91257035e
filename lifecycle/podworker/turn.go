package podworker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/podcache"
)

// hand is a goroutine and the turn that it takes.
type hand struct {
	next chan *worker // whose turns to take; closed when there are no more
	p    *worker      // whose turn it is

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

// spares is how many hands are kept between turns. A new goroutine has its stack
// to grow, which takes as long as all else about a turn.
const spares = 8

// hire returns a hand that is free.
func (w *Workers) hire() *hand {
	if last := len(w.spare) - 1; last >= 0 {
		h := w.spare[last]
		w.spare = w.spare[:last]
		return h
	}
	h := &hand{next: make(chan *worker, 1)} // one place, so that who hires never waits
	w.turns.Go(func() { w.work(h) })
	return h
}

// release lets go of the hand's worker, and keeps the hand if it may be needed.
func (w *Workers) release(h *hand) {
	h.p.working = false
	*h = hand{next: h.next}
	if !w.open() || len(w.spare) == spares {
		close(h.next)
		return
	}
	w.spare = append(w.spare, h)
}

// work takes turns for one worker after another, for each as long as it wants one.
func (w *Workers) work(h *hand) {
	for p := range h.next {
		h.p = p
		for w.begin(h) {
			w.take(h)
			w.end(h)
		}
	}
}

// begin claims the worker's next turn, or releases it if there is none.
func (w *Workers) begin(h *hand) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := h.p
	if !w.open() || !p.wanted || w.blocked(p) {
		w.release(h)
		return false
	}
	w.queue.remove(p)
	first := !p.started
	p.wanted, p.started = false, true
	p.stopping = p.stopping || p.phase >= Terminating
	if p.phase == Terminating && p.deadline == nil {
		p.deadline = w.firstDeadline(p)
	}
	*h = hand{
		next:  h.next,
		p:     p,
		turn:  Turn{Type: p.why, Pod: p.pod, Status: p.running, Grace: p.grace, Evict: p.evicted, StatusFn: p.statusFn},
		since: p.since,
		info:  TurnInfo{UID: p.uid, Pod: p.pod, Type: p.why, First: first, Phase: p.phase},
	}
	h.turn.acted, h.turn.refreshed = &h.acted, &h.refreshed
	p.follows.Store(false)
	if p.phase == Terminating {
		h.turn.deadline, h.turn.follows = p.deadline, &p.follows
	}
	h.ctx, p.cancel = context.WithCancel(w.run)
	p.why = Sync // the reason of the next turn, unless an update gives another
	return true
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
func (w *Workers) take(h *hand) {
	began := w.cfg.Clock.Now()
	status, err := w.status(h)
	called := w.cfg.Clock.Now()
	h.ended = called
	h.info.Waited, h.info.Err = called.Sub(began), err
	if err != nil {
		return
	}
	h.turn.Status, h.info.Stale, h.synced = status, status.Stale, true
	switch {
	case h.info.Phase == Syncing:
		h.terminal, h.info.Err = w.cfg.Syncer.SyncPod(h.ctx, h.turn)
	case h.info.Phase == Terminated:
		h.info.Err = w.cfg.Syncer.SyncTerminatedPod(h.ctx, h.turn)
	case h.turn.Pod == nil:
		h.info.Err = w.cfg.Syncer.SyncTerminatingRuntimePod(h.ctx, h.turn)
	default:
		h.info.Err = w.cfg.Syncer.SyncTerminatingPod(h.ctx, h.turn)
	}
	h.ended = w.cfg.Clock.Now()
	h.info.Duration = h.ended.Sub(called)
}

// end moves the pod on after a turn, and sees to it that there is another one
// unless it has finished.
func (w *Workers) end(h *hand) {
	w.mu.Lock()
	p := h.p
	cancelled := h.ctx.Err() != nil
	p.cancel()
	p.cancel, p.lastErr = nil, h.info.Err
	switch {
	case !h.refreshed.IsZero():
		p.since = h.refreshed
	case h.synced:
		// On a clock that stands still, a status of that very time may be older.
		p.since = h.ended.Add(time.Nanosecond)
	}
	next, moved, report := advance(p.state, verdict{phase: h.info.Phase, terminal: h.terminal, err: h.info.Err})
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
	case cancelled && h.info.Err != nil:
		p.wanted = true // what cancelled it wants one, or the next Run does
	case !p.wanted:
		w.schedule(p, h.ended.Add(w.cfg.periods().delay(h.info.Err, h.ended, w.cfg.Jitter())))
	}
	untold := len(p.moves) > 0
	w.mu.Unlock()

	if h.info.Err != nil && !cancelled {
		w.logFailure(h)
	}
	w.cfg.Observer.TurnEnd(h.info)
	if untold {
		w.tell(p)
	}
	outdated := moved && h.info.Phase < Terminated || h.acted || cancelled && h.synced
	if outdated && h.refreshed.IsZero() {
		w.cfg.AfterSync(p.uid)
	}
}

// logFailure logs a turn that failed, quietly if that was to be expected.
func (w *Workers) logFailure(h *hand) {
	level := slog.LevelError
	var wished wishes
	if wished.collect(h.info.Err); !wished.plain {
		level = slog.LevelDebug
	}
	w.cfg.Logger.Log(h.ctx, level, "turn of a pod failed, it will be repeated",
		"podUID", h.info.UID, "type", h.info.Type.String(), "phase", h.info.Phase.String(), "err", h.info.Err)
}

// status returns a status that is new enough. A pod that ends gets the last known
// one, marked stale, if there is none in time or none to be had.
func (w *Workers) status(h *hand) (*podcache.Status, error) {
	uid := h.info.UID
	if h.info.Phase == Syncing {
		s, err := w.cfg.Cache.GetNewerThan(h.ctx, uid, h.since)
		if err == nil && s == nil {
			err = errors.New("the cache returned no status")
		}
		return s, err
	}
	if s, err := w.inTime(h.ctx, h); err == nil && s != nil {
		return s, nil
	}
	if err := h.ctx.Err(); err != nil {
		return nil, err
	}
	last := podcache.Status{UID: uid}
	// The error beside it is why it is stale.
	if s, _ := w.cfg.Cache.Get(uid); s != nil && len(s.Sandboxes)+len(s.Containers) > 0 {
		last = *s
	} else if h.turn.Status != nil {
		last = *h.turn.Status
	}
	last.Stale = true
	return &last, nil
}

// inTime waits for a new status for no longer than the configured time, on the
// configured clock.
func (w *Workers) inTime(ctx context.Context, h *hand) (*podcache.Status, error) {
	ctx, stop := within(ctx, w.cfg.Clock, w.cfg.FreshTimeout)
	defer stop()
	return w.cfg.Cache.GetNewerThan(ctx, h.info.UID, h.since)
}
