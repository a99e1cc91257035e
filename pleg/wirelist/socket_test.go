package wirelist_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/pleg/wirelist"
)

func newLister(tb testing.TB, cfg wirelist.Config) *wirelist.Lister {
	tb.Helper()
	l, err := wirelist.New(cfg)
	require.NoError(tb, err)
	return l
}

// TestLister_RuntimeOnASocket lists a runtime with the Lister and with the
// ordinary client.
func TestLister_RuntimeOnASocket(t *testing.T) {
	t.Parallel()
	runtime, conn := serveNode(t)
	ctx := t.Context()
	l, ordinary := newLister(t, wirelist.Config{Conn: conn}), runtimeapi.NewRuntimeServiceClient(conn)

	var box string
	var err error
	for i, name := range []string{"a", "b", "c"} {
		pod := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
			Labels:   map[string]string{"io.kubernetes.pod.uid": name, "even": string("yn"[i%2])},
		}
		box, err = runtime.RunPodSandbox(ctx, pod, "")
		require.NoError(t, err)
		_, err = runtime.CreateContainer(ctx, box, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "demo/web:1"},
			Labels: pod.GetLabels(),
		}, pod)
		require.NoError(t, err)
	}
	check := func(selector map[string]string, want int) {
		t.Helper()
		boxes, err := l.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: selector})
		require.NoError(t, err)
		require.Len(t, boxes, want)
		all, err := ordinary.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
			Filter: &runtimeapi.PodSandboxFilter{LabelSelector: selector},
		})
		equal(t, all.GetItems(), boxes, err, nil)
		containers, err := l.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: selector})
		require.NoError(t, err)
		require.Len(t, containers, want)
		every, err := ordinary.ListContainers(ctx, &runtimeapi.ListContainersRequest{
			Filter: &runtimeapi.ContainerFilter{LabelSelector: selector},
		})
		equal(t, every.GetContainers(), containers, err, nil)
	}
	check(nil, 3)
	check(nil, 3)
	check(map[string]string{"even": "y"}, 2)
	require.NoError(t, runtime.StopPodSandbox(ctx, box))
	check(nil, 3)
	require.NoError(t, runtime.RemovePodSandbox(ctx, box))
	check(nil, 2)

	require.NoError(t, runtime.Fail("ListPodSandbox", fakecri.Fault{Err: grpcstatus.Error(codes.Unavailable, "busy")}))
	_, err = l.ListPodSandbox(ctx, nil)
	require.Equal(t, codes.Unavailable, grpcstatus.Code(err))
	containers, err := l.ListContainers(ctx, nil)
	require.NoError(t, err)
	require.Len(t, containers, 2)
}

// split encodes containers as the messages of a stream, each with the given
// number of containers.
func split(all *runtimeapi.ListContainersResponse, each int) (parts [][]byte) {
	for some := range slices.Chunk(all.GetContainers(), each) {
		parts = append(parts, encode(&runtimeapi.StreamContainersResponse{Containers: some}))
	}
	return parts
}

// large is a runtime whose list exceeds a message.
type large struct {
	all              *runtimeapi.ListContainersResponse
	single, streamed atomic.Int64 // numbers of calls
	filter           atomic.Pointer[runtimeapi.ContainerFilter]
	cut              atomic.Pointer[error] // the error that ends streams early
}

func (r *large) methods() map[string]handler {
	return map[string]handler{
		listContainers: func([]byte) ([][]byte, error) {
			r.single.Add(1)
			return [][]byte{encode(r.all)}, nil
		},
		streamContainers: func(request []byte) ([][]byte, error) {
			r.streamed.Add(1)
			var asked runtimeapi.StreamContainersRequest
			if err := proto.Unmarshal(request, &asked); err != nil {
				return nil, err
			}
			r.filter.Store(asked.GetFilter())
			parts := split(r.all, 7)
			if err := r.cut.Load(); err != nil {
				return parts[:len(parts)/2], *err
			}
			return parts, nil
		},
	}
}

func TestLister_LargeListIsStreamed(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]grpc.ServerOption{
		"not sent": {grpc.MaxSendMsgSize(30_000)},
		"not read": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &large{}
			_, r.all = node(20) // about 50 kB
			l := newLister(t, wirelist.Config{Conn: serve(t, r.methods(), opts...), MaxMessageBytes: 30_000})
			filter := &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"a": "b"}}
			list := func(single, streamed int64) []*runtimeapi.Container {
				t.Helper()
				got, err := l.ListContainers(t.Context(), filter)
				equal(t, r.all.GetContainers(), got, nil, err)
				require.Equal(t, single, r.single.Load(), "number of requests for one message")
				require.Equal(t, streamed, r.streamed.Load(), "number of requests for a stream")
				return got
			}
			first := list(1, 1)
			require.Same(t, &first[0], &list(1, 2)[0], "the list must not be decoded again, and not requested in one message")
			require.True(t, proto.Equal(filter, r.filter.Load()))

			_, r.all = node(3) // small again
			list(1, 3)
			list(2, 3)
		})
	}
}

func TestLister_BrokenStreamIsAnError(t *testing.T) {
	t.Parallel()
	r := &large{}
	_, r.all = node(20)
	l := newLister(t, wirelist.Config{Conn: serve(t, r.methods()), MaxMessageBytes: 30_000})
	first, err := l.ListContainers(t.Context(), nil)
	require.NoError(t, err)
	fails := func(code codes.Code) error {
		t.Helper()
		broken := grpcstatus.Error(code, "gone")
		r.cut.Store(&broken)
		got, err := l.ListContainers(t.Context(), nil)
		require.Nil(t, got)
		return err
	}
	require.Equal(t, codes.Internal, grpcstatus.Code(fails(codes.Internal)))
	require.Equal(t, codes.Unavailable, grpcstatus.Code(fails(codes.Unavailable)))
	require.EqualValues(t, 1, r.single.Load(), "a list that was too large must not be requested in one message again")
	for range 2 { // the runtime no longer streams lists
		require.ErrorIs(t, fails(codes.Unimplemented), wirelist.ErrTooLarge)
	}
	require.EqualValues(t, 3, r.single.Load(), "the list must be requested in one message each time")
	r.cut.Store(nil)
	again, err := l.ListContainers(t.Context(), nil)
	require.NoError(t, err)
	require.Same(t, &first[0], &again[0])
}

func TestLister_LargeListWithoutStreams(t *testing.T) {
	t.Parallel()
	boxes, _ := node(50)
	var small atomic.Bool
	l := newLister(t, wirelist.Config{MaxMessageBytes: 10_000, Conn: serve(t, map[string]handler{
		listSandboxes: func([]byte) ([][]byte, error) {
			if small.Load() {
				return [][]byte{encode(&runtimeapi.ListPodSandboxResponse{Items: boxes.GetItems()[:5]})}, nil
			}
			return [][]byte{encode(boxes)}, nil
		},
	})})
	for range 2 {
		got, err := l.ListPodSandbox(t.Context(), nil)
		require.Nil(t, got)
		require.ErrorIs(t, err, wirelist.ErrTooLarge)
		require.ErrorContains(t, err, "received message larger than max")
		require.Equal(t, codes.ResourceExhausted, grpcstatus.Code(err))
	}
	small.Store(true)
	got, err := l.ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, got, 5)
}

// The default limit is the limit of the kubelet and of containerd, not the
// default of gRPC.
func TestLister_DefaultLimitIs16MiB(t *testing.T) {
	t.Parallel()
	var size atomic.Int64
	l := newLister(t, wirelist.Config{Conn: serve(t, map[string]handler{
		listSandboxes: func([]byte) ([][]byte, error) {
			return [][]byte{text(2, string(make([]byte, size.Load()-5)))}, nil // a field that is not an item
		},
	}, grpc.MaxSendMsgSize(64<<20))})
	size.Store(16 << 20)
	_, err := l.ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	size.Store(16<<20 + 1)
	_, err = l.ListPodSandbox(t.Context(), nil)
	require.ErrorIs(t, err, wirelist.ErrTooLarge)
}

func TestLister_MalformedResponsesOnASocket(t *testing.T) {
	t.Parallel()
	l := newLister(t, wirelist.Config{Conn: serve(t, map[string]handler{
		listSandboxes: func([]byte) ([][]byte, error) { return [][]byte{{0x0a, 9}}, nil },
	})})
	_, err := l.ListPodSandbox(t.Context(), nil)
	require.Equal(t, codes.Internal, grpcstatus.Code(err), "the error must be gRPC's")
	require.ErrorContains(t, err, "failed to unmarshal the received message")
}

func TestLister_ListsEnd(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	stuck := func([]byte) ([][]byte, error) {
		<-hang
		return nil, nil
	}
	conn := serve(t, map[string]handler{
		listSandboxes: stuck, streamContainers: stuck,
		listContainers: func([]byte) ([][]byte, error) { return nil, grpcstatus.Error(codes.ResourceExhausted, "too large") },
	})
	t.Cleanup(func() { close(hang) }) // before the server stops
	l := newLister(t, wirelist.Config{Conn: conn, Timeout: 50 * time.Millisecond})
	_, err := l.ListPodSandbox(t.Context(), nil)
	require.Equal(t, codes.DeadlineExceeded, grpcstatus.Code(err))
	_, err = l.ListContainers(t.Context(), nil)
	require.Equal(t, codes.DeadlineExceeded, grpcstatus.Code(err))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = newLister(t, wirelist.Config{Conn: conn}).ListPodSandbox(ctx, nil)
	require.Equal(t, codes.Canceled, grpcstatus.Code(err))
}
