package fakecri

import (
	"cmp"
	"slices"
)

// object is what a store holds: it has an id, a number that says how many
// objects were made before it, and a name that users know it by.
type object interface {
	*sandbox | *container
	key() (id string, seq uint64)
	named() string
}

// store holds objects by id and in the order of their making.
type store[T object] struct {
	byID  map[string]T
	order []T
}

func (s *store[T]) add(o T) {
	if s.byID == nil {
		s.byID = map[string]T{}
	}
	id, _ := o.key()
	s.byID[id] = o
	s.order = append(s.order, o)
}

func (s *store[T]) remove(o T) {
	id, seq := o.key()
	delete(s.byID, id)
	i, ok := slices.BinarySearchFunc(s.order, seq, func(o T, seq uint64) int {
		_, other := o.key()
		return cmp.Compare(other, seq)
	})
	if ok {
		s.order = slices.Delete(s.order, i, i+1)
	}
}

// only returns the object of the given id as a list of one or none, and all of
// them for the empty id. The list is the store's own.
func (s *store[T]) only(id string) []T {
	if id == "" {
		return s.order
	}
	if o, ok := s.byID[id]; ok {
		return []T{o}
	}
	return nil
}

// newest returns the object of the given id, or else the newest of that name,
// or nil.
func (s *store[T]) newest(ref string) T {
	if o, ok := s.byID[ref]; ok {
		return o
	}
	for _, o := range slices.Backward(s.order) {
		if o.named() == ref {
			return o
		}
	}
	return nil
}

// items converts those objects of a list that are wanted, all of them if wanted
// is nil. It allocates what it returns, and for a nil wanted no more than that.
func items[T, M any](list []T, wanted func(T) bool, convert func(T) M) []M {
	var out []M
	if wanted == nil {
		out = make([]M, 0, len(list))
	}
	for _, o := range list {
		if wanted == nil || wanted(o) {
			out = append(out, convert(o))
		}
	}
	return out
}
