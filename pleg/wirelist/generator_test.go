package wirelist_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/pleg/wirelist"
	"github.com/kubeparts/kubeparts/podcache"
)

// A generator accepts a Lister without an adapter.
var _ pleg.Lister = (*wirelist.Lister)(nil)

// narrow is a connection with a message limit. A list of thirty pods exceeds it, and needs a
// stream.
type narrow struct{ *grpc.ClientConn }

func (n narrow) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return n.ClientConn.Invoke(ctx, method, args, reply, append(slices.Clip(opts), grpc.MaxCallRecvMsgSize(4000))...)
}

// streamless is a narrow connection to a runtime without streamed lists.
type streamless struct{ narrow }

func (streamless) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, grpcstatus.Error(codes.Unimplemented, "unknown method")
}

// The lists of a node become too large for one message. If the runtime streams lists, a
// generator finds all changes. Otherwise it finds the changes of requested pods. In the
// kubelet each relist fails from then on.
func TestGenerator_ListOutgrowsOneMessage(t *testing.T) {
	t.Parallel()
	for name, streams := range map[string]bool{"streamed": true, "degraded": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, conn := serveNode(t)
			var through grpc.ClientConnInterface = narrow{conn}
			if !streams {
				through = streamless{narrow{conn}}
			}
			var told []pleg.Event
			g, err := pleg.New(pleg.Config{
				Runtime: node, Cache: podcache.New(),
				Lister:  newLister(t, wirelist.Config{Conn: through}),
				Handler: func(_ context.Context, e pleg.Event) { told = append(told, e) },
			})
			require.NoError(t, err)
			first := runPod(t, node, 0)
			_, err = g.Relist(t.Context())
			require.NoError(t, err)
			require.Len(t, told, 1)
			for i := range 30 {
				runPod(t, node, i+1)
			}
			require.NoError(t, node.StopPodSandbox(t.Context(), first))
			told = nil
			res, err := g.Relist(t.Context())
			if streams {
				require.NoError(t, err)
				require.Equal(t, 31, res.Pods)
				require.Len(t, told, 31)
				return
			}
			require.ErrorIs(t, err, pleg.ErrTooLarge)
			require.ErrorIs(t, err, wirelist.ErrTooLarge)
			require.Empty(t, told)
			require.NoError(t, g.RelistPod(t.Context(), "uid-0"))
			require.Equal(t, []pleg.Event{{PodUID: "uid-0", Type: pleg.ContainerDied, ContainerID: first}}, told)
		})
	}
}

// The generator finds the same changes of a node with either lister.
func TestGenerator_SameResultsWithEitherLister(t *testing.T) {
	t.Parallel()
	node, conn := serveNode(t)
	var told [2][]pleg.Event
	var generators []*pleg.Generator
	for i, lister := range []pleg.Lister{nil, newLister(t, wirelist.Config{Conn: conn})} {
		g, err := pleg.New(pleg.Config{
			Runtime: node, Lister: lister, Cache: podcache.New(),
			Handler: func(_ context.Context, e pleg.Event) { told[i] = append(told[i], e) },
		})
		require.NoError(t, err)
		generators = append(generators, g)
	}
	var boxes []string
	for i := range 20 {
		switch {
		case i%4 == 3:
			require.NoError(t, node.StopPodSandbox(t.Context(), boxes[i/2]))
		case i%5 == 4:
			require.NoError(t, node.RemovePodSandbox(t.Context(), boxes[0]))
			boxes = boxes[1:]
		}
		boxes = append(boxes, runPod(t, node, i))
		var results []pleg.Result
		for _, g := range generators {
			res, err := g.Relist(t.Context())
			require.NoError(t, err)
			res.At, res.Took = time.Time{}, 0
			results = append(results, res)
		}
		require.Equal(t, results[0], results[1])
		for j := range told {
			slices.SortFunc(told[j], func(a, b pleg.Event) int {
				return cmp.Or(cmp.Compare(a.ContainerID, b.ContainerID), cmp.Compare(a.Type, b.Type))
			})
		}
		require.Equal(t, told[0], told[1])
	}
}

func runPod(t *testing.T, node *fakecri.Node, i int) (sandbox string) {
	t.Helper()
	uid := fmt.Sprintf("uid-%d", i)
	id, err := node.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "default", Uid: uid},
		Labels:   map[string]string{"io.kubernetes.pod.uid": uid},
	}, "")
	require.NoError(t, err)
	return id
}

// serveNode serves an empty node on a unix socket until the test ends.
func serveNode(t *testing.T) (*fakecri.Node, *grpc.ClientConn) {
	t.Helper()
	node, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms()})
	require.NoError(t, err)
	socket := filepath.Join(t.TempDir(), "cri.sock")
	lis, err := net.Listen("unix", socket)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- node.Serve(ctx, lis) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
	})
	return node, dial(t, socket)
}
