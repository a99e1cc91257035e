package status

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Priority is the priority of a publication.
type Priority int

// The priorities, lowest first.
const (
	// PriorityNormal is the priority of most changes.
	PriorityNormal Priority = iota
	// PriorityReadiness is the priority of a pod whose readiness has changed, because
	// traffic depends on it.
	PriorityReadiness
	// PriorityUrgent is the priority of a pod that is deleted or has ended, because controllers
	// and the scheduler wait for the pod's name and resources.
	PriorityUrgent
)

// normalExtraWait is how much longer a pod of normal priority waits than a pod whose readiness
// has changed. Because this is a time and not a strict order, pods whose readiness changes cannot
// delay other pods for ever.
const normalExtraWait = 5 * time.Second

func priorityOf(c *Change) Priority {
	if c.Finished || c.Pod.DeletionTimestamp != nil || podspec.IsTerminal(c.New.Phase) {
		return PriorityUrgent
	}
	if isReady(&c.Old) != isReady(&c.New) {
		return PriorityReadiness
	}
	return PriorityNormal
}

func isReady(s *corev1.PodStatus) bool {
	c := Condition(s.Conditions, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// record is the state of a pod in the queue.
type record struct {
	change    Change // the newest change
	requested uint64 // the newest request to publish the pod
	sent      uint64 // the newest request that a publication has served
	version   uint64 // the version that the sink has
	gone      bool   // the pod does not exist in the sink

	since    time.Time // time of the first request that is not served yet
	priority Priority  // highest priority of the requests that are not served yet

	inFlight  bool      // a publication is in progress
	dropped   bool      // the pod was removed during a publication; the sink forgets it afterwards
	failures  int       // number of failed publications in a row
	notBefore time.Time // when the pod may be published again
}

// job is a publication in progress. It has a copy of the record from the start of the
// publication; live is the record itself.
type job struct {
	record
	live *record
}

func (j *job) uid() types.UID { return j.change.Pod.UID }

// outcome is the result of a publication.
type outcome struct {
	sent, gone bool
	failures   int // number of failed publications in a row, including this publication
	notBefore  time.Time
}

// queue is a work queue of the pods whose newest status is not published yet.
type queue struct {
	observe func(depth int)

	mu        sync.Mutex
	requested uint64 // counts the requests of all pods
	pods      map[types.UID]*record
	waiting   map[types.UID]*record // queued pods: the publication that serves their newest request has not started yet
	changed   chan struct{}         // closed and replaced at every change of the queue
}

func newQueue(observe func(int)) *queue {
	return &queue{observe: observe, pods: map[types.UID]*record{}, waiting: map[types.UID]*record{}, changed: make(chan struct{})}
}

// add replaces the change of a pod with a newer change. It requests a publication of the change,
// except if the sink has returned ErrGone for the pod.
func (q *queue) add(c Change, now time.Time) {
	q.mu.Lock()
	defer q.unlock(len(q.waiting))
	r := q.pods[c.Pod.UID]
	if r == nil {
		r = &record{}
		q.pods[c.Pod.UID] = r
	}
	r.change, r.dropped = c, false
	if !r.gone {
		q.request(r, priorityOf(&c), now)
	}
}

// requestAgain requests another publication of a pod, even after the sink has returned ErrGone
// for the pod.
func (q *queue) requestAgain(uid types.UID, e *entry, now time.Time) {
	q.mu.Lock()
	defer q.unlock(len(q.waiting))
	if r := q.pods[uid]; r != nil && !r.dropped {
		r.gone = false
		r.updatePod(e)
		change := r.change
		change.Old = change.New // do not raise the priority again for a change of readiness
		q.request(r, priorityOf(&change), now)
	}
}

// requestAll requests another publication of every pod that exists in the sink and has no
// unserved request.
func (q *queue) requestAll(entries map[types.UID]*entry, now time.Time) {
	q.mu.Lock()
	defer q.unlock(len(q.waiting))
	for uid, r := range q.pods {
		if !r.gone && !r.dropped && r.sent == r.requested {
			r.updatePod(entries[uid])
			q.request(r, PriorityNormal, now)
		}
	}
}

// updatePod copies the newest pod object from e to r. The Manager sends no Change if the pod
// object changes and the status does not.
func (r *record) updatePod(e *entry) {
	if e != nil && e.version == r.change.Version {
		r.change.Pod = e.pod
	}
}

// request queues r for publication.
func (q *queue) request(r *record, priority Priority, now time.Time) {
	q.requested++
	r.requested = q.requested
	if r.failures == 0 { // without failures, only a deferred publication delays the pod, and a new request ends the delay
		r.notBefore = time.Time{}
	}
	if q.waiting[r.change.Pod.UID] == nil {
		r.since, r.priority = now, priority
	}
	r.priority = max(r.priority, priority)
	q.waiting[r.change.Pod.UID] = r
}

// before reports whether r is published earlier than the other record.
func (r *record) before(other *record) bool {
	if x, y := r.priority == PriorityUrgent, other.priority == PriorityUrgent; x != y {
		return x
	}
	if order := r.deadline().Compare(other.deadline()); order != 0 {
		return order < 0
	}
	return r.change.Pod.UID < other.change.Pod.UID
}

// deadline returns the sort key of equally urgent pods.
func (r *record) deadline() time.Time {
	if r.priority == PriorityNormal {
		return r.since.Add(normalExtraWait)
	}
	return r.since
}

// next starts and returns the first due publication among the pods for which the given function
// returns true. If no publication is due, it returns nil and the time until the next
// publication is due. The time is negative if no publication is scheduled.
func (q *queue) next(now time.Time, want func(*record) bool) (j *job, wait time.Duration) {
	q.mu.Lock()
	var first *record
	wait = -1
	for _, r := range q.waiting {
		switch {
		case r.inFlight || !want(r):
		case !r.notBefore.After(now):
			if first == nil || r.before(first) {
				first = r
			}
		case wait < 0 || r.notBefore.Sub(now) < wait:
			wait = r.notBefore.Sub(now)
		}
	}
	if first == nil {
		q.mu.Unlock()
		return nil, wait
	}
	defer q.unlock(len(q.waiting))
	delete(q.waiting, first.change.Pod.UID)
	j = &job{record: *first, live: first}
	first.inFlight = true
	return j, 0
}

// finish records the result of a publication. It reports whether the sink must forget the
// pod.
func (q *queue) finish(j *job, o outcome) (forget bool) {
	q.mu.Lock()
	defer q.unlock(len(q.waiting))
	r := j.live
	if r.dropped { // the pod stays in flight until finishForgotten is called
		return true
	}
	requestedAgain := r.requested > j.requested
	r.inFlight, r.failures, r.notBefore = false, o.failures, o.notBefore
	switch {
	case o.sent:
		r.sent, r.version = j.requested, j.change.Version
	case o.gone:
		r.sent, r.version, r.gone = j.requested, 0, !requestedAgain
	default:
		if requestedAgain && o.failures == 0 {
			r.notBefore = time.Time{}
		}
		// A pod whose status was not sent keeps its waiting time and priority.
		r.since, r.priority = j.since, max(r.priority, j.priority)
		q.waiting[j.uid()] = r
	}
	return false
}

// finishForgotten ends the publication of a pod that the sink has forgotten. A change that
// was added in the meantime stays queued.
func (q *queue) finishForgotten(j *job) {
	q.mu.Lock()
	defer q.unlock(len(q.waiting))
	r := j.live
	if r.dropped {
		delete(q.pods, j.uid())
	}
	r.inFlight, r.failures, r.notBefore, r.version = false, 0, time.Time{}, 0
}

// remove removes a pod. It returns false if a publication of the pod is in progress; the pod
// is then removed when the publication ends.
func (q *queue) remove(uid types.UID) bool {
	q.mu.Lock()
	defer q.unlock(len(q.waiting))
	delete(q.waiting, uid)
	if r := q.pods[uid]; r != nil && r.inFlight {
		r.dropped = true
		return false
	}
	delete(q.pods, uid)
	return true
}

// pending returns the newest request of each pod that is queued or being published.
func (q *queue) pending() map[types.UID]uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := map[types.UID]uint64{}
	for uid, r := range q.pods {
		if r.sent < r.requested {
			out[uid] = r.requested
		}
	}
	return out
}

// unserved returns the number of requests that are not served yet. Requests for removed
// pods count as served.
func (q *queue) unserved(requests map[types.UID]uint64) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for uid, requested := range requests {
		if r := q.pods[uid]; r != nil && !r.dropped && r.sent < requested {
			n++
		}
	}
	return n
}

// changes returns a channel that is closed at the next change of the queue.
func (q *queue) changes() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed
}

// unlock unlocks q, closes the channel of changes, and calls the observer if the number of
// queued pods differs from before.
func (q *queue) unlock(before int) {
	depth := len(q.waiting)
	close(q.changed)
	q.changed = make(chan struct{})
	q.mu.Unlock()
	if depth != before {
		q.observe(depth)
	}
}
