//go:build linux && hostile

package hostile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// madeUp is the prefix of the ids of pods that do not exist.
	madeUp = "made-up-"
	// longText is the length of a long string: longer than any field of the kernel and any
	// label.
	longText = 70_000
	// manyEntries is the maximum number of copies of a list entry.
	manyEntries = 300
)

// text returns an unexpected string. It is valid UTF-8, and never the id of an object.
func text(rng *rand.Rand) string {
	all := []string{
		"", " ", strings.Repeat("x", longText), strings.Repeat("\x1b[2J", 100), "a\x00b", "line\nline\r\n[+]ok", "\u202e\u2028\ufeff",
		"../../../../etc/passwd", "/", "%s%n%d", "-1", "9223372036854775808", "NaN", "\U0010ffff", "<script>", `{"a":`,
		"default", "sha256:", "docker.io/" + strings.Repeat("a/", 200), "$(PATH)", "::1", "999.999.999.999", "UNKNOWN_UNKNOWN",
	}
	return all[rng.IntN(len(all))]
}

// A site is a field of a message in a response.
type site struct {
	m     protoreflect.Message
	field protoreflect.FieldDescriptor
}

// sites returns all fields of m and of the messages in it, including unset fields.
func sites(m protoreflect.Message) (all []site) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		all = append(all, site{m, f})
		switch {
		case f.Message() == nil || f.IsMap() || !m.Has(f):
		case f.IsList():
			for j := range m.Get(f).List().Len() {
				all = append(all, sites(m.Get(f).List().Get(j).Message())...)
			}
		default:
			all = append(all, sites(m.Get(f).Message())...)
		}
	}
	return all
}

// lie changes one to four fields of a response. The top-level fields, such as a list, are
// chosen as often as all nested fields together.
func lie(rng *rand.Rand, m protoreflect.Message) {
	all := sites(m)
	if len(all) == 0 {
		return
	}
	for range 1 + rng.IntN(4) {
		s := all[rng.IntN(len(all))]
		if rng.IntN(2) == 0 {
			fields := m.Descriptor().Fields()
			s = site{m, fields.Get(rng.IntN(fields.Len()))}
		}
		switch {
		case rng.IntN(6) == 0:
			s.m.Clear(s.field)
		case s.field.IsMap():
			lieMap(rng, s)
		case s.field.IsList():
			lieList(rng, s)
		case s.field.Message() != nil:
			s.m.Set(s.field, s.m.NewField(s.field)) // set, but empty
		default:
			s.m.Set(s.field, scalar(rng, s.field))
		}
	}
}

func lieMap(rng *rand.Rand, s site) {
	entries := s.m.Mutable(s.field).Map()
	entries.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		if rng.IntN(2) == 0 {
			entries.Clear(k)
		}
		return true
	})
	if s.field.MapKey().Kind() == protoreflect.StringKind && s.field.MapValue().Message() == nil && rng.IntN(2) == 0 {
		entries.Set(protoreflect.ValueOfString(text(rng)).MapKey(), scalar(rng, s.field.MapValue()))
	}
}

// lieList removes, repeats or shuffles entries, or adds an empty entry.
func lieList(rng *rand.Rand, s site) {
	list := s.m.Mutable(s.field).List()
	n := list.Len()
	switch kind := rng.IntN(5); {
	case kind == 0 && s.field.Message() != nil:
		list.AppendMutable()
	case kind == 0:
		list.Append(scalar(rng, s.field))
	case n == 0:
	case kind == 1:
		list.Truncate(rng.IntN(n))
	case kind == 2:
		i, j := rng.IntN(n), rng.IntN(n)
		a, b := list.Get(i), list.Get(j)
		list.Set(i, b)
		list.Set(j, a)
		list.Truncate(max(1, n-1))
	default:
		times := 1 + rng.IntN(2)
		if rng.IntN(8) == 0 {
			times = manyEntries
		}
		for range times {
			e := list.Get(rng.IntN(n))
			if s.field.Message() != nil {
				e = protoreflect.ValueOfMessage(proto.Clone(e.Message().Interface()).ProtoReflect())
			}
			list.Append(e)
		}
	}
}

// scalar returns an extreme value for a field that is not a message.
func scalar(rng *rand.Rand, f protoreflect.FieldDescriptor) protoreflect.Value {
	ints := []int64{0, -1, 1, math.MaxInt64, math.MinInt64, math.MaxInt32, math.MinInt32, 1 << 53, -(1 << 53)}
	floats := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, math.MaxFloat64, math.SmallestNonzeroFloat64}
	n := ints[rng.IntN(len(ints))]
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rng.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(n)))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(floats[rng.IntN(len(floats))]))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(floats[rng.IntN(len(floats))])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(text(rng) + "\xff\xfe"))
	default:
		return protoreflect.ValueOfString(text(rng))
	}
}

// spoil changes bytes of a message, so that it usually cannot be decoded.
func spoil(rng *rand.Rand, data []byte) []byte {
	data = append([]byte{}, data...)
	switch rng.IntN(5) {
	case 0:
		return data[:rng.IntN(len(data)+1)]
	case 1:
		return make([]byte, 17<<20) // more than the agent accepts
	case 2:
		junk := make([]byte, rng.IntN(2000))
		for i := range junk {
			junk[i] = byte(rng.Uint32())
		}
		return append(data, junk...)
	default:
		for range min(len(data), 1+rng.IntN(8)) {
			data[rng.IntN(len(data))] = byte(rng.Uint32())
		}
		return data
	}
}

// clearFilter removes the filter of a list request, so that the runtime returns all
// objects.
func clearFilter(in proto.Message) {
	m := in.ProtoReflect()
	if f := m.Descriptor().Fields().ByName("filter"); f != nil {
		m.Clear(f)
	}
}

// addForeign adds pods that do not exist, and do not have this agent's label, to a list.
func addForeign(out proto.Message) {
	const pods = 20
	for i := range pods {
		id := fmt.Sprintf("%s%d", madeUp, i)
		labels := map[string]string{
			labelPodName: id, labelPodNamespace: "default", labelPodUID: id, labelContainerName: "main",
		}
		if i%2 == 0 {
			labels[labelAgent] = "another"
		}
		box := &runtimeapi.PodSandboxMetadata{Name: id, Namespace: "default", Uid: id}
		switch out := out.(type) {
		case *runtimeapi.ListPodSandboxResponse:
			out.Items = append(out.Items, &runtimeapi.PodSandbox{Id: id, Metadata: box, State: runtimeapi.PodSandboxState(i % 2), Labels: labels})
		case *runtimeapi.ListContainersResponse:
			out.Containers = append(out.Containers, &runtimeapi.Container{
				Id: id, PodSandboxId: id, Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
				State: runtimeapi.ContainerState(i % 4), Labels: labels,
			})
		}
	}
}
