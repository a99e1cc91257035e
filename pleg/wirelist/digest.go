package wirelist

import (
	"errors"
	"hash/maphash"

	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// errFieldNumber is the error of a field number above protobuf's maximum.
var errFieldNumber = errors.New("invalid field number")

// Field numbers of the items in all four responses, and of the ID in both kinds of items.
const (
	itemsField = 1
	idField    = 1
)

// layout describes one kind of item.
type layout[M item] struct {
	// state, labels and annotations are field numbers.
	state, labels, annotations protowire.Number
	// empty returns a new item.
	empty func() M
	// pairs returns the number of labels and annotations.
	pairs func(M) int
}

func sandboxLayout() layout[*runtimeapi.PodSandbox] {
	return layout[*runtimeapi.PodSandbox]{
		state: 3, labels: 5, annotations: 6,
		empty: func() *runtimeapi.PodSandbox { return &runtimeapi.PodSandbox{} },
		pairs: func(b *runtimeapi.PodSandbox) int { return len(b.GetLabels()) + len(b.GetAnnotations()) },
	}
}

func containerLayout() layout[*runtimeapi.Container] {
	return layout[*runtimeapi.Container]{
		state: 6, labels: 8, annotations: 9,
		empty: func() *runtimeapi.Container { return &runtimeapi.Container{} },
		pairs: func(c *runtimeapi.Container) int { return len(c.GetLabels()) + len(c.GetAnnotations()) },
	}
}

// digest identifies the contents of an item. It does not depend on the order of labels and
// annotations, because runtimes send them in a different order each time. If two items with
// the same ID have equal digests, the items are equal, except for hash collisions, which
// have a probability of 2^-64. The state is included without hashing, so items with
// different states always have different digests.
type digest struct {
	state uint64
	// inOrder is the hash of all fields except labels and annotations, ofPairs is the sum
	// of the hashes of the labels and annotations, and pairs is their number.
	inOrder, ofPairs uint64
	pairs            int
}

// digest returns the ID, as a slice of b, and the digest of an item. It checks only where
// the fields end, not what they contain. An item with the digest of a decoded item is valid
// like that item, and any other item will be decoded. If ok is false, the item could not be
// read and must be decoded.
func (l *layout[M]) digest(seed maphash.Seed, b []byte) (id []byte, d digest, ok bool) {
	rest := 0 // start of the fields that are not in the digest yet
	for at := 0; at < len(b); {
		num, typ, tag := protowire.ConsumeTag(b[at:])
		if tag < 0 {
			return nil, digest{}, false
		}
		number, text, n := uint64(0), []byte(nil), -1
		switch typ {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b[at+tag:])
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b[at+tag:])
		default: // CRI has no such fields
		}
		if n < 0 {
			return nil, digest{}, false
		}
		begin := at
		at += tag + n
		switch {
		case num == l.state && typ == protowire.VarintType:
			d.state = number // the last value counts, as in protobuf
		case typ == protowire.VarintType:
		case num == idField:
			id = text
		case num == l.labels || num == l.annotations:
			d.addInOrder(seed, b[rest:begin])
			d.ofPairs += maphash.Bytes(seed, b[begin:at])
			d.pairs++
			rest = at
		}
	}
	d.addInOrder(seed, b[rest:])
	return id, d, true
}

// addInOrder adds fields whose order matters.
func (d *digest) addInOrder(seed maphash.Seed, b []byte) {
	if len(b) > 0 {
		const factor = 0x9e3779b97f4a7c15 // any odd number that spreads the bits
		d.inOrder = d.inOrder*factor + maphash.Bytes(seed, b)
	}
}
