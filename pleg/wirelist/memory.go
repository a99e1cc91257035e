package wirelist

import (
	"errors"
	"hash/maphash"
	"io"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// item is a *runtimeapi.PodSandbox or a *runtimeapi.Container.
type item interface {
	comparable
	proto.Message
	GetId() string
}

// memory contains the decoded items of the newest list of one kind. A stored item is valid
// for every list that contains the same bytes, so the items of a list that failed halfway
// remain valid.
type memory[M item] struct {
	layout layout[M]
	seed   maphash.Seed

	mu         sync.Mutex // held while a call reads a response, not while the call waits for the response
	known      map[string]*entry[M]
	generation uint64 // counts the lists that were started
	last       []M    // the result of the newest list
	reusable   []M    // memory for the items of the next list
	// scratch is memory for a field that is split between two buffers of a response.
	scratch []byte
}

// entry is a known item.
type entry[M item] struct {
	message    M
	digest     digest
	generation uint64 // of the last list that contained the item
	index      int    // the item's index in that list
	lastIndex  int    // the item's index in memory.last
}

func newMemory[M item](l layout[M]) *memory[M] {
	return &memory[M]{layout: l, seed: maphash.MakeSeed(), known: map[string]*entry[M]{}}
}

// answer is a list that is being received, in one message or several.
type answer[M item] struct {
	memory     *memory[M]
	generation uint64
	size       int64 // in bytes, so far
	seen       int   // number of entries of memory.known that are in this list
	items      []M
	// The slice last is the previous list. The field changed means that this list has other
	// items than the previous list.
	last    []M
	changed bool
}

// begin starts a list.
func (m *memory[M]) begin() *answer[M] {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation++
	a := &answer[M]{memory: m, generation: m.generation, items: m.reusable[:0], last: m.last}
	m.reusable = nil // another list may begin before this list is finished
	if cap(a.items) < len(a.last) {
		a.items = make([]M, 0, len(a.last))
	}
	return a
}

// receive implements receiver for one message of the list.
func (a *answer[M]) receive(part mem.BufferSlice) error {
	m := a.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	partial := m.scratch[:0] // a field that continues in the next buffer
	for _, buffer := range part {
		b := buffer.ReadOnlyData()
		a.size += int64(len(b))
		if len(partial) > 0 {
			partial = append(partial, b...)
			b = partial
		}
		rest, err := a.readFields(b)
		if err != nil {
			return err
		}
		if len(partial) == 0 || len(rest) < len(partial) {
			partial = append(partial[:0], rest...)
		}
	}
	if len(partial) > 0 {
		return io.ErrUnexpectedEOF
	}
	m.scratch = partial
	return nil
}

// readFields reads the complete fields of a response in b, and returns the remaining bytes.
func (a *answer[M]) readFields(b []byte) (rest []byte, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeField(b)
		switch err := protowire.ParseError(n); {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return b, nil
		case err != nil:
			return nil, err
		case num > protowire.MaxValidNumber:
			return nil, errFieldNumber
		case num == itemsField && typ == protowire.BytesType:
			_, _, tag := protowire.ConsumeTag(b)
			item, _ := protowire.ConsumeBytes(b[tag:n])
			if err := a.read(item); err != nil {
				return nil, err
			}
		}
		b = b[n:]
	}
	return nil, nil
}

// read adds an item. It decodes the item unless an equal item is stored.
func (a *answer[M]) read(b []byte) error {
	m := a.memory
	id, d, ok := m.layout.digest(m.seed, b)
	e := m.known[string(id)]
	if !ok || e == nil || e.digest != d {
		message := m.layout.empty()
		if err := proto.Unmarshal(b, message); err != nil {
			return err
		}
		// If an item contains a key twice, the order of its pairs matters. The digest does
		// not depend on that order, so the item is not stored.
		if !ok || d.pairs != m.layout.pairs(message) {
			a.items, a.changed = append(a.items, message), true
			return nil
		}
		if e == nil {
			e = &entry[M]{}
			m.known[message.GetId()] = e
		}
		e.message, e.digest = message, d
	}
	// If an entry occurs twice, the list counts as changed. So this list equals the last
	// list if both have the same number of items and the last list contains all items of
	// this list.
	if e.generation >= a.generation || e.lastIndex >= len(a.last) || a.last[e.lastIndex] != e.message {
		a.changed = true
	}
	if e.generation < a.generation {
		e.generation, e.index = a.generation, len(a.items)
		a.seen++
	}
	a.items = append(a.items, e.message)
	return nil
}

// finish returns the items. If the previous list has the same items, finish returns the
// previous slice. It deletes the known items that neither this list nor a list that began
// later contains.
func (a *answer[M]) finish() []M {
	m := a.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.seen < len(m.known) {
		maps.DeleteFunc(m.known, func(_ string, e *entry[M]) bool { return e.generation < a.generation })
	}
	if !a.changed && len(a.items) == len(a.last) {
		clear(a.items)
		m.reusable = a.items
		return a.last
	}
	for _, e := range m.known {
		e.lastIndex = e.index
	}
	m.last = slices.Clip(a.items)
	return m.last
}
