package status

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Priority is how soon a status is to be published.
type Priority int

// The priorities, lowest first.
const (
	// PriorityNormal is that of most changes.
	PriorityNormal Priority = iota
	// PriorityReadiness is that of a pod whose readiness has changed: traffic
	// depends on it.
	PriorityReadiness
	// PriorityUrgent is that of a pod that is deleted or has ended: somebody waits
	// for its name and its resources.
	PriorityUrgent
)

// normalWaits is how much longer a pod may wait than one whose readiness has changed. It is
// a limit, not a strict order, so that changes of readiness delay no pod for ever.
const normalWaits = 5 * time.Second

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

// record is what the queue knows of a pod.
type record struct {
	change  Change // the newest
	asked   uint64 // the newest request to publish the pod
	sent    uint64 // the newest request that a publication has served
	version uint64 // the version that the sink has
	gone    bool   // the sink does not have the pod

	since    time.Time // when the first request that waits was made
	priority Priority  // the highest of those that wait

	inFlight  bool      // a publication is under way
	dropped   bool      // forget the pod after that
	failures  int       // in a row
	notBefore time.Time // when the pod may be published again
}

// job is a publication under way: the record as it was when that began.
type job struct {
	record
	live *record
}

func (j *job) uid() types.UID { return j.change.Pod.UID }

// outcome is how a publication ended.
type outcome struct {
	sent, gone bool
	failures   int // in a row, with this one
	notBefore  time.Time
}

// queue is a work queue of the pods of which something newer is known than the sink has.
type queue struct {
	observe func(depth int)

	mu      sync.Mutex
	asked   uint64 // counts the requests of all pods
	pods    map[types.UID]*record
	waiting map[types.UID]*record // those with a request that no publication is to meet yet
	changed chan struct{}         // closed and replaced at every change of the queue
}

func newQueue(observe func(int)) *queue {
	return &queue{observe: observe, pods: map[types.UID]*record{}, waiting: map[types.UID]*record{}, changed: make(chan struct{})}
}

// put replaces the change of a pod by a newer one, and asks for it unless the pod is gone.
func (q *queue) put(c Change, now time.Time) {
	q.mu.Lock()
	defer q.unlock(len(q.waiting))
	r := q.pods[c.Pod.UID]
	if r == nil {
		r = &record{}
		q.pods[c.Pod.UID] = r
	}
	r.change, r.dropped = c, false
	if !r.gone {
		q.ask(r, priorityOf(&c), now)
	}
}

// again asks for a pod once more, also if it is gone.
func (q *queue) again(uid types.UID, e *entry, now time.Time) {
	q.mu.Lock()
	defer q.unlock(len(q.waiting))
	if r := q.pods[uid]; r != nil && !r.dropped {
		r.gone = false
		r.renew(e)
		change := r.change
		change.Old = change.New // whether it became ready is old news
		q.ask(r, priorityOf(&change), now)
	}
}

// repeat asks once more for every pod that the sink has and that does not wait.
func (q *queue) repeat(entries map[types.UID]*entry, now time.Time) {
	q.mu.Lock()
	defer q.unlock(len(q.waiting))
	for uid, r := range q.pods {
		if !r.gone && !r.dropped && r.sent == r.asked {
			r.renew(entries[uid])
			q.ask(r, PriorityNormal, now)
		}
	}
}

// renew replaces the pod of r by that of e, which the Manager replaces without a Change when
// the status is equal.
func (r *record) renew(e *entry) {
	if e != nil && e.version == r.change.Version {
		r.change.Pod = e.pod
	}
}

// ask makes r wait for a publication.
func (q *queue) ask(r *record, priority Priority, now time.Time) {
	q.asked++
	r.asked = q.asked
	if r.failures == 0 { // a pod that waits without a failure waits because of ErrHeld
		r.notBefore = time.Time{}
	}
	if q.waiting[r.change.Pod.UID] == nil {
		r.since, r.priority = now, priority
	}
	r.priority = max(r.priority, priority)
	q.waiting[r.change.Pod.UID] = r
}

// before reports whether r is to be published before other.
func (r *record) before(other *record) bool {
	if x, y := r.priority == PriorityUrgent, other.priority == PriorityUrgent; x != y {
		return x
	}
	if order := r.deadline().Compare(other.deadline()); order != 0 {
		return order < 0
	}
	return r.change.Pod.UID < other.change.Pod.UID
}

// deadline orders those that are not urgent.
func (r *record) deadline() time.Time {
	if r.priority == PriorityNormal {
		return r.since.Add(normalWaits)
	}
	return r.since
}

// take begins the publication that is due first among the pods that want returns true
// for, and returns it. If none is due, it returns nil and in how long one will be,
// negative if not before it is asked for.
func (q *queue) take(now time.Time, want func(*record) bool) (j *job, wait time.Duration) {
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

// done ends a publication. It reports whether the pod is to be forgotten.
func (q *queue) done(j *job, o outcome) (forget bool) {
	q.mu.Lock()
	defer q.unlock(len(q.waiting))
	r := j.live
	if r.dropped { // it stays in flight until it is forgotten
		return true
	}
	asked := r.asked > j.asked
	r.inFlight, r.failures, r.notBefore = false, o.failures, o.notBefore
	switch {
	case o.sent:
		r.sent, r.version = j.asked, j.change.Version
	case o.gone:
		r.sent, r.version, r.gone = j.asked, 0, !asked
	default:
		if asked && o.failures == 0 {
			r.notBefore = time.Time{}
		}
		// What was not sent has waited since it was asked for.
		r.since, r.priority = j.since, max(r.priority, j.priority)
		q.waiting[j.uid()] = r
	}
	return false
}

// forgotten ends the publication of a pod that the sink has forgotten now. What was
// reported of it since is published.
func (q *queue) forgotten(j *job) {
	q.mu.Lock()
	defer q.unlock(len(q.waiting))
	r := j.live
	if r.dropped {
		delete(q.pods, j.uid())
	}
	r.inFlight, r.failures, r.notBefore, r.version = false, 0, time.Time{}, 0
}

// drop forgets a pod. It returns false if that has to wait for a publication.
func (q *queue) drop(uid types.UID) bool {
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

// pending returns, for each pod that waits or is being published, the newest request.
func (q *queue) pending() map[types.UID]uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := map[types.UID]uint64{}
	for uid, r := range q.pods {
		if r.sent < r.asked {
			out[uid] = r.asked
		}
	}
	return out
}

// unmet returns how many of the requests are not met. Those for pods that are forgotten
// never will, and count as met.
func (q *queue) unmet(requests map[types.UID]uint64) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for uid, asked := range requests {
		if r := q.pods[uid]; r != nil && !r.dropped && r.sent < asked {
			n++
		}
	}
	return n
}

// listen returns a channel that is closed at the next change of the queue.
func (q *queue) listen() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed
}

// unlock unlocks q, wakes all that listen and calls the observer if not as many pods
// wait as before.
func (q *queue) unlock(before int) {
	depth := len(q.waiting)
	close(q.changed)
	q.changed = make(chan struct{})
	q.mu.Unlock()
	if depth != before {
		q.observe(depth)
	}
}
