package wirelist

import (
	"hash/maphash"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// With a wrong field number, lists would still be correct, but unchanged items would be
// decoded again.
func TestLayout_FieldNumbersMatchTheAPI(t *testing.T) {
	t.Parallel()
	items := map[string]protoreflect.FieldDescriptor{}
	for of, m := range map[protoreflect.Name]proto.Message{
		"items":         &runtimeapi.ListPodSandboxResponse{},
		"pod_sandboxes": &runtimeapi.StreamPodSandboxesResponse{},
		"containers":    &runtimeapi.ListContainersResponse{},
	} {
		items[string(of)] = m.ProtoReflect().Descriptor().Fields().ByName(of)
	}
	items["streamed"] = (&runtimeapi.StreamContainersResponse{}).ProtoReflect().Descriptor().Fields().ByName("containers")
	for of, f := range items {
		require.EqualValues(t, itemsField, f.Number(), of)
	}
	checkLayout(t, sandboxLayout(), items["items"].Message(), items["pod_sandboxes"].Message())
	checkLayout(t, containerLayout(), items["containers"].Message(), items["streamed"].Message())
}

func checkLayout[M item](t *testing.T, l layout[M], single, streamed protoreflect.MessageDescriptor) {
	t.Helper()
	require.Equal(t, single.FullName(), streamed.FullName())
	require.Equal(t, single.FullName(), l.empty().ProtoReflect().Descriptor().FullName())
	fields := single.Fields()
	require.EqualValues(t, idField, fields.ByName("id").Number())
	require.Equal(t, l.state, fields.ByName("state").Number())
	require.Equal(t, l.labels, fields.ByName("labels").Number())
	require.Equal(t, l.annotations, fields.ByName("annotations").Number())
	maps := 0
	for i := range fields.Len() {
		if fields.Get(i).IsMap() {
			maps++
		}
	}
	require.Equal(t, 2, maps, "all maps of the messages must be known, because an unsorted map makes items look changed")
}

// Items with different states have different digests, even with a hash collision.
func TestDigest_ContainsTheState(t *testing.T) {
	t.Parallel()
	check := func(b []byte, id []byte, d digest, ok bool) {
		t.Helper()
		require.True(t, ok, b)
		require.Equal(t, "i", string(id))
		require.EqualValues(t, 1, d.state)
	}
	seed := maphash.MakeSeed()
	boxes, containers := sandboxLayout(), containerLayout()
	for _, unread := range []uint64{0, 2} { // the last value counts
		b := []byte{1<<3 | 2, 1, 'i', 3 << 3, byte(unread), 3 << 3, 1}
		id, d, ok := boxes.digest(seed, b)
		check(b, id, d, ok)
		b = []byte{1<<3 | 2, 1, 'i', 6 << 3, byte(unread), 6 << 3, 1}
		id, d, ok = containers.digest(seed, b)
		check(b, id, d, ok)
	}
}
