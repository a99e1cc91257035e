package fakecri

import (
	"cmp"
	"slices"
)

// object is an element of a store. It has an id, a sequence number that increases with each
// creation, and the name that Call.Object contains.
type object interface {
	*sandbox | *container
	key() (id string, seq uint64)
	named() string
}

// store holds objects by id and in the order of their creation.
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

// only returns a list with the object that has this id. The list is empty if the id is
// unknown. For an empty id, the list contains all objects. The caller must not modify the
// list.
func (s *store[T]) only(id string) []T {
	if id == "" {
		return s.order
	}
	if o, ok := s.byID[id]; ok {
		return []T{o}
	}
	return nil
}

// newest returns the object whose id is ref, otherwise the newest object whose name is ref,
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

// items converts the objects of a list for which wanted returns true. If wanted is nil,
// items converts all objects, and allocates the result only once.
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
