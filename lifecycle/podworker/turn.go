package podworker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/kubeparts/kubeparts/podcache"
)

// job is a goroutine's work: the turns of one worker, one after the other. Jobs
// are used again, so that a turn makes nothing new but its ctx.
type job struct {
	run func() // what the goroutine runs, made once
	p   *worker

	ctx   context.Context
	turn  Turn
	since time.Time // what the status must be as new as
	ended time.Time
	info  TurnInfo
	// synced says that the Syncer was called, acted that it changed something, and
	// terminal that the pod has run to completion.
	synced, acted, terminal bool
}

// spares is how many jobs are kept for the turns to come.
const spares = 64

// hire returns a job for p.
func (w *Workers) hire(p *worker) *job {
	if n := len(w.spare); n > 0 {
		j := w.spare[n-1]
		w.spare, j.p = w.spare[:n-1], p
		return j
	}
	j := &job{p: p}
	j.run = func() { w.work(j) }
	return j
}

// release lets go of a job and its worker.
func (w *Workers) release(j *job) {
	j.p.working = false
	*j = job{run: j.run}
	if len(w.spare) < spares {
		w.spare = append(w.spare, j)
	}
}

// work takes turns for a worker as long as one is wanted. It is its goroutine.
func (w *Workers) work(j *job) {
	defer w.turns.Done()
	for w.begin(j) {
		w.take(j)
		w.end(j)
	}
}

// begin claims the worker's next turn, or releases it if there is none.
func (w *Workers) begin(j *job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := j.p
	if !w.open() || !p.wanted || w.blocked(p) {
		w.release(j)
		return false
	}
	w.queue.remove(p)
	p.wanted, p.started = false, true
	p.stopping = p.stopping || p.phase >= Terminating
	*j = job{
		run:   j.run,
		p:     p,
		turn:  Turn{Type: p.why, Pod: p.pod, Status: p.running, Grace: p.grace, Evict: p.evicted, StatusFn: p.statusFn},
		since: p.ended,
		info:  TurnInfo{UID: p.uid, Pod: p.pod, Type: p.why, Phase: p.phase},
	}
	j.turn.acted = &j.acted
	j.ctx, p.cancel = context.WithCancel(w.run)
	p.why = Sync // the reason of the next turn, unless an update gives another
	return true
}

// take waits for a status that is new enough and calls the Syncer.
func (w *Workers) take(j *job) {
	began := w.cfg.Clock.Now()
	status, err := w.status(j)
	called := w.cfg.Clock.Now()
	j.ended = called
	j.info.Waited, j.info.Err = called.Sub(began), err
	if err != nil {
		return
	}
	j.turn.Status, j.info.Stale, j.synced = status, status.Stale, true
	switch {
	case j.info.Phase == Syncing:
		j.terminal, j.info.Err = w.cfg.Syncer.SyncPod(j.ctx, j.turn)
	case j.info.Phase == Terminated:
		j.info.Err = w.cfg.Syncer.SyncTerminatedPod(j.ctx, j.turn)
	case j.turn.Pod == nil:
		j.info.Err = w.cfg.Syncer.SyncTerminatingRuntimePod(j.ctx, j.turn)
	default:
		j.info.Err = w.cfg.Syncer.SyncTerminatingPod(j.ctx, j.turn)
	}
	j.ended = w.cfg.Clock.Now()
	j.info.Duration = j.ended.Sub(called)
}

// end moves the pod on after a turn, and sees to it that there is another one
// unless it has finished.
func (w *Workers) end(j *job) {
	w.mu.Lock()
	p := j.p
	cancelled := j.ctx.Err() != nil
	p.cancel()
	p.cancel, p.lastErr = nil, j.info.Err
	if j.synced {
		p.ended = j.ended
	}
	next, moved, report := advance(p.state, verdict{phase: j.info.Phase, terminal: j.terminal, err: j.info.Err})
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
	case cancelled && j.info.Err != nil:
		p.wanted = true // what cancelled it wants one, or the next Run does
	case !p.wanted:
		w.schedule(p, j.ended.Add(w.cfg.periods().delay(j.info.Err, j.ended, w.cfg.Jitter())))
	}
	untold := len(p.moves) > 0
	w.mu.Unlock()

	if j.info.Err != nil && !cancelled {
		w.logFailure(j)
	}
	w.cfg.Observer.TurnEnd(j.info)
	if untold {
		w.tell(p)
	}
	if moved || j.acted || cancelled && j.synced {
		w.cfg.AfterSync(p.uid)
	}
}

// logFailure logs a turn that failed, quietly if that was to be expected.
func (w *Workers) logFailure(j *job) {
	level := slog.LevelError
	var wished wishes
	if wished.collect(j.info.Err); !wished.plain {
		level = slog.LevelDebug
	}
	w.cfg.Logger.Log(j.ctx, level, "turn of a pod failed, it will be repeated",
		"podUID", j.info.UID, "type", j.info.Type.String(), "phase", j.info.Phase.String(), "err", j.info.Err)
}

// status returns a status that is new enough. A pod that ends gets the last known
// one, marked stale, if there is none in time or none to be had.
func (w *Workers) status(j *job) (*podcache.Status, error) {
	uid := j.info.UID
	if j.info.Phase == Syncing {
		s, err := w.cfg.Cache.GetNewerThan(j.ctx, uid, j.since)
		if err == nil && s == nil {
			err = errors.New("the cache returned no status")
		}
		return s, err
	}
	if s, err := w.inTime(j.ctx, j); err == nil && s != nil {
		return s, nil
	}
	if err := j.ctx.Err(); err != nil {
		return nil, err
	}
	last := podcache.Status{UID: uid}
	// The error beside it is why it is stale.
	if s, _ := w.cfg.Cache.Get(uid); s != nil && len(s.Sandboxes)+len(s.Containers) > 0 {
		last = *s
	} else if j.turn.Status != nil {
		last = *j.turn.Status
	}
	last.Stale = true
	return &last, nil
}

// inTime waits for a new status for no longer than the configured time, on the
// configured clock.
func (w *Workers) inTime(ctx context.Context, j *job) (*podcache.Status, error) {
	ctx, stop := context.WithCancel(ctx)
	timer := w.cfg.Clock.NewTimer(w.cfg.FreshTimeout)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-timer.C():
			stop()
		case <-ctx.Done():
		}
	})
	s, err := w.cfg.Cache.GetNewerThan(ctx, j.info.UID, j.since)
	stop()
	timer.Stop()
	watch.Wait()
	return s, err
}
