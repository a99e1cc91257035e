package wirelist_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/pleg/wirelist"
)

// canned is a connection that responds to each method with fixed bytes.
type canned struct {
	answers map[string]mem.BufferSlice
}

// cut splits a response into buffers of a size, as a connection does.
func cut(answer []byte, size int) (buffers mem.BufferSlice) {
	for part := range slices.Chunk(answer, size) {
		buffers = append(buffers, mem.SliceBuffer(part))
	}
	return buffers
}

// codecOf returns the codec in the call options, as gRPC determines it.
func codecOf(opts []grpc.CallOption) encoding.CodecV2 {
	for _, o := range opts {
		if forced, ok := o.(grpc.ForceCodecV2CallOption); ok {
			return forced.CodecV2
		}
	}
	return encoding.GetCodecV2("proto")
}

func (c *canned) Invoke(_ context.Context, method string, _, reply any, opts ...grpc.CallOption) error {
	return codecOf(opts).Unmarshal(c.answers[method], reply)
}

func (*canned) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("no streams here")
}

// bed passes responses to a lister and compares each result with the result of the ordinary
// decoder.
type bed struct {
	tb   testing.TB
	conn *canned
	l    *wirelist.Lister
	size int // size of the buffers of responses
}

func newBed(tb testing.TB) *bed {
	tb.Helper()
	conn := &canned{answers: map[string]mem.BufferSlice{}}
	l, err := wirelist.New(wirelist.Config{Conn: conn})
	require.NoError(tb, err)
	return &bed{tb: tb, conn: conn, l: l, size: 100}
}

// sandboxes returns the sandboxes of a response, or nil if the response is malformed.
func (b *bed) sandboxes(answer []byte) []*runtimeapi.PodSandbox {
	b.tb.Helper()
	var want runtimeapi.ListPodSandboxResponse
	wantErr := proto.Unmarshal(answer, &want)
	b.conn.answers[listSandboxes] = cut(answer, b.size)
	got, err := b.l.ListPodSandbox(b.tb.Context(), nil)
	return equal(b.tb, want.GetItems(), got, wantErr, err)
}

// containers is like sandboxes, but for containers.
func (b *bed) containers(answer []byte) []*runtimeapi.Container {
	b.tb.Helper()
	var want runtimeapi.ListContainersResponse
	wantErr := proto.Unmarshal(answer, &want)
	b.conn.answers[listContainers] = cut(answer, b.size)
	got, err := b.l.ListContainers(b.tb.Context(), nil)
	return equal(b.tb, want.GetContainers(), got, wantErr, err)
}

func equal[M proto.Message](tb testing.TB, want, got []M, wantErr, err error) []M {
	tb.Helper()
	if wantErr != nil {
		require.Error(tb, err, "the ordinary decoder returned the error %v", wantErr)
		require.Nil(tb, got)
		return nil
	}
	require.NoError(tb, err)
	require.Len(tb, got, len(want))
	want, items := inOrder(want), inOrder(got)
	for i := range want {
		if !proto.Equal(want[i], items[i]) {
			require.Equal(tb, prototext.Format(want[i]), prototext.Format(items[i]))
			require.Fail(tb, "items differ", "at %d", i)
		}
	}
	if got == nil {
		return []M{}
	}
	return got
}

// inOrder returns a sorted copy, because a list may have the order of an earlier list.
func inOrder[M proto.Message](list []M) []M {
	byText := map[string][]M{}
	for _, m := range list {
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			panic(err)
		}
		byText[string(text)] = append(byText[string(text)], m)
	}
	ordered := make([]M, 0, len(list))
	for _, text := range slices.Sorted(maps.Keys(byText)) {
		ordered = append(ordered, byText[text]...)
	}
	return ordered
}

// field and the following functions encode parts of messages.
func field(num protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), join(parts...))
}

func text(num protowire.Number, s string) []byte { return field(num, []byte(s)) }

func number(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func group(num protowire.Number, parts ...[]byte) []byte {
	b := append(protowire.AppendTag(nil, num, protowire.StartGroupType), join(parts...)...)
	return protowire.AppendTag(b, num, protowire.EndGroupType)
}

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

// Full method names, as a runtime sees them.
const (
	listSandboxes    = "/runtime.v1.RuntimeService/ListPodSandbox"
	listContainers   = "/runtime.v1.RuntimeService/ListContainers"
	streamSandboxes  = "/runtime.v1.RuntimeService/StreamPodSandboxes"
	streamContainers = "/runtime.v1.RuntimeService/StreamContainers"
)

// node returns the lists of a node with pods like those of a kubelet. Each pod has a sandbox
// and three containers, of which one has exited.
func node(pods int) (*runtimeapi.ListPodSandboxResponse, *runtimeapi.ListContainersResponse) {
	var boxes runtimeapi.ListPodSandboxResponse
	var containers runtimeapi.ListContainersResponse
	rnd := rand.New(rand.NewPCG(1, uint64(pods)))
	hex := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "0123456789abcdef"[rnd.IntN(16)]
		}
		return string(b)
	}
	for p := range pods {
		uid := hex(8) + "-" + hex(4) + "-" + hex(4) + "-" + hex(4) + "-" + hex(12)
		name := fmt.Sprintf("checkout-frontend-%s-%05d", hex(10), p)
		box := &runtimeapi.PodSandbox{
			Id:        hex(64),
			Metadata:  &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "production", Uid: uid},
			CreatedAt: 1_760_000_000_000_000_000 + int64(p),
			Labels: map[string]string{
				"app": "checkout", "io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "production",
				"io.kubernetes.pod.uid": uid, "pod-template-hash": hex(10), "tier": "frontend",
			},
			Annotations: map[string]string{
				"kubernetes.io/config.seen": "2026-01-01T00:00:00.000000000Z", "kubernetes.io/config.source": "api",
			},
			RuntimeHandler: "runc",
		}
		boxes.Items = append(boxes.Items, box)
		for i, state := range []runtimeapi.ContainerState{
			runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_RUNNING,
			runtimeapi.ContainerState_CONTAINER_EXITED,
		} {
			containers.Containers = append(containers.Containers, &runtimeapi.Container{
				Id: hex(64), PodSandboxId: box.GetId(), State: state, CreatedAt: box.GetCreatedAt() + int64(i),
				Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprintf("container-%d", i)},
				Image:    &runtimeapi.ImageSpec{Image: "sha256:" + hex(64), UserSpecifiedImage: "registry.example/checkout:1.2.3"},
				ImageRef: "sha256:" + hex(64),
				Labels: map[string]string{
					"io.kubernetes.container.name": fmt.Sprintf("container-%d", i), "io.kubernetes.pod.name": name,
					"io.kubernetes.pod.namespace": "production", "io.kubernetes.pod.uid": uid,
				},
				Annotations: map[string]string{
					"io.kubernetes.container.hash": hex(8), "io.kubernetes.container.restartCount": "0",
					"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
					"io.kubernetes.container.terminationMessagePolicy": "File",
					"io.kubernetes.pod.terminationGracePeriod":         "30",
				},
				ImageId: "sha256:" + hex(64),
			})
		}
	}
	return &boxes, &containers
}

// encode encodes a message, with its maps in random order.
func encode(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// variants returns the lists of a node four times, with the items and their labels in
// different orders, like a runtime that has both in maps.
func variants(pods int) (sandboxes, containers [4][]byte) {
	rnd := rand.New(rand.NewPCG(2, 2))
	b, c := node(pods)
	for i := range sandboxes {
		sandboxes[i], containers[i] = encode(b), encode(c)
		rnd.Shuffle(len(b.Items), func(i, j int) { b.Items[i], b.Items[j] = b.Items[j], b.Items[i] })
		rnd.Shuffle(len(c.Containers), func(i, j int) { c.Containers[i], c.Containers[j] = c.Containers[j], c.Containers[i] })
	}
	return sandboxes, containers
}
