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

// memory keeps the items of the newest list of one kind, decoded. What it keeps is
// true of any list with the same bytes, so one that fails halfway does no harm.
type memory[M item] struct {
	of   layout[M]
	seed maphash.Seed

	mu    sync.Mutex // held while an answer is read, not while it is awaited
	known map[string]*entry[M]
	turn  uint64 // counts the lists begun
	last  []M    // what the newest list returned
	spare []M    // memory for the items of the next one
	// scratch holds what the buffers of an answer cut in two.
	scratch []byte
}

// entry is a known item.
type entry[M item] struct {
	message M
	digest  digest
	turn    uint64 // of the list that had it last
	at      int    // its place in that list
	kept    int    // its place in memory.last
}

func newMemory[M item](of layout[M]) *memory[M] {
	return &memory[M]{of: of, seed: maphash.MakeSeed(), known: map[string]*entry[M]{}}
}

// answer is a list being received, in one part or several.
type answer[M item] struct {
	memory *memory[M]
	turn   uint64
	size   int64 // in bytes, so far
	seen   int   // entries, each counted once
	items  []M
	// last is the list before, and news says that this one has other items.
	last []M
	news bool
}

// begin starts a list.
func (m *memory[M]) begin() *answer[M] {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn++
	a := &answer[M]{memory: m, turn: m.turn, items: m.spare[:0], last: m.last}
	m.spare = nil // another list may begin before this one ends
	if cap(a.items) < len(a.last) {
		a.items = make([]M, 0, len(a.last))
	}
	return a
}

// receive implements receiver for one part of the list.
func (a *answer[M]) receive(part mem.BufferSlice) error {
	m := a.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	cut := m.scratch[:0] // a field that goes on in the next buffer
	for _, buffer := range part {
		b := buffer.ReadOnlyData()
		a.size += int64(len(b))
		if len(cut) > 0 {
			cut = append(cut, b...)
			b = cut
		}
		rest, err := a.readFields(b)
		if err != nil {
			return err
		}
		if len(cut) == 0 || len(rest) < len(cut) {
			cut = append(cut[:0], rest...)
		}
	}
	if len(cut) > 0 {
		return io.ErrUnexpectedEOF
	}
	m.scratch = cut
	return nil
}

// readFields reads the fields of an answer as far as b has the whole of them, and
// returns the rest of b.
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

// read adds an item, which it decodes unless it is known.
func (a *answer[M]) read(b []byte) error {
	m := a.memory
	id, d, ok := m.of.digest(m.seed, b)
	e := m.known[string(id)]
	if !ok || e == nil || e.digest != d {
		message := m.of.empty()
		if err := proto.Unmarshal(b, message); err != nil {
			return err
		}
		// Where an item has a key twice, the order of the pairs matters, which the
		// digest does not know.
		if !ok || d.pairs != m.of.pairs(message) {
			a.items, a.news = append(a.items, message), true
			return nil
		}
		if e == nil {
			e = &entry[M]{}
			m.known[message.GetId()] = e
		}
		e.message, e.digest = message, d
	}
	// Each entry counts once: as many as the last list had, all of them from it, are
	// that list.
	if e.turn >= a.turn || e.kept >= len(a.last) || a.last[e.kept] != e.message {
		a.news = true
	}
	if e.turn < a.turn {
		e.turn, e.at = a.turn, len(a.items)
		a.seen++
	}
	a.items = append(a.items, e.message)
	return nil
}

// end returns the items, which is the list before if that has the same, and forgets
// what the list no longer has, unless a list that began later has it.
func (a *answer[M]) end() []M {
	m := a.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.seen < len(m.known) {
		maps.DeleteFunc(m.known, func(_ string, e *entry[M]) bool { return e.turn < a.turn })
	}
	if !a.news && len(a.items) == len(a.last) {
		clear(a.items)
		m.spare = a.items
		return a.last
	}
	for _, e := range m.known {
		e.kept = e.at
	}
	m.last = slices.Clip(a.items)
	return m.last
}
