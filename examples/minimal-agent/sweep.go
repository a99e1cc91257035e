package main

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
	// sweepPeriod is how often housekeeping runs by itself, as the kubelet's does.
	sweepPeriod = 2 * time.Second
	// diskPeriod is how often it looks for folders of pods that it does not know.
	diskPeriod = time.Minute
)

// runSweep keeps house until ctx is done.
func (a *agent) runSweep(ctx context.Context) error { return a.sweep.Run(ctx, a.housekeep) }

// housekeep makes workers, runtime and statuses agree with what is desired: it
// kills what nobody asked for, removes what has stopped for good, and begins what
// has no worker. It does nothing until the manifests were read: until then nobody
// knows what is desired.
func (a *agent) housekeep(ctx context.Context) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ready {
		return sweepPeriod
	}
	wanted := a.wanted()
	known := a.workers.SyncKnownPods(func() []*corev1.Pod { return wanted })
	isKnown := func(uid types.UID) bool { _, ok := known[uid]; return ok }
	a.probes.keep(isKnown)
	maps.DeleteFunc(a.rejected, func(uid types.UID, _ bool) bool { _, desired := a.pods.GetPodByUID(uid); return !desired })
	a.statuses.RemoveOrphanedStatuses(func(uid types.UID) bool { return isKnown(uid) || a.rejected[uid] })
	if err := a.saved.RemoveOrphans(ctx, func(uid types.UID) bool { _, desired := a.pods.GetPodByUID(uid); return desired && !a.awaitsSweep[uid] }); err != nil {
		a.log.ErrorContext(ctx, "what was said of pods that are gone stays", "err", err)
	}
	var left []types.UID
	for uid := range a.leaving {
		if s, _ := a.cache.Get(uid); !isKnown(uid) && !isShown(s) {
			delete(a.leaving, uid)
			left = append(left, uid)
		}
	}
	keep := map[types.UID]bool{}
	for _, p := range wanted {
		if _, isKnown := known[p.UID]; !isKnown && a.remains(p.UID) {
			continue // it begins when those of its life before are removed
		} else if !isKnown {
			a.workers.UpdatePod(podworker.Update{Type: podworker.Create, Pod: p})
			delete(a.awaitsSweep, p.UID)
		}
		keep[p.UID] = true
		delete(a.cleared, p.UID)
	}
	for _, s := range a.found() {
		if !keep[s.UID] {
			a.endOrphan(ctx, s)
		}
	}
	a.clearDisk(ctx, left, func(uid types.UID) bool {
		_, isKnown := known[uid]
		return isKnown || keep[uid]
	})
	return sweepPeriod
}

// clearDisk removes the files and mounts of pods that are gone in every other respect:
// of those that have just left, of those whose removal has failed, and of those that an
// agent that was killed has left.
func (a *agent) clearDisk(ctx context.Context, left []types.UID, wanted func(types.UID) bool) {
	uids := append(left, a.removals.unfinished()...)
	look := time.Since(a.diskSeen) >= diskPeriod
	if look {
		found, err := a.runner.Leftovers()
		if err != nil {
			a.log.ErrorContext(ctx, "looking for leftovers of pods failed", "err", err)
		} else {
			a.diskSeen = time.Now()
			maps.DeleteFunc(a.cleared, func(uid types.UID, _ bool) bool { return !slices.Contains(found, uid) })
		}
		uids = append(uids, found...)
	}
	for _, uid := range uids {
		s, err := a.cache.Get(uid)
		if err != nil || !a.cache.Known(uid) {
			a.diskSeen = time.Time{} // the runtime was not looked at yet: its silence says nothing
			continue
		}
		if wanted(uid) {
			a.removals.forget(uid)
			continue
		}
		if a.cleared[uid] || isShown(s) || a.workers.CouldHaveRunningContainers(uid) {
			continue
		}
		a.removals.start(ctx, s, a.removeLast(uid))
	}
}

// removeLast returns what removes all that is left of a pod that nobody asks for.
func (a *agent) removeLast(uid types.UID) func(context.Context) error {
	return func(ctx context.Context) error {
		err := a.removePod(ctx, uid)
		if err == nil {
			a.objects.Release(uid)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.cleared[uid] = true // what is left after that is nobody's here
		}
		return err
	}
}

// wanted are the desired pods that were not refused.
func (a *agent) wanted() []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(a.pods.GetPods()), func(p *corev1.Pod) bool { return a.rejected[p.UID] })
}

// found are the pods on the runtime that are this agent's: all that the lists of its own
// objects show, whatever labels their statuses have. Even --take-over leaves alone what
// carries no label of a pod's: no manifest made it.
func (a *agent) found() []*podcache.Status {
	if !a.opts.takeOver {
		return a.cache.Statuses()
	}
	return slices.DeleteFunc(a.cache.Statuses(), func(s *podcache.Status) bool {
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

// remains says whether a pod that does not run has left something behind.
func (a *agent) remains(uid types.UID) bool {
	s, _ := a.cache.Get(uid)
	return a.removals.underWay(uid) || isShown(s) && !s.Running()
}

// endOrphan takes one step with a pod that nobody asks for: one that runs is
// killed by its worker, one that has stopped is removed.
func (a *agent) endOrphan(ctx context.Context, s *podcache.Status) {
	switch {
	case a.workers.CouldHaveRunningContainers(s.UID): // its worker is at it
	case s.Running():
		a.workers.UpdatePod(podworker.Update{Type: podworker.Kill, Running: s})
	case !s.Stale && isShown(s):
		a.removals.start(ctx, s, a.removeLast(s.UID))
	}
}

// removePod removes what is left now of a stopped pod. If that fails, a later sweep
// tries again.
func (a *agent) removePod(ctx context.Context, uid types.UID) error {
	before, _ := a.cache.Get(uid)
	err := a.runner.RemovePod(ctx, before)
	if now, _ := a.cache.Get(uid); isShown(before) && !isShown(now) { // the runner has refreshed it
		a.console.gone(before.Namespace, before.Name)
	}
	return err
}

// isShown reports whether the runtime shows anything of the pod.
func isShown(s *podcache.Status) bool { return len(s.Sandboxes)+len(s.Containers) > 0 }
