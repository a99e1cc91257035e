package podloop

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
)

// handlerDeadline is the time limit of an admission handler. An answer after this time counts as
// a refusal.
const handlerDeadline = 30 * time.Second

// admissionQueueConfig configures an admissionQueue. All fields are required.
type admissionQueueConfig struct {
	// handlers are called in this order. allocators are called after the handlers.
	handlers   []lifecycle.NamedHandler
	allocators []resources.Allocator
	// view returns the copy of a pod that handlers receive.
	view func(*corev1.Pod) *corev1.Pod
	// runs reports whether it is possible that a container of the pod is running.
	runs func(types.UID) bool
	// The queue passes each result to answered. When the queue is empty, it calls idle.
	answered func(uid types.UID, version uint64, result lifecycle.PodAdmitResult)
	idle     func()
	observer lifecycle.AdmitObserver
	clock    clock.PassiveClock
}

// admissionQueue admits one pod after another and releases allocations. It shares no lock with
// other parts: a slow handler, or a preemption that waits for its victim, delays only other
// admissions and releases.
//
// It has the list of active pods. A pod is in this list from its admission until its release. So
// the cost of an admission depends on the number of admitted pods, and not on the number of
// offered pods.
type admissionQueue struct {
	cfg   admissionQueueConfig
	chain *lifecycle.Chain
	wake  chan struct{} // capacity 1; signals new requests

	// active has the admitted pods that were not released yet. granted has the allocators that
	// have admitted the pod of the current request. freed reports whether the handler that was
	// called last has preempted other pods. Only the queue's goroutine uses these fields.
	active  []*corev1.Pod
	granted []resources.Allocator
	freed   bool

	mu       sync.Mutex
	queue    []request
	deferred []request // requests that wait until a shutdown is cancelled
	draining bool
	call     call
	busy     bool
}

// request asks for an admission or a release.
type request struct {
	uid     types.UID
	release bool
	// pod, version and edit are set for an admission.
	pod     *corev1.Pod
	version uint64
	edit    bool
}

// call is a running call of a handler or an allocator.
type call struct {
	what  string // empty: no call is running
	since time.Time
}

func newAdmissionQueue(cfg admissionQueueConfig) (*admissionQueue, error) {
	l := &admissionQueue{cfg: cfg, wake: make(chan struct{}, 1)}
	var chain lifecycle.ChainConfig
	for _, h := range cfg.handlers {
		chain.Handlers = append(chain.Handlers, lifecycle.NamedHandler{Name: h.Name, Handler: guarded{admissionQueue: l, name: h.Name, handler: h.Handler}})
	}
	for _, a := range cfg.allocators {
		chain.Handlers = append(chain.Handlers, lifecycle.NamedHandler{Name: a.Name(), Handler: guarded{admissionQueue: l, name: a.Name(), handler: a, allocator: a}})
	}
	chain.Observer, chain.Clock = cfg.observer, cfg.clock
	var err error
	if l.chain, err = lifecycle.NewChain(chain); err != nil {
		return nil, fmt.Errorf("fields Admission and Allocators: %w", err)
	}
	return l, nil
}

// requestAdmission requests the admission of a pod, or of an edit of an admitted pod. It never
// waits.
func (l *admissionQueue) requestAdmission(pod *corev1.Pod, version uint64, edit bool) {
	l.add(request{uid: pod.UID, pod: pod, version: version, edit: edit})
}

// release requests the release of a pod's allocations. It never waits. It may be called for a
// pod without allocations.
func (l *admissionQueue) release(uid types.UID) { l.add(request{uid: uid, release: true}) }

func (l *admissionQueue) add(r request) {
	l.mu.Lock()
	l.queue = append(l.queue, r)
	l.mu.Unlock()
	l.signal()
}

func (l *admissionQueue) signal() {
	select {
	case l.wake <- struct{}{}:
	default: // a signal is pending already
	}
}

// drain makes the queue refuse API pods, because the node is shutting down. The queue defers
// requests for static pods and for edits until resume is called.
func (l *admissionQueue) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
}

// resume ends the effect of drain.
func (l *admissionQueue) resume() {
	l.mu.Lock()
	l.draining = false
	l.queue = append(l.queue, l.deferred...)
	l.deferred = nil
	l.mu.Unlock()
	l.signal()
}

// isIdle reports whether the queue is empty and no request is being handled.
func (l *admissionQueue) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.busy && len(l.queue) == 0
}

// overdue returns the running call and its start, and reports whether the call has exceeded its
// deadline.
func (l *admissionQueue) overdue() (what string, since time.Time, isOverdue bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	isOverdue = l.call.what != "" && l.cfg.clock.Since(l.call.since) > handlerDeadline
	return l.call.what, l.call.since, isOverdue
}

// run handles requests until ctx is done. At the start, it handles the requests for running pods
// first, so that a new pod can't use resources that a running pod of an earlier agent needs.
func (l *admissionQueue) run(ctx context.Context) {
	l.mu.Lock()
	slices.SortStableFunc(l.queue, func(a, b request) int { return l.rank(a.uid) - l.rank(b.uid) })
	l.mu.Unlock()
	for {
		r, ok := l.next()
		if !ok {
			l.cfg.idle()
			select {
			case <-l.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		if r.release {
			l.releaseNow(r.uid)
		} else {
			l.question(ctx, r)
		}
	}
}

func (l *admissionQueue) rank(uid types.UID) int {
	if l.cfg.runs(uid) {
		return 0
	}
	return 1
}

// next removes and returns the first request. While the queue is draining, it defers requests
// for static pods and for edits.
func (l *admissionQueue) next() (request, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 {
		r := l.queue[0]
		l.queue = l.queue[1:]
		if r.release {
			l.deferred = slices.DeleteFunc(l.deferred, func(h request) bool { return h.uid == r.uid })
		} else if l.draining && (r.edit || podspec.IsStatic(r.pod)) {
			l.deferred = append(l.deferred, r)
			continue
		}
		l.busy = true
		return r, true
	}
	l.busy = false
	return request{}, false
}

// question calls the handlers for one pod and reports the result. If the queue is draining,
// question refuses the pod and calls no handler. If ctx is done before the handlers have returned,
// question reports no result, and the pod is not refused.
func (l *admissionQueue) question(ctx context.Context, r request) {
	l.mu.Lock()
	draining := l.draining
	l.mu.Unlock()
	if draining {
		l.refuse(r, lifecycle.PodAdmitResult{Reason: podworker.ReasonNodeShutdown, Message: podworker.MessageNodeShutdown})
		return
	}
	l.granted, l.freed = nil, false
	result := l.chain.Admit(ctx, lifecycle.PodAdmitAttributes{
		Pod: l.cfg.view(r.pod), OtherPods: l.others(r.uid), Operation: lifecycle.AddOperation,
	})
	switch {
	case ctx.Err() != nil:
	case result.Admit:
		l.admit(r)
		l.cfg.answered(r.uid, r.version, result)
	default:
		l.refuse(r, result)
	}
}

// admit adds the pod to the active pods. If the pod is already active, admit replaces its
// definition.
func (l *admissionQueue) admit(r request) {
	if i := l.index(r.uid); i >= 0 {
		l.active = slices.Clone(l.active) // handlers may still use the old slice
		l.active[i] = l.cfg.view(r.pod)
		return
	}
	l.active = append(l.active, l.cfg.view(r.pod))
}

// refuse reports a refusal and releases the allocations of the request. If the request is an
// edit, it releases nothing, because the running version of the pod keeps its allocations.
func (l *admissionQueue) refuse(r request, result lifecycle.PodAdmitResult) {
	switch {
	case r.edit:
	case l.index(r.uid) >= 0: // an earlier request of the pod was admitted
		l.releaseNow(r.uid)
	default:
		for _, a := range l.granted {
			l.trackCall(a.Name()+" (release)", func() { a.Release(r.uid) })
		}
	}
	l.cfg.answered(r.uid, r.version, result)
}

// releaseNow releases the pod's allocations if the pod is active.
func (l *admissionQueue) releaseNow(uid types.UID) {
	i := l.index(uid)
	if i < 0 {
		return
	}
	l.active = slices.Delete(slices.Clone(l.active), i, i+1)
	for _, a := range l.cfg.allocators {
		l.trackCall(a.Name()+" (release)", func() { a.Release(uid) })
	}
}

func (l *admissionQueue) index(uid types.UID) int {
	return slices.IndexFunc(l.active, func(p *corev1.Pod) bool { return p.UID == uid })
}

// others returns the active pods except the pod with this UID.
func (l *admissionQueue) others(uid types.UID) []*corev1.Pod {
	i := l.index(uid)
	if i < 0 {
		return slices.Clip(l.active)
	}
	return slices.Delete(slices.Clone(l.active), i, i+1)
}

// releaseQueued carries out queued releases, so that handlers that are called after a preemption
// can use the freed resources. It skips a release if the current request, or an earlier request
// in the queue, is for the same pod.
func (l *admissionQueue) releaseQueued(current types.UID) {
	l.mu.Lock()
	var now []types.UID
	waits := map[types.UID]bool{current: true}
	l.queue = slices.DeleteFunc(l.queue, func(r request) bool {
		if !r.release || waits[r.uid] {
			waits[r.uid] = true
			return false
		}
		now = append(now, r.uid)
		return true
	})
	l.mu.Unlock()
	for _, uid := range now {
		l.releaseNow(uid)
	}
}

// trackCall calls f, and records the call as the running call until f returns.
func (l *admissionQueue) trackCall(what string, f func()) {
	l.setCall(call{what: what, since: l.cfg.clock.Now()})
	f()
	l.setCall(call{})
}

func (l *admissionQueue) setCall(c call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.call = c
}

// guarded is a handler with a deadline. The allocator is nil if the handler is not an
// allocator.
type guarded struct {
	admissionQueue *admissionQueue
	name           string
	handler        lifecycle.AdmitHandler
	allocator      resources.Allocator
}

// Admit calls the handler. An answer after the deadline counts as a refusal.
func (g guarded) Admit(ctx context.Context, attrs lifecycle.PodAdmitAttributes) (result lifecycle.PodAdmitResult) {
	if g.admissionQueue.freed {
		g.admissionQueue.freed = false
		g.admissionQueue.releaseQueued(attrs.Pod.UID)
	}
	attrs.OtherPods = g.admissionQueue.others(attrs.Pod.UID)
	limited, cancel := context.WithTimeout(ctx, handlerDeadline)
	defer cancel()
	g.admissionQueue.trackCall(g.name, func() { result = g.handler.Admit(limited, attrs) })
	if result.Admit && g.allocator != nil {
		g.admissionQueue.granted = append(g.admissionQueue.granted, g.allocator)
	}
	if limited.Err() != nil && ctx.Err() == nil {
		return lifecycle.PodAdmitResult{
			Reason:  lifecycle.UnexpectedAdmissionError,
			Message: fmt.Sprintf("Admission handler %s did not answer within %v", g.name, handlerDeadline),
		}
	}
	return result
}
