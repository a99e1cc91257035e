package podworker

import (
	"time"

	"github.com/kubeparts/kubeparts/internal/priority"
)

// queue holds idle workers by when they are due, the earliest first. A worker is
// in it once or not at all.
type queue struct{ priority.Queue[worker] }

func newQueue() queue {
	return queue{priority.New(func(a, b *worker) bool { return a.due.Before(b.due) }, func(p *worker) *int { return &p.place })}
}

// set puts p into the queue, or moves it there.
func (q *queue) set(p *worker, due time.Time) {
	p.due = due
	q.Put(p)
}
