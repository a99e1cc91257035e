// Package priority implements a priority queue whose items can be moved and removed.
package priority

import (
	"container/heap"
	"iter"
	"slices"
)

// Queue is a priority queue of pointers to items. Each item stores its position in the
// queue, so that the queue can move and remove the item without a search. Both fields are
// required.
type Queue[T any] struct {
	// Before reports whether item a leaves the queue before item b.
	Before func(a, b *T) bool
	// Place returns a pointer to the field in which an item stores its position. Only the
	// queue may change the field. The field is zero if the item is in no queue.
	Place func(*T) *int

	list []*T
}

// Put adds an item. If the item is already in the queue, Put moves the item to its new
// position.
func (q *Queue[T]) Put(item *T) {
	if i, ok := q.find(item); ok {
		heap.Fix((*items[T])(q), i)
		return
	}
	heap.Push((*items[T])(q), item)
}

// Remove removes an item. It does nothing if the item is not in the queue.
func (q *Queue[T]) Remove(item *T) {
	if i, ok := q.find(item); ok {
		heap.Remove((*items[T])(q), i)
	}
}

// First returns the first item without removing it, or nil if the queue is empty.
func (q *Queue[T]) First() *T {
	if len(q.list) == 0 {
		return nil
	}
	return q.list[0]
}

// All returns the items in no particular order.
func (q *Queue[T]) All() iter.Seq[*T] { return slices.Values(q.list) }

// Len returns the number of items in the queue.
func (q *Queue[T]) Len() int { return len(q.list) }

func (q *Queue[T]) find(item *T) (i int, ok bool) {
	i = *q.Place(item) - 1
	return i, i >= 0 && i < len(q.list) && q.list[i] == item // the item may be in another queue
}

// items implements heap.Interface.
type items[T any] Queue[T]

func (h *items[T]) Len() int           { return len(h.list) }
func (h *items[T]) Less(i, j int) bool { return h.Before(h.list[i], h.list[j]) }

func (h *items[T]) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	*h.Place(h.list[i]), *h.Place(h.list[j]) = i+1, j+1
}

// Push implements heap.Interface.
func (h *items[T]) Push(x any) {
	if item, ok := x.(*T); ok {
		h.list = append(h.list, item)
		*h.Place(item) = len(h.list)
	}
}

// Pop implements heap.Interface.
func (h *items[T]) Pop() any {
	last := len(h.list) - 1
	item := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	*h.Place(item) = 0
	return item
}
