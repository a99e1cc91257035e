package podworker

import (
	"container/heap"
	"time"
)

// queue holds idle workers by when they are due, the earliest first. A worker is
// in it once or not at all.
type queue struct{ byDue }

// set puts p into the queue, or moves it there.
func (q *queue) set(p *worker, due time.Time) {
	p.due = due
	if p.index >= 0 {
		heap.Fix(&q.byDue, p.index)
		return
	}
	heap.Push(&q.byDue, p)
}

// remove takes p out of the queue if it is there.
func (q *queue) remove(p *worker) {
	if p.index >= 0 {
		heap.Remove(&q.byDue, p.index)
	}
}

// first returns the worker that is due next, nil if none ever is.
func (q *queue) first() *worker {
	if len(q.byDue) == 0 {
		return nil
	}
	return q.byDue[0]
}

// byDue implements heap.Interface.
type byDue []*worker

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h byDue) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *byDue) Push(x any) {
	p, ok := x.(*worker)
	if !ok {
		return
	}
	p.index = len(*h)
	*h = append(*h, p)
}

// Pop implements heap.Interface.
func (h *byDue) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil // for the collector
	*h, p.index = (*h)[:last], -1
	return p
}
