package podworker

import (
	"time"

	"github.com/kubeparts/kubeparts/internal/priority"
)

// queue holds idle workers by when they are due, the earliest first. A worker is
// in it once or not at all.
type queue struct{ priority.Queue[worker] }

func newQueue() queue {
	return queue{priority.Queue[worker]{
		Before: func(a, b *worker) bool { return a.due.Before(b.due) },
		Place:  func(w *worker) *int { return &w.place },
	}}
}

// set puts p into the queue, or moves it there.
func (q *queue) set(p *worker, due time.Time) {
	p.due = due
	q.Put(p)
}
