// Package coalesce implements a queue of changes for the reader of a channel. A slow reader
// does not delay a writer. The reader misses only values that were merged with a newer
// value of the same key.
package coalesce

import (
	"context"
	"sync"
)

// Queue stores at most one value per key for a reader, so its length is at most the number
// of keys. It is ordered by the time at which each key entered the queue. Create it with
// [New]. All methods may be called concurrently.
type Queue[K comparable, V any] struct {
	merge func(before, now V) V
	wake  chan struct{} // capacity 1; a message means that the queue is no longer empty

	mu      sync.Mutex
	order   []K
	pending map[K]V
}

// New returns an empty queue. If the queue already has a value for an added key, merge
// combines both values.
func New[K comparable, V any](merge func(before, now V) V) *Queue[K, V] {
	return &Queue[K, V]{merge: merge, wake: make(chan struct{}, 1), pending: map[K]V{}}
}

// Add adds a value to the queue. It never blocks.
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
	default: // a wake-up is already pending
	}
}

// Pump removes the values from the queue and sends them to out until ctx is done.
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

// next removes and returns the first value. ok is false if the queue is empty.
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
