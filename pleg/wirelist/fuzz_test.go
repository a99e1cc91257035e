package wirelist_test

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// The lister and the ordinary decoder decode the same bytes, in a sequence of lists that may
// be similar to earlier lists. Both must reject the same responses, and decode all other
// responses to the same items.

func FuzzListPodSandbox(f *testing.F) {
	fuzz(f, func(b *bed, answer []byte) bool { return b.sandboxes(answer) != nil })
}

func FuzzListContainers(f *testing.F) {
	fuzz(f, func(b *bed, answer []byte) bool { return b.containers(answer) != nil })
}

func fuzz(f *testing.F, list func(b *bed, answer []byte) bool) {
	f.Helper()
	boxes, containers := node(2)
	f.Add(encode(boxes), encode(boxes), uint64(1))
	f.Add(encode(containers), encode(containers), uint64(2))
	f.Add(encode(boxes), encode(containers), uint64(3))
	for _, answer := range malformed() {
		f.Add(encode(boxes), answer, uint64(4))
		f.Add(answer, encode(containers), uint64(5))
	}
	f.Fuzz(func(t *testing.T, first, second []byte, seed uint64) {
		b := newBed(t)
		b.size = int(seed%100 + 1)
		rnd := rand.New(rand.NewPCG(seed, 0))
		fine := list(b, first)
		list(b, second)
		list(b, join(first, second))
		if fine {
			list(b, shuffle(rnd, first))
		}
		list(b, first)
		if len(first) > 0 {
			bad := join(first)
			bad[rnd.IntN(len(bad))] ^= byte(1 << rnd.IntN(8))
			list(b, bad)
			list(b, first[:rnd.IntN(len(first))])
			list(b, first)
		}
	})
}

// shuffle returns a valid response with its items, and the fields of the items, in another
// order.
func shuffle(rnd *rand.Rand, answer []byte) []byte {
	parts := fields(answer)
	for i, part := range parts {
		if num, typ, n := protowire.ConsumeTag(part); num == 1 && typ == protowire.BytesType {
			item, _ := protowire.ConsumeBytes(part[n:])
			inner := fields(item)
			rnd.Shuffle(len(inner), func(i, j int) { inner[i], inner[j] = inner[j], inner[i] })
			parts[i] = field(1, inner...)
		}
	}
	if rnd.IntN(2) == 0 {
		rnd.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	}
	return join(parts...)
}

// fields cuts a valid message into its fields.
func fields(message []byte) (parts [][]byte) {
	for len(message) > 0 {
		_, _, n := protowire.ConsumeField(message)
		parts, message = append(parts, message[:n]), message[n:]
	}
	return parts
}
