package podloop

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

const (
	// housekeepingPeriod is the time between two passes of housekeeping.
	housekeepingPeriod = 10 * time.Second
	// diskPeriod is the time between two searches of the disk for files of pods without a
	// record.
	diskPeriod = time.Minute
)

// housekeeping makes workers, statuses, runtime and disk agree with the records. It only
// repairs inconsistencies: the pods of an agent without errors do not need it. It does nothing
// until every source has defined its pods and the first relist is complete, because a source may
// still define a pod without a record.
type housekeeping struct {
	*Loop
	searched time.Time // time of the last disk search
	// cleared has pods without a record. searchDisk has already requested their removal, but their
	// files still exist. searchDisk does not request the removal again, because the remaining files
	// do not belong to this agent.
	cleared map[types.UID]bool
}

// pass runs one pass of housekeeping. It returns the time until the next pass.
func (h *housekeeping) pass(ctx context.Context) time.Duration {
	if h.Ready() != nil {
		return housekeepingPeriod
	}
	done := make(chan struct{})
	h.post(func() { h.reconcile(); close(done) })
	select {
	case <-done:
	case <-ctx.Done():
		return housekeepingPeriod
	}
	if err := h.saved.RemoveOrphans(ctx, h.isKnown); err != nil {
		h.cfg.Logger.ErrorContext(ctx, "could not delete the statuses of removed pods, will retry", "err", err)
	}
	if h.cfg.Clock.Since(h.searched) >= diskPeriod {
		h.searchDisk(ctx)
	}
	return housekeepingPeriod
}

func (l *Loop) isKnown(uid types.UID) bool { _, known := l.record(uid); return known }

// reconcile makes the workers, probes, statuses and the runtime agree with the records. Only the
// goroutine of the event queue calls it.
func (l *Loop) reconcile() {
	var desired []*corev1.Pod
	l.each(func(r record) {
		if r.source != "" {
			desired = append(desired, r.pod)
		}
	})
	known := l.workers.SyncKnownPods(func() []*corev1.Pod { return desired })
	l.probes.retain(func(uid types.UID) bool { _, ok := known[uid]; return ok })
	l.statuses.RemoveOrphanedStatuses(l.isKnown)
	l.unpublished.retain(l.isKnown)
	for _, uid := range l.uids() {
		if r, _ := l.record(uid); r.hasWorker && !has(known, uid) {
			l.apply(event{kind: evPhaseChanged, uid: uid, phase: podworker.Finished}) // the worker was forgotten before its first sync
		}
	}
	l.findOrphans()
}

func has(known map[types.UID]podworker.Known, uid types.UID) bool { _, ok := known[uid]; return ok }

// findOrphans stops and removes pods that exist only in the runtime.
func (l *Loop) findOrphans() {
	for _, s := range l.found() {
		if existsInRuntime(s) && !l.isKnown(s.UID) {
			l.apply(event{kind: evFound, uid: s.UID, status: s})
		}
	}
}

// found returns the pods of the runtime that belong to this agent. Even with TakeOver, it skips
// pods whose sandboxes and containers have no pod labels.
func (l *Loop) found() []*podcache.Status {
	if !l.cfg.TakeOver {
		return l.cache.Statuses()
	}
	return slices.DeleteFunc(l.cache.Statuses(), func(s *podcache.Status) bool {
		for _, sandbox := range s.Sandboxes {
			if crilabels.UID(sandbox.GetLabels()) != "" {
				return false
			}
		}
		for _, c := range s.Containers {
			if crilabels.UID(c.GetLabels()) != "" {
				return false
			}
		}
		return true
	})
}

// existsInRuntime reports whether the pod has a sandbox or a container.
func existsInRuntime(s *podcache.Status) bool { return len(s.Sandboxes)+len(s.Containers) > 0 }

// searchDisk removes the files and mounts of pods without a record. An agent that was killed may
// have left such files.
func (h *housekeeping) searchDisk(ctx context.Context) {
	found, err := h.runner.Leftovers()
	if err != nil {
		h.cfg.Logger.ErrorContext(ctx, "could not search the disk for files of removed pods, will retry", "err", err)
		return
	}
	h.searched = h.cfg.Clock.Now()
	maps.DeleteFunc(h.cleared, func(uid types.UID, _ bool) bool { return h.isKnown(uid) || !slices.Contains(found, uid) })
	orphans, remaining := 0, len(h.cleared)
	for _, uid := range found {
		if h.isKnown(uid) {
			continue
		}
		orphans++
		if h.cleared[uid] {
			continue
		}
		h.cleared[uid] = true
		h.post(func() { h.apply(event{kind: evFound, uid: uid, status: &podcache.Status{UID: uid}}) })
	}
	h.cfg.Observers.Searched(orphans, remaining)
}

// removePod removes all remaining data of a pod that has ended. The runtime may complete a cancelled
// call after the pod has ended. If something of the pod runs again, removePod stops it first.
func (l *Loop) removePod(ctx context.Context, uid types.UID) error {
	s, _ := l.cache.Get(uid) // on an error, use the last known status
	if s.Running() {
		if err := l.runner.SyncTerminatingRuntimePod(ctx, podworker.SyncRequest{Status: s}); err != nil {
			return err
		}
		s, _ = l.cache.Get(uid)
	}
	return l.runner.RemovePod(ctx, s)
}

// podRemoved records that a pod is completely removed.
func (l *Loop) podRemoved(uid types.UID) {
	if l.cfg.Objects != nil {
		l.cfg.Objects.Release(uid)
	}
	l.post(func() { l.apply(event{kind: evRemoved, uid: uid}) })
}
