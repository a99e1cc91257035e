package podloop

import (
	"context"
	"sync"
)

// queue is a queue of functions. The goroutine of run calls them in the order in which they were
// posted. The queue is unbounded, so post never waits, and any goroutine may call post, even
// with locks held.
type queue struct {
	wake chan struct{} // capacity 1; gets a message after a function was posted

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
	default: // a signal is pending already
	}
}

// takeAll removes and returns all queued functions.
func (q *queue) takeAll() []func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}

// run calls the posted functions one after another. It takes all queued functions at once, calls
// them, and then calls batchDone. When the queue is empty and ctx is done, run returns. Functions
// that were posted before ctx was done are still called, possibly without batchDone.
func (q *queue) run(ctx context.Context, batchDone func()) {
	for {
		batch := q.takeAll()
		for _, f := range batch {
			f()
		}
		if len(batch) > 0 {
			batchDone()
			continue
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			for _, f := range q.takeAll() {
				f()
			}
			return
		}
	}
}
