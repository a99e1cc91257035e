package podloop

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/loop"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/podmanager"
	"github.com/kubeparts/kubeparts/status"
)

// Loop runs the pods that its sources define. Create it with [New]. Run may be called only once.
// All other methods are safe for concurrent use while Run runs.
type Loop struct {
	cfg Config

	merge          *podmanager.Merge
	filters        []*podFilter // one per source, in the order of Sources
	admissionQueue *admissionQueue
	cache          *podcache.Cache
	pleg           *pleg.Generator
	runner         *podrunner.Runner
	images         *images.Manager
	workers        *podworker.Workers
	probes         *probes
	hooks          *lifecycle.HookRunner
	exits          *exits
	deadline       lifecycle.ActiveDeadline
	remover        *remover

	statuses    *status.Manager
	saved       *status.Saved // statuses saved by an earlier agent; also the first sink
	publishers  []*status.Publisher
	unpublished *unpublished

	restarts *savedBackoff
	pulls    *lifecycle.Backoff

	housekeepingLoop *loop.Loop // runs the passes of housekeeping
	qos              *loop.Loop // sets the cgroup shares of the QoS classes

	queue       *queue
	hasRun      atomic.Bool
	manualPulls atomic.Uint64 // number of calls of Pull
	stopping    atomic.Bool   // StopPods was called and not cancelled
	listed      chan struct{} // closed when the first relist is complete
	stopped     chan struct{} // closed when Run returns

	// The following fields belong to the goroutine of the event queue.
	removals func(types.UID) // starts the removal of a pod
	serial   uint64
	retryDue bool // retry the admission of refused pods
	changed  bool // a record has changed since the last call of Config.Changed

	mu      sync.RWMutex
	records map[types.UID]record // written only by the goroutine of the event queue
	moved   chan struct{}        // closed and replaced when a record changes
	ready   bool                 // every source has defined its pods
	// ranBefore has the names of the pods that ran when the agent started. Nil means that the
	// names are unknown.
	ranBefore map[types.NamespacedName]bool
}

// post makes the goroutine of the event queue call f. It never waits.
func (l *Loop) post(f func()) { l.queue.post(f) }

// apply handles an event. Only the goroutine of the event queue calls it.
func (l *Loop) apply(e event) {
	l.serial++
	e.serial = l.serial
	e.runs = l.mayRun(e.uid)
	before, _ := l.record(e.uid)
	after, todo := next(before, e)
	if after.state != before.state {
		after.since = l.cfg.Clock.Now()
	}
	l.store(after)
	if after.state != before.state {
		l.cfg.Observers.Pod(Move{Pod: after.pod, From: before.state, To: after.state, Adopted: after.adopted, Reason: after.why})
	}
	for _, d := range todo {
		l.perform(after, d)
	}
	if e.kind == evPhaseChanged && e.phase == podworker.Terminated {
		l.retryDue = true
	}
}

// applyAll handles an event for each pod, in the order of UIDs.
func (l *Loop) applyAll(e event) {
	for _, uid := range l.uids() {
		e.uid = uid
		l.apply(e)
	}
}

// batchDone is called after each batch of events.
func (l *Loop) batchDone() {
	// Start a round of retries only if the admission queue is empty. Without this condition, each
	// pod that ends would start another round.
	if l.retryDue && l.admissionQueue.isIdle() {
		l.retryDue = false
		l.applyAll(event{kind: evRetry})
	}
	if l.changed {
		l.changed = false
		l.cfg.Changed()
	}
}

// perform carries out one action. It never waits.
func (l *Loop) perform(r record, d do) {
	switch d.action {
	case doAdmit:
		l.admissionQueue.requestAdmission(d.pod, d.version, d.edit)
	case doRelease:
		l.admissionQueue.release(r.uid)
	case doStart, doResume:
		l.workers.UpdatePod(podworker.Update{Type: podworker.Create, Pod: l.allocated(d.pod)})
		l.qos.Trigger()
	case doUpdate:
		l.workers.UpdatePod(podworker.Update{Type: podworker.Change, Pod: l.allocated(d.pod)})
		l.qos.Trigger()
	case doSync:
		l.workers.UpdatePod(podworker.Update{Type: podworker.Sync, Pod: l.allocated(d.pod)})
	case doStop:
		l.workers.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: l.allocated(d.pod), Kill: d.how})
	case doStopOrphan:
		l.workers.UpdatePod(podworker.Update{Type: podworker.Kill, Running: d.status})
	case doRefuse:
		l.refuse(d)
	case doRefuseEdit:
		l.cfg.Events.Eventf(d.pod, corev1.EventTypeWarning, d.result.Reason,
			"The changed pod was not admitted; the previous version keeps running: %s", d.result.Message)
	case doReportEdit:
		l.cfg.Observers.Edited(d.before, d.pod)
	case doUnrefuse:
		l.statuses.RemovePodStatus(r.uid)
	case doPublish:
		l.publish(r.uid)
	case doTerminate:
		l.statuses.TerminatePod(d.pod)
		l.publish(r.uid)
	case doEnded:
		l.qos.Trigger()
		l.cfg.Node.EvaluateThresholds()
	case doRemove:
		l.removals(r.uid)
	case doForget:
		l.forget(r)
	case doForgetWorker:
		l.workers.Forget(r.uid)
	}
}

// refuse records that a pod was not admitted.
func (l *Loop) refuse(d do) {
	before, _ := l.statuses.GetPodStatus(d.pod.UID)
	l.statuses.SetPodStatus(d.pod, refused(d.pod, before, d.result))
	l.cfg.Events.Eventf(d.pod, corev1.EventTypeWarning, d.result.Reason, "%s", d.result.Message)
}

// forget deletes the state of an earlier run of a pod.
func (l *Loop) forget(r record) {
	l.workers.Forget(r.uid)
	l.probes.remove(r.uid)
	l.statuses.RemovePodStatus(r.uid)
	l.saved.Forget(r.uid)
	if r.state == Gone {
		l.housekeepingLoop.Trigger()
		l.cfg.Node.EvaluateThresholds()
		return
	}
	if restarted := l.cfg.Observers.Workers.Restarted; restarted != nil {
		restarted(r.pod)
	}
}

// record returns the record of a pod, and whether the record exists.
func (l *Loop) record(uid types.UID) (record, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if r, ok := l.records[uid]; ok {
		return r, true
	}
	return record{uid: uid, state: Gone}, false
}

// store replaces a record. A record with the state Gone is deleted.
func (l *Loop) store(r record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.state == Gone {
		delete(l.records, r.uid)
	} else {
		l.records[r.uid] = r
	}
	close(l.moved)
	l.moved = make(chan struct{})
	l.changed = true
}

// uids returns the UIDs of all known pods, sorted.
func (l *Loop) uids() []types.UID {
	l.mu.RLock()
	defer l.mu.RUnlock()
	uids := make([]types.UID, 0, len(l.records))
	for uid := range l.records {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// mayRun reports whether it is possible that a container of the pod is running. It returns true
// while the cache does not know the pod's state in the runtime.
func (l *Loop) mayRun(uid types.UID) bool {
	if !l.cache.Known(uid) {
		return true
	}
	s, err := l.cache.Get(uid) // on an error, the last known status
	return s.Running() || err != nil && len(s.Sandboxes)+len(s.Containers) == 0
}

// allocated returns the pod with its allocated resources, for workers, statuses and eviction.
// The allocated resources are the resources in the pod's spec, so the result is the unchanged pod.
func (l *Loop) allocated(pod *corev1.Pod) *corev1.Pod { return pod }

// publish makes each publisher publish the status of a pod again.
func (l *Loop) publish(uid types.UID) {
	for _, p := range l.publishers {
		p.Trigger(uid)
	}
}

// defined handles a change of the pods of a source. The second argument reports whether c is the
// first change of that source.
func (l *Loop) defined(c podmanager.Change, first bool) {
	for _, op := range c.Ops {
		e := event{uid: op.Pod.UID, pod: op.Pod, source: op.Pod.Annotations[podspec.SourceAnnotation]}
		switch op.Type {
		case podmanager.Add, podmanager.Update:
			e.kind, e.ended = evDefined, l.endedBefore(op.Pod, first)
			if op.Pod.DeletionTimestamp != nil {
				e.kind = evDeleted
			}
		case podmanager.Delete:
			e.kind = evDeleted
		case podmanager.Reconcile:
			e.kind = evReconciled
		case podmanager.Remove:
			e.kind = evUndefined
		}
		l.apply(e)
	}
	if len(c.UnreadSources) == 0 && !l.ready {
		l.mu.Lock()
		l.ready = true
		l.mu.Unlock()
		l.changed = true
		l.triggerIfReady()
	}
}

// endedBefore reports whether a new pod has already ended according to the status in its
// definition. In the first change of the pod's source, endedBefore also checks the status that an
// earlier agent has saved.
func (l *Loop) endedBefore(pod *corev1.Pod, first bool) bool {
	if podspec.IsTerminal(pod.Status.Phase) {
		return true
	}
	s, ok := l.savedStatus(pod.UID)
	return first && ok && podspec.IsTerminal(s.Phase)
}

// savedStatus returns the status that an earlier agent has saved for a pod, if the status is
// still valid.
func (l *Loop) savedStatus(uid types.UID) (corev1.PodStatus, bool) {
	s, ok := l.saved.Status(uid)
	if !ok || !countsAfterRestart(s) {
		return corev1.PodStatus{}, false
	}
	return s, true
}

// Sync informs the loop that a dependency of these pods, such as a Secret, has changed. Refused
// static pods and refused edits go through admission again, admitted pods are synced, and the
// status of each pod is published again. Sync never blocks. Any goroutine may call it,
// even with locks held.
func (l *Loop) Sync(uids ...types.UID) {
	l.post(func() {
		for _, uid := range uids {
			l.apply(event{kind: evDependencyChanged, uid: uid})
		}
	})
}

// SyncAll does the same as [Loop.Sync], for all pods.
func (l *Loop) SyncAll() { l.post(func() { l.applyAll(event{kind: evDependencyChanged}) }) }

// NodeChanged retries the admission of refused static pods and refused edits. It never blocks.
func (l *Loop) NodeChanged() { l.post(func() { l.retryDue = true }) }

// plegEvent passes an event of the PLEG to the parts that need it: probes, hooks, workers and
// housekeeping.
func (l *Loop) plegEvent(e pleg.Event) {
	l.probes.Refresh(e.PodUID)
	if e.Type != pleg.ContainerStarted {
		l.exits.ended(e.ContainerID)
	}
	if e.Type != pleg.ContainerRemoved {
		l.wake(e.PodUID)
	}
	if !l.isKnown(e.PodUID) {
		l.housekeepingLoop.Trigger()
	}
	l.cfg.Changed()
}

// wake makes the worker of a pod sync the pod. The goroutine of the event queue calls UpdatePod,
// because an update from another goroutine could overwrite an update that has a newer definition
// of the pod.
func (l *Loop) wake(uid types.UID) {
	l.post(func() {
		if pod, known := l.Find(uid); known {
			l.workers.UpdatePod(podworker.Update{Type: podworker.Sync, Pod: l.allocated(pod)})
		}
	})
}

// workerMoved handles a new phase of a worker.
func (l *Loop) workerMoved(uid types.UID, pod *corev1.Pod, phase podworker.Phase) {
	if changed := l.cfg.Observers.Workers.PhaseChanged; changed != nil {
		changed(uid, pod, phase)
	}
	l.post(func() { l.apply(event{kind: evPhaseChanged, uid: uid, phase: phase}) })
}

// podName returns namespace/name of a pod. It returns an empty string if the pod is unknown.
func (l *Loop) podName(uid types.UID) string {
	r, known := l.record(uid)
	if !known || r.pod.Name == "" {
		return ""
	}
	return fmt.Sprintf("%s/%s", r.pod.Namespace, r.pod.Name)
}
