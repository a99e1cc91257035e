package wirelist_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/pleg/wirelist"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(envSocket); socket != "" {
		fmt.Fprintln(os.Stderr, beRuntime(socket))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// lister is the interface that code that needs only lists declares. A Lister
// and the ordinary client implement it.
type lister interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
}

var (
	_ lister = (*wirelist.Lister)(nil)
	_ lister = cri.RuntimeService(nil)
)

func TestConfig_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := wirelist.New(wirelist.Config{MaxMessageBytes: -1, Timeout: -time.Second})
	require.EqualError(t, err, "wirelist: invalid config: field Conn is required\n"+
		"field MaxMessageBytes: -1 is negative\nfield Timeout: -1s is negative")
	require.NoError(t, wirelist.Config{Conn: &canned{}}.Validate())
}

func TestLister_UnchangedListIsTheSameSlice(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	boxes, containers := node(20)
	first, firstContainers := b.sandboxes(encode(boxes)), b.containers(encode(containers))
	for range 20 { // with labels in another order each time
		again, againContainers := b.sandboxes(encode(boxes)), b.containers(encode(containers))
		require.Same(t, &first[0], &again[0])
		require.Same(t, &firstContainers[0], &againContainers[0])
	}
}

func TestLister_OnlyChangedItemsAreNew(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*runtimeapi.PodSandbox, *runtimeapi.Container){
		"state": func(b *runtimeapi.PodSandbox, c *runtimeapi.Container) {
			b.State, c.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY, runtimeapi.ContainerState_CONTAINER_UNKNOWN
		},
		"state of the future": func(b *runtimeapi.PodSandbox, c *runtimeapi.Container) { b.State, c.State = 17, -1 },
		"label":               func(b *runtimeapi.PodSandbox, c *runtimeapi.Container) { b.Labels["app"], c.Labels["app"] = "x", "y" },
		"label less": func(b *runtimeapi.PodSandbox, c *runtimeapi.Container) {
			delete(b.Labels, "tier")
			delete(c.Labels, "io.kubernetes.pod.uid")
		},
		"label becomes annotation": func(b *runtimeapi.PodSandbox, c *runtimeapi.Container) {
			b.Annotations["app"], c.Annotations["io.kubernetes.pod.uid"] = b.Labels["app"], c.Labels["io.kubernetes.pod.uid"]
			delete(b.Labels, "app")
			delete(c.Labels, "io.kubernetes.pod.uid")
		},
		"values change places": func(b *runtimeapi.PodSandbox, c *runtimeapi.Container) {
			b.Labels["app"], b.Labels["tier"] = b.Labels["tier"], b.Labels["app"]
			c.Labels["a"], c.Annotations["a"] = "1", "2"
		},
		"annotation": func(b *runtimeapi.PodSandbox, c *runtimeapi.Container) {
			b.Annotations["kubernetes.io/config.source"], c.Annotations["io.kubernetes.container.restartCount"] = "file", "1"
		},
		"attempt": func(b *runtimeapi.PodSandbox, c *runtimeapi.Container) { b.Metadata.Attempt, c.Metadata.Attempt = 1, 1 },
		"no metadata": func(b *runtimeapi.PodSandbox, c *runtimeapi.Container) {
			b.Metadata, c.Metadata = nil, nil
		},
		"time":       func(b *runtimeapi.PodSandbox, c *runtimeapi.Container) { b.CreatedAt, c.CreatedAt = 0, -1 },
		"last field": func(b *runtimeapi.PodSandbox, c *runtimeapi.Container) { b.RuntimeHandler, c.ImageId = "kata", "" },
		"id":         func(b *runtimeapi.PodSandbox, c *runtimeapi.Container) { b.Id, c.Id = "new", "" },
		"field that this build does not know": func(b *runtimeapi.PodSandbox, c *runtimeapi.Container) {
			b.ProtoReflect().SetUnknown([]byte{15 << 3, 1})
			c.ProtoReflect().SetUnknown([]byte{15 << 3, 2})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			boxes, containers := node(4)
			first, firstContainers := b.sandboxes(encode(boxes)), b.containers(encode(containers))
			kept := []proto.Message{proto.Clone(first[2]), proto.Clone(firstContainers[5])}
			change(boxes.Items[2], containers.Containers[5])
			next, nextContainers := b.sandboxes(encode(boxes)), b.containers(encode(containers))
			for i := range next {
				require.Equal(t, i != 2, first[i] == next[i], i)
			}
			for i := range nextContainers {
				require.Equal(t, i != 5, firstContainers[i] == nextContainers[i], i)
			}
			require.True(t, proto.Equal(kept[0], first[2]), "a returned item was modified")
			require.True(t, proto.Equal(kept[1], firstContainers[5]), "a returned item was modified")
		})
	}
}

// containerd has items and labels in maps, so each list has another order.
func TestLister_OtherOrderIsTheSameSlice(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	boxes, _ := node(9)
	first := b.sandboxes(encode(boxes))
	slices.Reverse(boxes.Items)
	require.Same(t, &first[0], &b.sandboxes(encode(boxes))[0])

	boxes.Items[3].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	next := b.sandboxes(encode(boxes))
	for i := range first {
		require.Equal(t, i != 5, first[i] == next[8-i], "a changed list must have the runtime's order")
	}
	require.Equal(t, boxes.Items[8].GetId(), first[0].GetId(), "the returned list was reordered")
	slices.Reverse(boxes.Items)
	require.Same(t, &next[0], &b.sandboxes(encode(boxes))[0])
}

// A list with the same number of known items is not necessarily the same list.
func TestLister_DuplicateItemIsAnotherList(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	boxes, _ := node(3)
	first := b.sandboxes(encode(boxes))
	all := boxes.Items
	boxes.Items = []*runtimeapi.PodSandbox{all[0], all[1], all[1]}
	twice := b.sandboxes(encode(boxes))
	require.Same(t, first[1], twice[2])
	b.sandboxes(encode(boxes))
	boxes.Items = all
	b.sandboxes(encode(boxes))
}

func TestLister_GrowingAndShrinkingLists(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	all, _ := node(10)
	first := b.sandboxes(encode(all))
	few := b.sandboxes(encode(&runtimeapi.ListPodSandboxResponse{Items: all.Items[:4]}))
	require.Same(t, first[3], few[3])
	require.Len(t, append(few, nil), 5) // append must not overwrite the first list
	require.NotNil(t, first[4])
	again := b.sandboxes(encode(all))
	require.Same(t, first[3], again[3])
	require.NotSame(t, first[4], again[4], "removed pods must be deleted from the memory")
	require.Empty(t, b.sandboxes(nil))
	require.NotSame(t, again[0], b.sandboxes(encode(all))[0])
}

func TestLister_FailedListKeepsItems(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	boxes, _ := node(5)
	answer := encode(boxes)
	first := b.sandboxes(answer)
	require.Nil(t, b.sandboxes(answer[:len(answer)-1]))
	require.Nil(t, b.sandboxes(append([]byte{0}, answer...)))
	again := b.sandboxes(answer)
	require.Same(t, &first[0], &again[0])
}

// These items are valid, but only an unusual runtime sends them.
func TestLister_StrangeItems(t *testing.T) {
	t.Parallel()
	app := func(v string) []byte { return field(5, append(text(1, "app"), text(2, v)...)) }
	for name, answers := range map[string][][]byte{
		"no item":                           {nil},
		"an empty item":                     {field(1)},
		"the same item twice":               {join(field(1, text(1, "a")), field(1, text(1, "a")))},
		"one id, two items":                 {join(field(1, text(1, "a")), field(1, text(1, "a"), number(3, 1)))},
		"a field of the answer":             {join(number(2, 7), field(1, text(1, "a")), text(9, "x"), group(8, number(1, 1)))},
		"the items as a number":             {number(1, 7)},
		"the id twice":                      {field(1, text(1, "a"), text(1, "b")), field(1, text(1, "b"), text(1, "a"))},
		"the id twice, around a label":      {field(1, text(1, "a"), app("x"), text(1, "b")), field(1, text(1, "b"), app("x"), text(1, "a"))},
		"the handler twice, around a label": {field(1, text(7, "a"), app("x"), text(7, "b")), field(1, text(7, "b"), app("x"), text(7, "a"))},
		"the state twice":                   {field(1, number(3, 0), number(3, 1)), field(1, number(3, 1), number(3, 0))},
		"the state as text":                 {field(1, text(3, "1"), number(3, 1)), field(1, number(3, 1), text(3, "1"))},
		"the state as wide as can be":       {field(1, number(3, 1<<63)), field(1, number(3, 1<<32)), field(1, number(3, 1<<32|1))},
		"metadata in two parts":             {field(1, field(2, text(1, "a")), field(2, text(2, "b"))), field(1, field(2, text(2, "b")), field(2, text(1, "a")))},
		"a label twice":                     {field(1, app("x"), app("y")), field(1, app("y"), app("x")), field(1, app("x"), app("x")), field(1, app("x"))},
		"a label without a key":             {field(1, field(5, text(2, "v"))), field(1, field(5, text(1, ""), text(2, "v")))},
		"a label with two keys":             {field(1, field(5, text(1, "k"), text(1, "l"))), field(1, field(5, text(1, "l"), text(1, "k")))},
		"labels as numbers":                 {field(1, number(5, 1), app("x")), field(1, app("x"), number(5, 1))},
		"labels among other fields":         {field(1, text(1, "a"), app("x"), text(7, "r")), field(1, text(1, "a"), text(7, "r"), app("x"))},
		"a group":                           {field(1, text(1, "a"), group(20, group(21, number(1, 1)))), field(1, text(1, "a"), group(20))},
		"fixed numbers":                     {field(1, []byte{20<<3&0x7f | 1 | 0x80, 1, 1, 2, 3, 4, 5, 6, 7, 8}), field(1, []byte{9<<3 | 5, 1, 2, 3, 4})},
		"an overlong encoding":              {field(1, []byte{0x8a, 0x80, 0x00, 0x81, 0x00, 'a'}), field(1, text(1, "a"))},
		"an empty label":                    {field(1, field(5)), field(1, field(6)), field(1, field(5), field(6))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			for range 2 {
				for _, answer := range answers {
					require.NotNil(t, b.sandboxes(answer), "the response must be accepted")
					b.containers(answer) // the result for containers is not checked
				}
			}
		})
	}
}

func TestLister_MalformedResponses(t *testing.T) {
	t.Parallel()
	for name, answer := range malformed() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			require.Nil(t, b.sandboxes(answer), "the response must be rejected")
			require.Nil(t, b.containers(answer), "the response must be rejected")
			boxes, containers := node(2)
			b.sandboxes(encode(boxes))
			b.containers(encode(containers))
			b.sandboxes(join(encode(boxes), answer))
			b.containers(join(encode(containers), answer))
		})
	}
}

// malformed returns responses that must be rejected for both kinds of items.
func malformed() map[string][]byte {
	return map[string][]byte{
		"truncated tag":                   {0x8a},
		"truncated length":                {0x0a, 0x80},
		"truncated item":                  {0x0a, 2, 0x0a},
		"truncated string":                field(1, []byte{0x0a, 5, 'a'}),
		"truncated number":                field(1, []byte{3 << 3, 0x80}),
		"truncated fixed number":          field(1, []byte{20<<3&0x7f | 1 | 0x80, 1, 1, 2}),
		"number too long":                 field(1, []byte{4 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}),
		"number too large":                field(1, []byte{4 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2}),
		"length beyond all memory":        {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"field number zero":               {0, 1},
		"field number zero in an item":    field(1, []byte{0, 1}),
		"field number too large":          {0x80, 0x80, 0x80, 0x80, 0x10, 1},
		"field number beyond 32 bits":     {0x80, 0x80, 0x80, 0x80, 0x80, 0x01, 1},
		"field number too large, in item": field(1, []byte{0x80, 0x80, 0x80, 0x80, 0x10, 1}),
		"wire type 6":                     {1<<3 | 6},
		"wire type 7 in an item":          field(1, []byte{1<<3 | 7}),
		"group that does not begin":       {1<<3 | 4},
		"group that does not begin, item": field(1, []byte{20<<3&0x7f | 4 | 0x80, 1}),
		"group that does not end":         {9<<3 | 3, 1 << 3, 1},
		"group that ends as another":      field(1, []byte{9<<3 | 3, 10<<3 | 4}),
		"id that is not UTF-8":            field(1, text(1, "\xff")),
		"name that is not UTF-8":          field(1, field(2, text(1, "\xc0\x80")), field(3, text(1, "\xc0\x80"))),
		"label that is not UTF-8":         field(1, field(5, text(1, "\xed\xa0\x80")), field(8, text(1, "\xed\xa0\x80"))),
		"annotation that is not UTF-8":    field(1, field(6, text(2, "a\x80")), field(9, text(2, "a\x80"))),
		"label that is cut":               field(1, []byte{5<<3 | 2, 2, 0x0a, 3, 8<<3 | 2, 2, 0x0a, 3}),
		"label that ends a group":         field(1, field(5, []byte{1<<3 | 4}), field(8, []byte{1<<3 | 4})),
	}
}

// The cost of an unchanged list does not depend on its length.
func TestLister_UnchangedListAllocatesNothing(t *testing.T) {
	conn := &canned{answers: map[string]mem.BufferSlice{}}
	l, err := wirelist.New(wirelist.Config{Conn: conn})
	require.NoError(t, err)
	ctx := t.Context()
	count := func(pods int) float64 {
		boxes, containers := node(pods)
		conn.answers[listSandboxes], conn.answers[listContainers] = cut(encode(boxes), 16<<10), cut(encode(containers), 16<<10)
		return testing.AllocsPerRun(10, func() { // the first run, which decodes, does not count
			_, _ = l.ListPodSandbox(ctx, nil)
			_, _ = l.ListContainers(ctx, nil)
		})
	}
	none, many := count(0), count(200)
	require.InDelta(t, none, many, 0)
	require.Less(t, none, 20.0)
}
