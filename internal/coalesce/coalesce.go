// Package coalesce is the one queue behind every channel of changes of this module:
// a reader that is slow delays nobody and loses nothing but what is out of date.
package coalesce

import (
	"context"
	"sync"
)

// Queue keeps one value per key for a reader, in the order in which the keys came
// first. So it holds no more than there are keys. Make it with [New]; its methods
// are safe for concurrent use.
type Queue[K comparable, V any] struct {
	merge func(before, now V) V
	wake  chan struct{} // capacity 1: the queue is no longer empty

	mu      sync.Mutex
	order   []K
	pending map[K]V
}

// New returns a queue in which merge makes one value of what waits for a key and
// what comes for it.
func New[K comparable, V any](merge func(before, now V) V) *Queue[K, V] {
	return &Queue[K, V]{merge: merge, wake: make(chan struct{}, 1), pending: map[K]V{}}
}

// Add puts a value into the queue. It never waits.
func (q *Queue[K, V]) Add(key K, value V) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if before, ok := q.pending[key]; ok {
		q.pending[key] = q.merge(before, value)
		return
	}
	q.pending[key] = value
	q.order = append(q.order, key)
	select {
	case q.wake <- struct{}{}:
	default: // it has been told already
	}
}

// Pump hands the values over until ctx is done.
func (q *Queue[K, V]) Pump(ctx context.Context, out chan<- V) {
	for {
		value, ok := q.next()
		if !ok {
			select {
			case <-q.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case out <- value:
		case <-ctx.Done():
			return
		}
	}
}

// next takes the first value.
func (q *Queue[K, V]) next() (value V, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.order) == 0 {
		return value, false
	}
	key := q.order[0]
	q.order = q.order[1:]
	value = q.pending[key]
	delete(q.pending, key)
	return value, true
}
