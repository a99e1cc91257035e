package status

// records is a heap of records that know their places.
type records struct {
	list   []*record
	before func(a, b *record) bool
}

func (h *records) Len() int           { return len(h.list) }
func (h *records) Less(i, j int) bool { return h.before(h.list[i], h.list[j]) }

func (h *records) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].index, h.list[j].index = i, j
}

// first returns the first record that want wants, nil if there is none.
func (h *records) first(want func(*record) bool) (first *record) {
	if want == nil {
		if len(h.list) > 0 {
			first = h.list[0]
		}
		return first
	}
	for _, r := range h.list {
		if want(r) && (first == nil || h.before(r, first)) {
			first = r
		}
	}
	return first
}

// Push is for package heap.
func (h *records) Push(x any) {
	r := x.(*record)
	r.in, r.index = h, len(h.list)
	h.list = append(h.list, r)
}

// Pop is for package heap.
func (h *records) Pop() any {
	last := len(h.list) - 1
	r := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	r.in = nil
	return r
}
