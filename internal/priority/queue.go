// Package priority holds a priority queue whose items can be moved and removed.
package priority

import (
	"container/heap"
	"iter"
	"slices"
)

// Queue is a priority queue. Items are pointers; each remembers its own place, so
// that it can be moved and removed without a search. Make one with [New].
type Queue[T any] struct{ h items[T] }

// New returns an empty queue, in which a is before b if before reports so. Place returns
// where an item remembers its place, which only the queue may change: zero means that the
// item is in no queue.
func New[T any](before func(a, b *T) bool, place func(*T) *int) Queue[T] {
	return Queue[T]{items[T]{before: before, place: place}}
}

// Put adds an item. One that is in the queue moves to where it belongs now.
func (q *Queue[T]) Put(item *T) {
	if i, ok := q.find(item); ok {
		heap.Fix(&q.h, i)
		return
	}
	heap.Push(&q.h, item)
}

// Remove removes an item, if it is in the queue.
func (q *Queue[T]) Remove(item *T) {
	if i, ok := q.find(item); ok {
		heap.Remove(&q.h, i)
	}
}

// First returns the first item without removing it, or nil if the queue is empty.
func (q *Queue[T]) First() *T {
	if len(q.h.list) == 0 {
		return nil
	}
	return q.h.list[0]
}

// All returns the items in no order.
func (q *Queue[T]) All() iter.Seq[*T] { return slices.Values(q.h.list) }

// Len returns how many items are in the queue.
func (q *Queue[T]) Len() int { return len(q.h.list) }

func (q *Queue[T]) find(item *T) (i int, ok bool) {
	i = *q.h.place(item) - 1
	return i, i >= 0 && i < len(q.h.list) && q.h.list[i] == item // it may be in another queue
}

// items implements heap.Interface.
type items[T any] struct {
	list   []*T
	before func(a, b *T) bool
	place  func(*T) *int
}

func (h *items[T]) Len() int           { return len(h.list) }
func (h *items[T]) Less(i, j int) bool { return h.before(h.list[i], h.list[j]) }

func (h *items[T]) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	*h.place(h.list[i]), *h.place(h.list[j]) = i+1, j+1
}

// Push implements heap.Interface.
func (h *items[T]) Push(x any) {
	if item, ok := x.(*T); ok {
		h.list = append(h.list, item)
		*h.place(item) = len(h.list)
	}
}

// Pop implements heap.Interface.
func (h *items[T]) Pop() any {
	last := len(h.list) - 1
	item := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	*h.place(item) = 0
	return item
}
