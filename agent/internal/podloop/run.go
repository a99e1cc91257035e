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
	// firstRelistRetry is the time between two attempts of the first relist.
	firstRelistRetry = time.Second
	// lastWrites is the time limit of each of the last writes when the loop stops.
	lastWrites = 5 * time.Second
)

// Run runs the loop until ctx is done, then joins its goroutines and returns nil. The pods keep
// running. Run returns an error if a source returns before ctx is done, or if an allocator can't
// be restored. Run may be called only once.
//
// The parts stop in this order: first sources, admission and housekeeping, then the workers,
// then the removals, then the parts that workers and removals use. Finally, Run publishes the
// last statuses and saves the restart back-offs.
func (l *Loop) Run(ctx context.Context) error {
	if !l.hasRun.CompareAndSwap(false, true) {
		return errors.New("the pod loop can run only once")
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
	failed := make(chan error, 1) // receives the first error
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
	l.startDependencies(func(run func(context.Context) error) { start(below, &used, run) })
	start(work, &workers, l.workers.Run)
	l.startWorkSources(func(run func(context.Context) error) { start(above, &all, run) })

	<-above.Done()
	all.Wait()
	stopWork()
	workers.Wait()
	l.remover.join()
	stopBelow()
	used.Wait()
	l.remover.join() // the last events may have started removals, which return at once
	l.saveLast(base)
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// load reads the state that an earlier agent has saved.
func (l *Loop) load(ctx context.Context) {
	if err := l.saved.Load(ctx); err != nil { // the statuses that could be read are loaded
		l.cfg.Logger.ErrorContext(ctx, "could not read the saved statuses of some pods, these pods start without a previous status", "err", err)
	}
	if err := l.restarts.load(ctx); err != nil {
		l.cfg.Logger.WarnContext(ctx, "could not read the saved restart back-offs, all restart delays start again at the shortest", "err", err)
	}
}

// startDependencies starts the parts that the workers use.
func (l *Loop) startDependencies(start func(func(context.Context) error)) {
	start(func(ctx context.Context) error { l.queue.run(ctx, l.batchDone); return nil })
	start(l.runPLEG)
	start(l.runProbes)
	for _, p := range l.publishers {
		start(p.Run)
	}
}

// startWorkSources starts the parts that create work for the workers.
func (l *Loop) startWorkSources(start func(func(context.Context) error)) {
	start(l.runAdmission)
	start(func(ctx context.Context) error { return l.restarts.loop.Run(ctx, l.restarts.save) })
	if l.cfg.Cgroups != nil {
		start(func(ctx context.Context) error { return l.qos.Run(ctx, l.updateQoS) })
	}
	if !l.cfg.manual {
		h := &housekeeping{Loop: l, cleared: map[types.UID]bool{}}
		start(func(ctx context.Context) error { return l.housekeepingLoop.Run(ctx, h.pass) })
	}
	for i, s := range l.cfg.Sources {
		start(func(ctx context.Context) error { return l.runSource(ctx, s, l.filters[i]) })
	}
}

// runSource runs a source. It returns an error if the source returns before ctx is done.
func (l *Loop) runSource(ctx context.Context, s Source, d *podFilter) error {
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

// runPLEG repeats the first relist until the runtime could be listed, and then runs the PLEG.
func (l *Loop) runPLEG(ctx context.Context) error {
	for ctx.Err() == nil && !l.firstRelist(ctx) {
		timer := l.cfg.Clock.NewTimer(firstRelistRetry)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return l.pleg.Run(ctx)
}

// firstRelist does one relist, and reports whether the runtime could be listed. It also returns
// true if the inspection of some pods failed, so that these pods don't delay other pods.
func (l *Loop) firstRelist(ctx context.Context) bool {
	_, _ = l.pleg.Relist(ctx) // the generator logs the error
	stats := l.pleg.Stats()
	if stats.RelistedAt.IsZero() {
		return false
	}
	var names map[types.NamespacedName]bool
	if stats.FailedPods == 0 {
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
	close(l.listed)
	l.triggerIfReady()
	l.cfg.Changed()
	return true
}

// refresh inspects one pod in the runtime now.
func (l *Loop) refresh(ctx context.Context, uid types.UID) (*podcache.Status, error) {
	now := l.cfg.Clock.Now()
	if err := l.pleg.RelistPod(ctx, uid); err != nil {
		return nil, err
	}
	return l.cache.GetNewerThan(ctx, uid, now)
}

// updateQoS sets the cgroup shares of the QoS classes. It is called when pods start, change or
// end, and at least once a minute.
func (l *Loop) updateQoS(ctx context.Context) time.Duration {
	var pods []*corev1.Pod
	l.each(func(r record) {
		if r.state == Admitted {
			pods = append(pods, l.allocated(r.pod))
		}
	})
	if err := l.cfg.Cgroups.UpdateQoS(ctx, pods); err != nil {
		l.cfg.Logger.WarnContext(ctx, "could not set the cgroup shares of the QoS classes, will retry", "err", err)
	}
	return time.Minute
}

// saveLast publishes the last statuses, and saves the restart back-offs for the next agent.
func (l *Loop) saveLast(ctx context.Context) {
	if err := l.flush(ctx); err != nil {
		l.cfg.Logger.ErrorContext(ctx, "could not publish the last statuses of some pods before the agent stopped", "err", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lastWrites)
	defer cancel()
	l.restarts.save(ctx)
}

// flush publishes all pending statuses. The time limit of each publisher is lastWrites.
func (l *Loop) flush(ctx context.Context) error {
	var errs []error
	for _, p := range l.publishers {
		limited, cancel := context.WithTimeout(ctx, lastWrites)
		errs = append(errs, p.Flush(limited))
		cancel()
	}
	return errors.Join(errs...)
}
