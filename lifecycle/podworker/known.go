package podworker

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Known describes one pod in the result of [Workers.SyncKnownPods].
type Known struct {
	// Phase is the pod's phase.
	Phase Phase
	// Orphan reports whether the pod is not desired any more.
	Orphan bool
	// HasConfig reports whether the pod has a spec; if not, only the runtime
	// knows the pod. Static reports whether the pod is static.
	HasConfig, Static bool
}

// SyncKnownPods terminates the known pods that are not in the list of desired
// pods, and returns the known pods. It forgets a finished pod if the pod is not
// desired or was created again meanwhile. It also forgets a pod that is not
// desired, was never started and was not in the runtime. Forgotten pods are not
// in the result. If a desired pod is not in the result, the caller must create
// it with [Workers.UpdatePod]. Call SyncKnownPods when every source of pods has
// been read, and then regularly: each call retries pods whose termination
// failed.
//
// SyncKnownPods calls desired once, without a lock, to get the list of all
// desired pods. If a pod is updated after this call has begun, the pod counts
// as desired, because the list may be older than the update. Callers of
// SyncKnownPods and of UpdatePod therefore need no common lock. But the updates
// of one pod must be in the order of its specs. If the list still contains a
// removed pod, a later call of SyncKnownPods terminates and forgets the pod.
//
// The result is shared between calls until something changes, and must not be
// modified.
func (w *Workers) SyncKnownPods(desired func() []*corev1.Pod) map[types.UID]Known {
	w.mu.Lock()
	since := w.updates
	w.mu.Unlock()
	pods := desired()

	w.mu.Lock()
	w.synced = true
	w.sweep++
	maps.DeleteFunc(w.forgotten, func(_ types.UID, l forgottenPod) bool { return l.sweep+1 < w.sweep })
	for _, pod := range pods {
		if pod == nil {
			continue
		}
		if p := w.pods[pod.UID]; p != nil {
			w.want(p)
		}
	}
	var done sweepResult
	for _, p := range w.pods {
		if p.updated > since {
			w.want(p)
		}
		w.sweepPod(p, &done)
	}
	known := w.snapshot()
	w.mu.Unlock()
	for _, p := range done.moved {
		w.notifyPhaseChanges(p)
	}
	for _, pod := range done.restarted {
		w.cfg.Observer.Restarted(pod)
	}
	return known
}

// sweepResult collects the events of one call of SyncKnownPods.
type sweepResult struct {
	moved     []*worker
	restarted []*corev1.Pod
}

// sweepPod terminates p if p is not desired. If nothing is left to do for p, and
// p is not desired or was created again, sweepPod forgets p instead.
func (w *Workers) sweepPod(p *worker, done *sweepResult) {
	orphan := p.desired != w.sweep
	if orphan && p.desired+1 == w.sweep {
		w.known = nil // it was desired in the last call
	}
	switch {
	case (orphan || p.restart) && forgettable(p.state, orphan):
		if !orphan {
			done.restarted = append(done.restarted, p.pod)
		}
		w.forget(p)
	case orphan && w.terminateOrphan(p):
		done.moved = append(done.moved, p)
	}
}

// KnownPods returns the known pods. The field Orphan is true if the pod was not
// desired in the last call of [Workers.SyncKnownPods]. It is false for a pod
// that was created after this call. The result must not be modified.
func (w *Workers) KnownPods() map[types.UID]Known {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.snapshot()
}

// want records that p is desired in this call of SyncKnownPods.
func (w *Workers) want(p *worker) {
	if p.desired+1 < w.sweep {
		w.known = nil // it was not desired in the last call
	}
	p.desired = w.sweep
}

// snapshot returns the known pods, as a new map if something has changed.
func (w *Workers) snapshot() map[types.UID]Known {
	if w.known == nil {
		w.known = make(map[types.UID]Known, len(w.pods))
		for uid, p := range w.pods {
			w.known[uid] = Known{
				Phase:     p.phase,
				Orphan:    p.desired != w.sweep,
				HasConfig: p.pod != nil,
				Static:    p.pod != nil && podspec.IsStatic(p.pod),
			}
		}
	}
	return w.known
}

// forgettable reports whether nothing is left to do for a pod. This is the case
// if the pod has finished. It is also the case if the pod is not desired, was
// never started and was not in the runtime.
func forgettable(s state, orphan bool) bool {
	return s.phase == Finished || orphan && !s.started && !s.inRuntime
}

// forget deletes p. If p has a goroutine that has not begun a sync yet, the
// goroutine finds no pending sync and ends.
func (w *Workers) forget(p *worker) {
	w.drop(p)
	w.notifyWaiters(p.waiters, nil)
	p.waiters, p.pending = nil, false
	w.leave(p)
}

// Forget deletes a pod that has finished, so that it can be created again under
// the same UID. It reports whether the pod is unknown after the call. Forget is
// for callers that decide about a single pod; [Workers.SyncKnownPods] forgets
// all finished pods that are not desired.
func (w *Workers) Forget(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, known := w.pods[uid]
	switch {
	case !known:
		return true
	case p.phase != Finished:
		return false
	}
	w.forget(p)
	return true
}

// drop removes p from the known pods.
func (w *Workers) drop(p *worker) {
	delete(w.pods, p.uid)
	w.known = nil
	if !p.since.IsZero() {
		w.forgotten[p.uid] = forgottenPod{p.since, w.sweep}
	}
}

// terminateOrphan terminates p because p is not desired, and reports whether
// the phase of p has changed. If p is past the phase Syncing and a sync of p is
// running, terminateOrphan requests no other sync.
func (w *Workers) terminateOrphan(p *worker) (moved bool) {
	if p.phase >= Terminating && p.working {
		p.deleted = true
		return false
	}
	before := p.phase
	p.state = orphaned(p.state)
	w.applyEffects(p, before, effects{cancel: p.phase != before})
	return p.phase != before
}

// query calls f with the state of the pod, or with nil if it is unknown.
func (w *Workers) query(uid types.UID, f func(s *state) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pods[uid]; p != nil {
		return f(&p.state)
	}
	return f(nil)
}

// IsPodKnownTerminated reports whether the pod is known and nothing of it runs
// any more.
func (w *Workers) IsPodKnownTerminated(uid types.UID) bool {
	return w.query(uid, func(s *state) bool { return s != nil && s.phase >= Terminated })
}

// CouldHaveRunningContainers reports whether containers of the pod may run or
// start. For an unknown pod it returns true until [Workers.SyncKnownPods] was
// called.
func (w *Workers) CouldHaveRunningContainers(uid types.UID) bool {
	return w.query(uid, func(s *state) bool {
		if s == nil {
			return !w.synced
		}
		return s.phase < Terminated
	})
}

// ShouldPodBeFinished reports whether the pod has finished. For an unknown pod
// it returns true once [Workers.SyncKnownPods] was called.
func (w *Workers) ShouldPodBeFinished(uid types.UID) bool {
	return w.query(uid, func(s *state) bool {
		if s == nil {
			return w.synced
		}
		return s.phase == Finished
	})
}

// IsPodTerminationRequested reports whether the pod is known and is terminating
// or has ended.
func (w *Workers) IsPodTerminationRequested(uid types.UID) bool {
	return w.query(uid, func(s *state) bool { return s != nil && s.phase >= Terminating })
}

// ShouldPodContainersBeTerminating reports whether the pod's worker has begun
// to terminate it, so that nothing of it can start any more. For an unknown pod
// it returns true once [Workers.SyncKnownPods] was called.
func (w *Workers) ShouldPodContainersBeTerminating(uid types.UID) bool {
	return w.query(uid, func(s *state) bool {
		if s == nil {
			return w.synced
		}
		return s.stopping
	})
}

// ShouldPodRuntimeBeRemoved reports whether the pod can be removed from the
// runtime, because nothing of it runs. For an unknown pod it returns true once
// [Workers.SyncKnownPods] was called.
func (w *Workers) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	return w.query(uid, func(s *state) bool {
		if s == nil {
			return w.synced
		}
		return s.phase >= Terminated
	})
}

// ShouldPodContentBeRemoved reports whether the pod's containers and their data
// can be removed: it was evicted, or it was deleted and nothing of it runs. For
// an unknown pod it returns true once [Workers.SyncKnownPods] was called.
func (w *Workers) ShouldPodContentBeRemoved(uid types.UID) bool {
	return w.query(uid, func(s *state) bool {
		if s == nil {
			return w.synced
		}
		return s.evicted || s.deleted && s.phase >= Terminated
	})
}

// IsPodForMirrorPodTerminatingByFullName reports whether a started static pod
// with this full name is terminating and may still run.
func (w *Workers) IsPodForMirrorPodTerminatingByFullName(fullName string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	uid, ok := w.static.first(fullName)
	if !ok {
		return false
	}
	p := w.pods[uid]
	return p.started && p.phase == Terminating
}
