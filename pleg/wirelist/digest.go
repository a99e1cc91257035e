package wirelist

import (
	"errors"
	"hash/maphash"

	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// errFieldNumber is what is wrong with a number above those of protobuf.
var errFieldNumber = errors.New("invalid field number")

// Field numbers of the answers, equal in all four, and of both kinds of items.
const (
	itemsField = 1
	idField    = 1
)

// layout is what has to be known of one kind of item.
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

// digest stands for the bytes of an item, whatever the order of its labels and
// annotations: runtimes send those in another order each time. Where the digests
// of two items with one id are equal, so are the items, but for one chance in 2^64
// that the hashes lie. About the state they cannot: it is here as it is.
type digest struct {
	state uint64
	// inOrder is the hash of all fields that are no pairs, ofPairs the sum of the
	// hashes of the labels and annotations, of which there are pairs.
	inOrder, ofPairs uint64
	pairs            int
}

// digest returns the id, as part of b, and the digest of an item. It checks
// nothing but where the fields end: what is made of the same fields as an item
// that was decoded before is as valid as that. If ok is false, it could not tell.
func (l *layout[M]) digest(seed maphash.Seed, b []byte) (id []byte, d digest, ok bool) {
	rest := 0 // where what is not in the digest yet begins
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
			d.state = number // the last one counts
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
