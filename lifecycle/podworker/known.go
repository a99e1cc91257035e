package podworker

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Known is what [Workers.SyncKnownPods] says about one pod.
type Known struct {
	// Phase is how far the pod has come.
	Phase Phase
	// Orphan says that the pod is not desired any more.
	Orphan bool
	// HasConfig says that the pod has a spec; without one, only the runtime knows
	// it. Static says that it is a static pod.
	HasConfig, Static bool
}

// SyncKnownPods asks for the pods that are desired, all of them, ends the ones
// that are not, and returns what is known after that. What has finished, or never
// began, and is either not desired or was asked for again meanwhile is forgotten:
// it is not in the result, and a desired pod that is not must be created with
// [Workers.UpdatePod]. Call it when every source of pods has been read, and then
// now and then: each call gives pods that failed to end another try.
//
// Desired is called once, without a lock. A pod that had an update since that
// call counts as desired: the list may be older than the pod. So a sweep needs no
// lock that it shares with who calls UpdatePod; only the updates of one pod have
// to come in the order of their specs. A list that is older than a pod's removal
// keeps the pod known until the next sweep, and does no more than that.
//
// The result is shared by the callers between two changes and must not be
// modified.
func (w *Workers) SyncKnownPods(desired func() []*corev1.Pod) map[types.UID]Known {
	w.mu.Lock()
	since := w.updates
	w.mu.Unlock()
	pods := desired()

	w.mu.Lock()
	w.synced = true
	w.sweep++
	maps.DeleteFunc(w.past, func(_ types.UID, l life) bool { return l.sweep+1 < w.sweep })
	for _, pod := range pods {
		if pod == nil {
			continue
		}
		if p := w.pods[pod.UID]; p != nil {
			w.want(p)
		}
	}
	var done swept
	for _, p := range w.pods {
		if p.updated > since {
			w.want(p)
		}
		w.visit(p, &done)
	}
	known := w.snapshot()
	w.mu.Unlock()
	for _, p := range done.moved {
		w.tell(p)
	}
	for _, pod := range done.restarted {
		w.cfg.Observer.Restarted(pod)
	}
	return known
}

// swept is what is to be told of a sweep.
type swept struct {
	moved     []*worker
	restarted []*corev1.Pod
}

// visit ends p if nobody wants it, and forgets it if nothing is left of it.
func (w *Workers) visit(p *worker, done *swept) {
	orphan := p.desired != w.sweep
	if orphan && p.desired+1 == w.sweep {
		w.known = nil // it was desired the last time
	}
	switch {
	case (orphan || p.restart) && forgettable(p.state, orphan):
		if !orphan {
			done.restarted = append(done.restarted, p.pod)
		}
		w.forget(p)
	case orphan && w.abandon(p):
		done.moved = append(done.moved, p)
	}
}

// KnownPods returns what is known now. What is desired is as the last call of
// [Workers.SyncKnownPods] had it. The result must not be modified.
func (w *Workers) KnownPods() map[types.UID]Known {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.snapshot()
}

// want notes that p is desired in this sweep.
func (w *Workers) want(p *worker) {
	if p.desired+1 < w.sweep {
		w.known = nil // it was not desired the last time
	}
	p.desired = w.sweep
}

// snapshot returns what is known, as a new map if something has changed.
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

// forgettable says whether nothing is left of a pod to care for. One that never
// began leaves nothing behind if nobody wants it.
func forgettable(s state, orphan bool) bool {
	return s.phase == Finished || orphan && !s.started && !s.inRuntime
}

// forget drops p. Its goroutine, if it has one that did not begin yet, finds
// nothing to do.
func (w *Workers) forget(p *worker) {
	w.drop(p)
	w.report(p.waiters, nil)
	p.waiters, p.wanted = nil, false
	w.leave(p)
}

// Forget forgets a pod that has finished, so that it may begin anew under the same UID, and
// reports whether the pod is unknown then. It is for a caller that keeps track of pods itself;
// [Workers.SyncKnownPods] does the same for all pods.
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

// drop takes p out of what is known.
func (w *Workers) drop(p *worker) {
	delete(w.pods, p.uid)
	w.known = nil
	if !p.since.IsZero() {
		w.past[p.uid] = life{p.since, w.sweep}
	}
}

// abandon ends p because nobody wants it, and says whether it was not ending yet.
// While a turn of its end is under way, there is no need for another.
func (w *Workers) abandon(p *worker) (moved bool) {
	if p.phase >= Terminating && p.working {
		p.deleted = true
		return false
	}
	before := p.phase
	p.state = orphaned(p.state)
	w.follow(p, before, effects{cancel: p.phase != before})
	return p.phase != before
}

// query runs f on what is known of the pod, nil if nothing is.
func (w *Workers) query(uid types.UID, f func(s *state) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pods[uid]; p != nil {
		return f(&p.state)
	}
	return f(nil)
}

// IsPodKnownTerminated says whether the pod is known and nothing of it runs any
// more.
func (w *Workers) IsPodKnownTerminated(uid types.UID) bool {
	return w.query(uid, func(s *state) bool { return s != nil && s.phase >= Terminated })
}

// CouldHaveRunningContainers says whether something of the pod may run or start.
// An unknown pod may until [Workers.SyncKnownPods] was called.
func (w *Workers) CouldHaveRunningContainers(uid types.UID) bool {
	return w.query(uid, func(s *state) bool {
		if s == nil {
			return !w.synced
		}
		return s.phase < Terminated
	})
}

// ShouldPodBeFinished says whether the pod has finished, or nobody knows it.
func (w *Workers) ShouldPodBeFinished(uid types.UID) bool {
	return w.query(uid, func(s *state) bool {
		if s == nil {
			return w.synced
		}
		return s.phase == Finished
	})
}

// IsPodTerminationRequested says whether the pod is known and to end, or has
// ended.
func (w *Workers) IsPodTerminationRequested(uid types.UID) bool {
	return w.query(uid, func(s *state) bool { return s != nil && s.phase >= Terminating })
}

// ShouldPodContainersBeTerminating says whether the pod's worker has begun to end
// it, so that nothing of it can start any more, or nobody knows the pod.
func (w *Workers) ShouldPodContainersBeTerminating(uid types.UID) bool {
	return w.query(uid, func(s *state) bool {
		if s == nil {
			return w.synced
		}
		return s.stopping
	})
}

// ShouldPodRuntimeBeRemoved says whether what the runtime still has of the pod can
// go: nothing of it runs, or nobody knows it.
func (w *Workers) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	return w.query(uid, func(s *state) bool {
		if s == nil {
			return w.synced
		}
		return s.phase >= Terminated
	})
}

// ShouldPodContentBeRemoved says whether the pod's containers and their data can
// go: it was evicted, or it was deleted and nothing of it runs, or nobody knows
// it.
func (w *Workers) ShouldPodContentBeRemoved(uid types.UID) bool {
	return w.query(uid, func(s *state) bool {
		if s == nil {
			return w.synced
		}
		return s.evicted || s.deleted && s.phase >= Terminated
	})
}

// IsPodForMirrorPodTerminatingByFullName says whether the static pod of that full
// name that was let start is ending and may still run.
func (w *Workers) IsPodForMirrorPodTerminatingByFullName(fullName string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	uid, ok := w.gate.first(fullName)
	if !ok {
		return false
	}
	p := w.pods[uid]
	return p.started && p.phase == Terminating
}
