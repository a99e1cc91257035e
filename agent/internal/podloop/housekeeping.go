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
	// housePeriod is the time between two passes of housekeeping.
	housePeriod = 10 * time.Second
	// diskPeriod is the time between two searches of the disk.
	diskPeriod = time.Minute
)

// housekeeping makes workers, statuses, runtime and disk agree with the records. It only repairs:
// the ordinary life of a pod does not need it. It does nothing before every source has answered
// and the runtime was listed: until then a pod without a record may be a source's.
type housekeeping struct {
	*Loop
	searched time.Time // when the disk was searched last
	// cleared are the pods without a record of which the disk still has something after their
	// removal: it is not this agent's.
	cleared map[types.UID]bool
}

// pass is one pass of housekeeping. It returns when the next one is due.
func (h *housekeeping) pass(ctx context.Context) time.Duration {
	if h.Ready() != nil {
		return housePeriod
	}
	done := make(chan struct{})
	h.post(func() { h.sweep(); close(done) })
	select {
	case <-done:
	case <-ctx.Done():
		return housePeriod
	}
	if err := h.saved.RemoveOrphans(ctx, h.isKnown); err != nil {
		h.cfg.Logger.ErrorContext(ctx, "could not delete the statuses of removed pods, will retry", "err", err)
	}
	if h.cfg.Clock.Since(h.searched) >= diskPeriod {
		h.searchDisk(ctx)
	}
	return housePeriod
}

func (l *Loop) isKnown(uid types.UID) bool { _, known := l.record(uid); return known }

// sweep compares the records with what workers, probes, statuses and the runtime have. It is
// called by the goroutine of the queue.
func (l *Loop) sweep() {
	var desired []*corev1.Pod
	l.each(func(r record) {
		if r.source != "" {
			desired = append(desired, r.pod)
		}
	})
	known := l.workers.SyncKnownPods(func() []*corev1.Pod { return desired })
	l.probes.keep(func(uid types.UID) bool { _, ok := known[uid]; return ok })
	l.statuses.RemoveOrphanedStatuses(l.isKnown)
	l.unsent.retain(l.isKnown)
	for _, uid := range l.uids() {
		if r, _ := l.record(uid); r.working && !has(known, uid) {
			l.apply(event{kind: evMoved, uid: uid, phase: podworker.Finished}) // its worker never began
		}
	}
	l.findOrphans()
}

func has(known map[types.UID]podworker.Known, uid types.UID) bool { _, ok := known[uid]; return ok }

// findOrphans ends and removes the pods that only the runtime has.
func (l *Loop) findOrphans() {
	for _, s := range l.found() {
		if isShown(s) && !l.isKnown(s.UID) {
			l.apply(event{kind: evFound, uid: s.UID, status: s})
		}
	}
}

// found returns the pods on the runtime that are this agent's. Even a take-over leaves alone what
// has no label of a pod.
func (l *Loop) found() []*podcache.Status {
	if !l.cfg.TakeOver {
		return l.cache.Statuses()
	}
	return slices.DeleteFunc(l.cache.Statuses(), func(s *podcache.Status) bool {
		for _, box := range s.Sandboxes {
			if crilabels.UID(box.GetLabels()) != "" {
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

// isShown reports whether the runtime shows anything of the pod.
func isShown(s *podcache.Status) bool { return len(s.Sandboxes)+len(s.Containers) > 0 }

// searchDisk removes the files and mounts of pods without a record. An agent that was killed may
// have left them.
func (h *housekeeping) searchDisk(ctx context.Context) {
	found, err := h.runner.Leftovers()
	if err != nil {
		h.cfg.Logger.ErrorContext(ctx, "could not search the disk for leftovers of pods, will retry", "err", err)
		return
	}
	h.searched = h.cfg.Clock.Now()
	maps.DeleteFunc(h.cleared, func(uid types.UID, _ bool) bool { return h.isKnown(uid) || !slices.Contains(found, uid) })
	for _, uid := range found {
		if h.cleared[uid] || h.isKnown(uid) {
			continue
		}
		h.cleared[uid] = true
		h.post(func() { h.apply(event{kind: evFound, uid: uid, status: &podcache.Status{UID: uid}}) })
	}
}

// removePod removes all that is left of a pod.
func (l *Loop) removePod(ctx context.Context, uid types.UID) error {
	s, _ := l.cache.Get(uid) // what was known before an error counts
	return l.runner.RemovePod(ctx, s)
}

// podRemoved takes that nothing is left of a pod.
func (l *Loop) podRemoved(uid types.UID) {
	if l.cfg.Objects != nil {
		l.cfg.Objects.Release(uid)
	}
	l.post(func() { l.apply(event{kind: evRemoved, uid: uid}) })
}
