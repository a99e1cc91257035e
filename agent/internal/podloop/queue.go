package podloop

import (
	"context"
	"sync"
)

// queue has what the loop's goroutine is to do, in the order of posting. It has no bound, so
// posting never waits: sources, workers, the admission lane and callers of [Loop.Sync] post from
// wherever they are.
type queue struct {
	wake chan struct{} // capacity 1: the queue is not empty

	mu    sync.Mutex
	items []func()
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// post adds f to the queue.
func (q *queue) post(f func()) {
	q.mu.Lock()
	q.items = append(q.items, f)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default: // it is awake already
	}
}

// take returns all that was posted since the last call.
func (q *queue) take() []func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}

// run calls what is posted, one after another, until ctx is done. After each batch it calls
// settled. What was posted before ctx was done is called all the same.
func (q *queue) run(ctx context.Context, settled func()) {
	for {
		batch := q.take()
		for _, f := range batch {
			f()
		}
		if len(batch) > 0 {
			settled()
			continue
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			for _, f := range q.take() {
				f()
			}
			return
		}
	}
}
