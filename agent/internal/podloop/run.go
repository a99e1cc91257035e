package podloop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/podcache"
)

const (
	// lookRetry is the time between two attempts to list the runtime for the first time.
	lookRetry = time.Second
	// lastWrites is how long each of the last writes may take when the loop stops.
	lastWrites = 5 * time.Second
)

// Run runs pods until ctx is done, joins what it has started, and returns nil. Pods run on. It
// returns an error if a source returns earlier, or if an allocator can't be restored. A Loop runs
// once.
//
// The parts stop in this order: sources, admission and housekeeping; workers; removals; what
// these use. Then the last statuses and the restart back-offs are saved.
func (l *Loop) Run(ctx context.Context) error {
	if !l.begun.CompareAndSwap(false, true) {
		return errors.New("the loop has run already")
	}
	defer close(l.stopped)
	l.load(ctx)

	base := context.WithoutCancel(ctx)
	below, stopBelow := context.WithCancel(base)
	defer stopBelow()
	work, stopWork := context.WithCancel(base)
	defer stopWork()
	above, stopAbove := context.WithCancelCause(ctx)
	defer stopAbove(nil)

	l.removals = func(uid types.UID) { l.remover.start(work, uid) }
	failed := make(chan error, 1) // has the first error
	start := func(ctx context.Context, g *sync.WaitGroup, run func(context.Context) error) {
		g.Go(func() {
			if err := run(ctx); err != nil {
				select {
				case failed <- err:
				default:
				}
				stopAbove(err)
			}
		})
	}
	var all, workers, used sync.WaitGroup
	l.startBelow(func(run func(context.Context) error) { start(below, &used, run) })
	start(work, &workers, l.workers.Run)
	l.startAbove(func(run func(context.Context) error) { start(above, &all, run) })

	<-above.Done()
	all.Wait()
	stopWork()
	workers.Wait()
	l.remover.join()
	stopBelow()
	used.Wait()
	l.remover.join() // what the last events have started ends at once
	l.saveLast(base)
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// load reads what an earlier agent has saved.
func (l *Loop) load(ctx context.Context) {
	if err := l.saved.Load(ctx); err != nil { // the other statuses count
		l.cfg.Logger.ErrorContext(ctx, "could not read the saved statuses of some pods", "err", err)
	}
	if err := l.restarts.load(ctx); err != nil {
		l.cfg.Logger.WarnContext(ctx, "restart back-offs begin anew", "err", err)
	}
}

// startBelow starts what the workers use.
func (l *Loop) startBelow(start func(func(context.Context) error)) {
	start(func(ctx context.Context) error { l.queue.run(ctx, l.settled); return nil })
	start(l.runPLEG)
	start(l.runProbes)
	for _, p := range l.publishers {
		start(p.Run)
	}
}

// startAbove starts what gives work to the workers.
func (l *Loop) startAbove(start func(func(context.Context) error)) {
	start(l.runLane)
	start(func(ctx context.Context) error { return l.restarts.loop.Run(ctx, l.restarts.save) })
	if l.cfg.Cgroups != nil {
		start(func(ctx context.Context) error { return l.qos.Run(ctx, l.updateQoS) })
	}
	if !l.cfg.manual {
		h := &housekeeping{Loop: l, cleared: map[types.UID]bool{}}
		start(func(ctx context.Context) error { return l.house.Run(ctx, h.pass) })
	}
	for i, s := range l.cfg.Sources {
		start(func(ctx context.Context) error { return l.runSource(ctx, s, l.doors[i]) })
	}
}

// runSource runs a source, which may not return before ctx is done.
func (l *Loop) runSource(ctx context.Context, s Source, d *door) error {
	set := l.merge.Source(s.Name)
	checked := func(ctx context.Context, pods []*corev1.Pod) { set(ctx, d.check(ctx, l, pods)) }
	if err := s.Run(ctx, checked); err != nil && ctx.Err() == nil {
		return fmt.Errorf("source %s has returned: %w", s.Name, err)
	}
	if ctx.Err() == nil {
		return fmt.Errorf("source %s has returned", s.Name)
	}
	return nil
}

// runPLEG looks at the runtime once, waits for the inspections, and then follows it.
func (l *Loop) runPLEG(ctx context.Context) error {
	for ctx.Err() == nil && !l.look(ctx) {
		timer := l.cfg.Clock.NewTimer(lookRetry)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return l.pleg.Run(ctx)
}

// look reports whether the runtime could be listed. Pods that could not be inspected are like
// pods that hang: they delay no other.
func (l *Loop) look(ctx context.Context) bool {
	res, _ := l.pleg.Relist(ctx) // the generator logs the error
	if l.pleg.Stats().RelistedAt.IsZero() {
		return false
	}
	var names map[types.NamespacedName]bool
	if res.SetAside == 0 {
		names = map[types.NamespacedName]bool{}
		for _, s := range l.found() {
			if s.Running() {
				names[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = true
			}
		}
	}
	l.mu.Lock()
	l.ranBefore = names
	l.mu.Unlock()
	close(l.looked)
	l.house.Trigger()
	l.cfg.Changed()
	return true
}

// refresh looks at one pod in the runtime now.
func (l *Loop) refresh(ctx context.Context, uid types.UID) (*podcache.Status, error) {
	now := l.cfg.Clock.Now()
	if err := l.pleg.RelistPod(ctx, uid); err != nil {
		return nil, err
	}
	return l.cache.GetNewerThan(ctx, uid, now)
}

// updateQoS sets the shares of the classes of pods. It runs when pods begin, change and end.
func (l *Loop) updateQoS(ctx context.Context) time.Duration {
	var pods []*corev1.Pod
	l.each(func(r record) {
		if r.state == Admitted {
			pods = append(pods, l.allocated(r.pod))
		}
	})
	if err := l.cfg.Cgroups.UpdateQoS(ctx, pods); err != nil {
		l.cfg.Logger.WarnContext(ctx, "could not set the shares of the classes of pods, will retry", "err", err)
	}
	return time.Minute
}

// saveLast saves what the next agent must know.
func (l *Loop) saveLast(ctx context.Context) {
	if err := l.flush(ctx); err != nil {
		l.cfg.Logger.ErrorContext(ctx, "could not publish the last statuses", "err", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lastWrites)
	defer cancel()
	l.restarts.save(ctx)
}

// flush publishes what was reported until now.
func (l *Loop) flush(ctx context.Context) error {
	var errs []error
	for _, p := range l.publishers {
		limited, cancel := context.WithTimeout(ctx, lastWrites)
		errs = append(errs, p.Flush(limited))
		cancel()
	}
	return errors.Join(errs...)
}
