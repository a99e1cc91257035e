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
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/podmanager"
	"github.com/kubeparts/kubeparts/status"
)

// Loop runs the pods that its sources define. Make it with [New]; Run may be called once, and all
// other methods by any number of goroutines, while Run runs.
type Loop struct {
	cfg Config

	merge    *podmanager.Merge
	doors    []*door // of the sources, in their order
	lane     *lane
	cache    *podcache.Cache
	pleg     *pleg.Generator
	runner   *podrunner.Runner
	workers  *podworker.Workers
	probes   *probes
	hooks    *lifecycle.HookRunner
	exits    *exits
	deadline lifecycle.ActiveDeadline
	remover  *remover

	statuses   *status.Manager
	saved      *status.Saved // what an earlier agent has saved, and the first sink
	publishers []*status.Publisher
	unsent     *unsent

	restarts *savedBackoff
	pulls    *lifecycle.Backoff

	house *loop.Loop // housekeeping
	qos   *loop.Loop // shares of the classes of pods

	queue    *queue
	begun    atomic.Bool
	stopping atomic.Bool   // StopPods has been called
	looked   chan struct{} // closed when the runtime was listed and inspected once
	stopped  chan struct{} // closed when Run returns

	// The rest belongs to the goroutine of the queue.
	removals func(types.UID) // starts the removal of a pod
	serial   uint64
	retryDue bool // refused pods are to be asked about again
	changed  bool // a record has changed since Config.Changed was called

	mu      sync.RWMutex
	records map[types.UID]record // written by the goroutine of the queue alone
	moved   chan struct{}        // closed and replaced when a record changes
	ready   bool                 // every source has answered
	// ranBefore are the names of the pods that ran when the agent began. Nil: unknown.
	ranBefore map[types.NamespacedName]bool
}

// post has f called by the goroutine of the queue. It never waits.
func (l *Loop) post(f func()) { l.queue.post(f) }

// apply carries out an event. It is called by the goroutine of the queue.
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
	if e.kind == evMoved && e.phase == podworker.Terminated {
		l.retryDue = true
	}
}

// applyAll carries out an event of each pod, in the order of UIDs.
func (l *Loop) applyAll(e event) {
	for _, uid := range l.uids() {
		e.uid = uid
		l.apply(e)
	}
}

// settled is called after a batch of events.
func (l *Loop) settled() {
	// One round of questions at a time: each pod that ends would begin another one.
	if l.retryDue && l.lane.isIdle() {
		l.retryDue = false
		l.applyAll(event{kind: evRetry})
	}
	if l.changed {
		l.changed = false
		l.cfg.Changed()
	}
}

// perform does one step of what follows from an event. It never waits.
func (l *Loop) perform(r record, d do) {
	switch d.action {
	case doAsk:
		l.lane.ask(d.pod, d.version, d.edit)
	case doRelease:
		l.lane.release(r.uid)
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
			"The changed pod is not admitted, and the version before it goes on: %s", d.result.Message)
	case doUnrefuse:
		l.statuses.RemovePodStatus(r.uid)
	case doPublish:
		l.publish(r.uid)
	case doTerminate:
		l.statuses.TerminatePod(d.pod)
		l.publish(r.uid)
	case doEnded:
		l.qos.Trigger()
		l.cfg.Node.Ended()
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

// forget drops what is known of the earlier life of a pod.
func (l *Loop) forget(r record) {
	l.workers.Forget(r.uid)
	l.probes.end(r.uid)
	l.statuses.RemovePodStatus(r.uid)
	l.saved.Forget(r.uid)
	if r.state == Gone {
		l.house.Trigger()
		l.cfg.Node.Ended()
		return
	}
	if restarted := l.cfg.Observers.Workers.Restarted; restarted != nil {
		restarted(r.pod)
	}
}

// record returns the record of a pod, and whether it is known.
func (l *Loop) record(uid types.UID) (record, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if r, ok := l.records[uid]; ok {
		return r, true
	}
	return record{uid: uid, state: Gone}, false
}

// store replaces a record. Pods that are gone have none.
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

// mayRun reports whether something of the pod may run, which it may as long as the runtime was
// not asked about it.
func (l *Loop) mayRun(uid types.UID) bool {
	if !l.cache.Known(uid) {
		return true
	}
	s, _ := l.cache.Get(uid) // what was known before an error counts
	return s.Running()
}

// allocated returns the pod with the resources that it was allocated. Workers, statuses and
// eviction get pods through it. There is no resize in place yet, so it is the pod as it is.
func (l *Loop) allocated(pod *corev1.Pod) *corev1.Pod { return pod }

// publish publishes the status of a pod again.
func (l *Loop) publish(uid types.UID) {
	for _, p := range l.publishers {
		p.Trigger(uid)
	}
}

// defined takes a change of what the sources define. First reports that its source had not
// answered before.
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
	if len(c.Unanswered) == 0 && !l.ready {
		l.mu.Lock()
		l.ready = true
		l.mu.Unlock()
		l.changed = true
		l.house.Trigger()
	}
}

// endedBefore reports whether a new pod has ended before this agent began.
func (l *Loop) endedBefore(pod *corev1.Pod, first bool) bool {
	if podspec.IsTerminal(pod.Status.Phase) {
		return true
	}
	s, ok := l.savedStatus(pod.UID)
	return first && ok && podspec.IsTerminal(s.Phase)
}

// savedStatus returns the status of a pod that an earlier agent has saved, if it counts.
func (l *Loop) savedStatus(uid types.UID) (corev1.PodStatus, bool) {
	s, ok := l.saved.Status(uid)
	if !ok || !countsAfterRestart(s) {
		return corev1.PodStatus{}, false
	}
	return s, true
}

// Sync reports that something outside has changed that these pods depend on. A refused static
// pod is asked about again, any other pod is synced, and its status is published again. It never
// blocks, so it may be called from everywhere.
func (l *Loop) Sync(uids ...types.UID) {
	l.post(func() {
		for _, uid := range uids {
			l.apply(event{kind: evSynced, uid: uid})
		}
	})
}

// SyncAll is Sync for all pods.
func (l *Loop) SyncAll() { l.post(func() { l.applyAll(event{kind: evSynced}) }) }

// NodeChanged has refused static pods and refused edits asked about again. It never blocks.
func (l *Loop) NodeChanged() { l.post(func() { l.retryDue = true }) }

// plegEvent wakes what waits for a change of a pod in the runtime.
func (l *Loop) plegEvent(e pleg.Event) {
	l.probes.Refresh(e.PodUID)
	if e.Type != pleg.ContainerStarted {
		l.exits.ended(e.ContainerID)
	}
	if e.Type != pleg.ContainerRemoved {
		l.wake(e.PodUID)
	}
	if !l.isKnown(e.PodUID) {
		l.house.Trigger()
	}
	l.cfg.Changed()
}

// wake has the worker of a pod look at it. The goroutine of the queue does it: an update that
// another goroutine made of the pod's record could overtake a newer one.
func (l *Loop) wake(uid types.UID) {
	l.post(func() {
		if pod, known := l.Find(uid); known {
			l.workers.UpdatePod(podworker.Update{Type: podworker.Sync, Pod: l.allocated(pod)})
		}
	})
}

// workerMoved takes the phases of workers.
func (l *Loop) workerMoved(uid types.UID, pod *corev1.Pod, phase podworker.Phase) {
	if moved := l.cfg.Observers.Workers.Moved; moved != nil {
		moved(uid, pod, phase)
	}
	l.post(func() { l.apply(event{kind: evMoved, uid: uid, phase: phase}) })
}

// podName returns namespace and name of a pod, empty if they are unknown.
func (l *Loop) podName(uid types.UID) string {
	r, known := l.record(uid)
	if !known || r.pod.Name == "" {
		return ""
	}
	return fmt.Sprintf("%s/%s", r.pod.Namespace, r.pod.Name)
}
