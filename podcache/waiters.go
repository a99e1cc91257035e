package podcache

import (
	"container/heap"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// waiter is one blocked GetNewerThan. It is in the list of its pod and, unless
// the global time has passed it while its pod was held back, in the heap.
type waiter struct {
	uid        types.UID
	min        time.Time
	woken      chan struct{}
	prev, next *waiter
	index      int // in the heap, or notInHeap
}

const notInHeap = -1

// waiters finds them by pod, for a write to that pod, and by time, for the
// global time: that moves every second, and nearly all waiters of a large node
// wait for later than it.
type waiters struct {
	byUID  map[types.UID]*waiter // heads of lists
	byTime byTime
}

func (ws *waiters) add(w *waiter) {
	if head := ws.byUID[w.uid]; head != nil {
		w.next, head.prev = head, w
	}
	ws.byUID[w.uid] = w
	heap.Push(&ws.byTime, w)
}

// remove takes w out of both; one that is in neither any more is left alone.
func (ws *waiters) remove(w *waiter) {
	switch {
	case w.prev != nil:
		w.prev.next = w.next
	case ws.byUID[w.uid] != w:
		return // woken in the meantime
	case w.next != nil:
		ws.byUID[w.uid] = w.next
	default:
		delete(ws.byUID, w.uid)
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	if w.index != notInHeap {
		heap.Remove(&ws.byTime, w.index)
	}
}

func (ws *waiters) wake(w *waiter) {
	ws.remove(w)
	close(w.woken)
}

// of wakes the pod's waiters whose time is satisfied.
func (ws *waiters) of(uid types.UID, satisfied func(time.Time) bool) {
	for w := ws.byUID[uid]; w != nil; {
		next := w.next
		if satisfied(w.min) {
			ws.wake(w)
		}
		w = next
	}
}

// due wakes the waiters for t or earlier whose pods are fresh. Those of pods held
// back leave the heap: the end of the hold finds them in their pod's list.
func (ws *waiters) due(t time.Time, fresh func(types.UID) bool) {
	for len(ws.byTime) > 0 && !ws.byTime[0].min.After(t) {
		if w := ws.byTime[0]; fresh(w.uid) {
			ws.wake(w)
		} else {
			heap.Pop(&ws.byTime)
		}
	}
}

// byTime is a heap, earliest first.
type byTime []*waiter

func (h byTime) Len() int           { return len(h) }
func (h byTime) Less(i, j int) bool { return h[i].min.Before(h[j].min) }

func (h byTime) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *byTime) Push(x any) {
	w, _ := x.(*waiter)
	w.index = len(*h)
	*h = append(*h, w)
}

// Pop implements heap.Interface.
func (h *byTime) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	w.index = notInHeap
	return w
}
