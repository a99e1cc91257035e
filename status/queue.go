package status

import (
	"container/heap"
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

// normalWaits is how much longer than one whose readiness has changed a pod may
// wait. A limit, rather than a strict order, so that none waits for ever.
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
	change    Change    // the newest
	asked     uint64    // counts requests to publish it
	reached   uint64    // the request that the last success has met
	taken     uint64    // the version that the sink has
	waits     bool      // a request is not being met yet
	inFlight  bool      // a publication is under way
	gone      bool      // the sink does not have the pod
	revived   bool      // asked for during a publication, by who knows that it is there
	dropped   bool      // forget it after the publication under way
	held      bool      // the sink has taken all but the pod's end
	since     time.Time // of the first request that waits
	notBefore time.Time
	priority  Priority // the highest of those that wait
	failures  int      // in a row
	in        *records // the heap that it is in, if any
	index     int      // its place there
	seq       uint64
}

// deadline orders those that are not urgent.
func (r *record) deadline() time.Time {
	if r.priority == PriorityNormal {
		return r.since.Add(normalWaits)
	}
	return r.since
}

// job is a publication under way.
type job struct {
	*record
	change   Change
	asked    uint64
	since    time.Time
	priority Priority
	failures int
	again    bool
}

// outcome is how a publication went.
type outcome struct {
	gone, held, failed bool
	wait               time.Duration
}

// queue holds the pods that wait to be published.
type queue struct {
	observe func(depth int)

	mu      sync.Mutex
	pods    map[types.UID]*record
	due     records // by priority and age
	delayed records // by when they are due
	depth   int     // how many records wait
	seq     uint64
	ears    map[chan struct{}]struct{}
}

func newQueue(observe func(int)) *queue {
	return &queue{
		observe: observe,
		pods:    map[types.UID]*record{},
		ears:    map[chan struct{}]struct{}{},
		due:     records{before: moreUrgent},
		delayed: records{before: func(a, b *record) bool { return a.notBefore.Before(b.notBefore) }},
	}
}

func moreUrgent(a, b *record) bool {
	if x, y := a.priority == PriorityUrgent, b.priority == PriorityUrgent; x != y {
		return x
	}
	if x, y := a.deadline(), b.deadline(); !x.Equal(y) {
		return x.Before(y)
	}
	return a.seq < b.seq
}

// put takes the newest change of a pod.
func (q *queue) put(c Change, now time.Time) {
	q.mu.Lock()
	defer q.unlock(q.depth)
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

// repeat asks for a pod once more unless it waits already or is gone.
func (q *queue) repeat(uid types.UID, e *entry, now time.Time) {
	q.mu.Lock()
	defer q.unlock(q.depth)
	if r := q.renewed(uid, e); r != nil && !r.gone && !r.waits {
		q.ask(r, PriorityNormal, now)
	}
}

// renewed returns the record of a pod, nil if there is none, with the pod as e has
// it: a pod that has changed need not be a change of its status.
func (q *queue) renewed(uid types.UID, e *entry) *record {
	r := q.pods[uid]
	if r == nil || r.dropped {
		return nil
	}
	if e != nil && e.version == r.change.Version {
		r.change.Pod = e.pod
	}
	return r
}

// again asks for a pod once more.
func (q *queue) again(uid types.UID, e *entry, now time.Time) {
	q.mu.Lock()
	defer q.unlock(q.depth)
	if r := q.renewed(uid, e); r != nil {
		r.gone, r.revived = false, r.inFlight
		change := r.change
		change.Old = change.New // whether it became ready is old news
		q.ask(r, priorityOf(&change), now)
	}
}

// ask says that r waits.
func (q *queue) ask(r *record, priority Priority, now time.Time) {
	r.asked++
	if !r.waits {
		q.depth++
		r.waits, r.since, r.priority = true, now, priority
	}
	r.priority = max(r.priority, priority)
	if r.held { // it was waiting for news, not for the sink
		r.notBefore = time.Time{}
	}
	q.place(r, now)
}

// place puts r into the heap where it belongs.
func (q *queue) place(r *record, now time.Time) {
	if r.in != nil {
		heap.Remove(r.in, r.index)
	}
	if !r.waits || r.inFlight {
		return
	}
	q.seq++
	r.seq = q.seq
	if r.notBefore.After(now) {
		heap.Push(&q.delayed, r)
	} else {
		heap.Push(&q.due, r)
	}
}

// ready returns how many pods can be taken.
func (q *queue) ready(now time.Time) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ripen(now)
	return q.due.Len()
}

// ripen moves what has waited long enough.
func (q *queue) ripen(now time.Time) {
	for q.delayed.Len() > 0 && !q.delayed.list[0].notBefore.After(now) {
		q.place(q.delayed.list[0], now)
	}
}

// take returns what is to be published first, nil if nothing is; then it also
// returns in how long something will be, negative if not before it is asked for.
// Pods that want does not want are passed over; a nil want wants all.
func (q *queue) take(now time.Time, want func(*record) bool) (j *job, wait time.Duration) {
	q.mu.Lock()
	defer func() {
		depth := q.depth
		q.mu.Unlock()
		if j != nil {
			q.observe(depth)
		}
	}()
	q.ripen(now)
	r := q.due.first(want)
	if r == nil {
		if r = q.delayed.first(want); r == nil {
			return nil, -1
		}
		return nil, r.notBefore.Sub(now)
	}
	heap.Remove(&q.due, r.index)
	q.depth--
	r.waits, r.inFlight, r.held, r.revived = false, true, false, false
	return &job{record: r, change: r.change, asked: r.asked, since: r.since, priority: r.priority, failures: r.failures, again: r.taken == r.change.Version}, 0
}

// done takes the outcome of a publication. It returns whether the pod is to be
// forgotten.
func (q *queue) done(j *job, o outcome, now time.Time) (forget bool) {
	q.mu.Lock()
	defer q.unlock(q.depth)
	r := j.record
	if r.dropped { // it stays in flight until it is forgotten
		return true
	}
	r.inFlight, r.held, r.notBefore = false, o.held, time.Time{}
	switch {
	case o.gone && !r.revived:
		r.gone = true
		q.stopWaiting(r)
		return false
	case o.failed || o.held:
		if o.failed {
			r.failures++
		}
		if !r.waits {
			q.depth++
			r.waits, r.priority = true, j.priority
		}
		// What was not delivered has waited since it was asked for.
		r.since, r.priority = j.since, max(r.priority, j.priority)
		if newer := o.held && r.asked > j.asked; !newer && o.wait > 0 {
			r.notBefore = now.Add(o.wait)
		}
	default:
		r.failures, r.reached, r.taken = 0, j.asked, j.change.Version
	}
	q.place(r, now)
	return false
}

// forgotten ends the publication of a pod that the sink has forgotten now, unless
// something was said of it anew.
func (q *queue) forgotten(j *job, now time.Time) {
	q.mu.Lock()
	defer q.unlock(q.depth)
	r := j.record
	if r.dropped {
		delete(q.pods, j.change.Pod.UID)
		return
	}
	r.inFlight, r.held, r.notBefore, r.failures, r.taken = false, false, time.Time{}, 0, 0
	q.place(r, now)
}

func (q *queue) stopWaiting(r *record) {
	if r.waits {
		q.depth--
	}
	r.waits = false
	q.place(r, time.Time{})
}

// drop forgets a pod. It returns false if that has to wait for a publication.
func (q *queue) drop(uid types.UID) bool {
	q.mu.Lock()
	defer q.unlock(q.depth)
	r := q.pods[uid]
	if r == nil {
		return true
	}
	q.stopWaiting(r)
	if r.inFlight {
		r.dropped = true
		return false
	}
	delete(q.pods, uid)
	return true
}

// pending returns, for each pod that is not published, the newest request.
func (q *queue) pending() map[types.UID]uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := map[types.UID]uint64{}
	for uid, r := range q.pods {
		if r.waits || r.inFlight {
			out[uid] = r.asked
		}
	}
	return out
}

func (q *queue) reached(targets map[types.UID]uint64) bool { return q.behind(targets) == 0 }

// behind returns how many of the requests are not met. Those for pods that are
// gone or forgotten never will, and count as met.
func (q *queue) behind(targets map[types.UID]uint64) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for uid, asked := range targets {
		if r := q.pods[uid]; r != nil && !r.gone && !r.dropped && r.reached < asked {
			n++
		}
	}
	return n
}

// listen returns a channel that gets a value after every change of the queue, or
// one for several.
func (q *queue) listen() chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	ear := make(chan struct{}, 1)
	q.ears[ear] = struct{}{}
	return ear
}

func (q *queue) unlisten(ear chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.ears, ear)
}

// unlock unlocks q, wakes whoever listens and tells the observer of the depth if it
// is not what it was.
func (q *queue) unlock(was int) {
	depth := q.depth
	for ear := range q.ears {
		select {
		case ear <- struct{}{}:
		default:
		}
	}
	q.mu.Unlock()
	if depth != was {
		q.observe(depth)
	}
}
