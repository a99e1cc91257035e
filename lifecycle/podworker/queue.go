package podworker

import (
	"time"

	"github.com/kubeparts/kubeparts/internal/priority"
)

// queue holds idle workers ordered by due time, the earliest first. A worker is
// in the queue at most once.
type queue struct{ priority.Queue[worker] }

func newQueue() queue {
	return queue{priority.Queue[worker]{
		Before: func(a, b *worker) bool { return a.due.Before(b.due) },
		Place:  func(w *worker) *int { return &w.queueIndex },
	}}
}

// set sets the due time of p, and adds p to the queue or moves p in the queue.
func (q *queue) set(p *worker, due time.Time) {
	p.due = due
	q.Put(p)
}
