//go:build unix

package wirelist_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/pleg/wirelist"
	"github.com/kubeparts/kubeparts/podcache"
)

// listBoth requests both lists of a relist, with one deadline for both.
func listBoth(b *testing.B, l lister) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	_, err := l.ListPodSandbox(ctx, nil)
	require.NoError(b, err)
	_, err = l.ListContainers(ctx, nil)
	require.NoError(b, err)
}

// BenchmarkRead reads both lists of an idle node with a sandbox and three containers
// per pod, in memory. Only the calls allocate. kubelet 1.36 with 500 pods: 9.4 to 12.3
// ms and 106 k to 141 k allocations, comparable to the sub-benchmark decode.
func BenchmarkRead(b *testing.B) {
	for _, pods := range []int{110, 500, 5000} {
		sandboxes, containers := variants(pods)
		read := func(orders int) func(b *testing.B) {
			return func(b *testing.B) {
				bed := newBed(b)
				b.SetBytes(int64(len(sandboxes[0]) + len(containers[0])))
				b.ReportAllocs()
				var answers [4]map[string]mem.BufferSlice
				for i := range answers {
					answers[i] = map[string]mem.BufferSlice{
						listSandboxes: cut(sandboxes[i], 16<<10), listContainers: cut(containers[i], 16<<10),
					}
				}
				show := func(i int) { bed.conn.answers = answers[i%orders] }
				show(0)
				listBoth(b, bed.l)
				defer reportCPU(b, cpuTime())
				for i := 0; b.Loop(); i++ {
					show(i)
					listBoth(b, bed.l)
				}
			}
		}
		b.Run(fmt.Sprintf("pods=%d/order=kept", pods), read(1))
		b.Run(fmt.Sprintf("pods=%d/order=random", pods), read(len(sandboxes)))
		b.Run(fmt.Sprintf("pods=%d/decode", pods), func(b *testing.B) {
			b.ReportAllocs()
			defer reportCPU(b, cpuTime())
			for b.Loop() {
				_ = proto.Unmarshal(sandboxes[0], &runtimeapi.ListPodSandboxResponse{})
				_ = proto.Unmarshal(containers[0], &runtimeapi.ListContainersResponse{})
			}
		})
	}
}

// ordinary lists as CRI clients do.
type ordinary struct {
	runtimeapi.RuntimeServiceClient
}

func (o ordinary) ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r, err := o.RuntimeServiceClient.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: f})
	return r.GetItems(), err
}

func (o ordinary) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r, err := o.RuntimeServiceClient.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: f})
	return r.GetContainers(), err
}

// BenchmarkIdleListsOverASocket reads both lists over a unix socket from another process,
// which lists in random order. The CPU time and the allocations, including those of gRPC, are
// measured in this process only. kubelet 1.36 with 500 pods: 12.3 ms and 141 k allocations
// for the decoding, which is a part of the sub-benchmarks ordinary. gRPC needs about 170
// allocations for two empty responses.
func BenchmarkIdleListsOverASocket(b *testing.B) {
	for _, pods := range []int{110, 500, 5000} {
		socket := startRuntime(b, pods)
		run := func(name string, l func(*grpc.ClientConn) lister, opts ...grpc.DialOption) {
			b.Run(fmt.Sprintf("pods=%d/%s", pods, name), func(b *testing.B) {
				lists := l(dial(b, socket, opts...))
				listBoth(b, lists)
				b.ReportAllocs()
				defer reportCPU(b, cpuTime())
				for b.Loop() {
					listBoth(b, lists)
				}
			})
		}
		fast := func(c *grpc.ClientConn) lister { return newLister(b, wirelist.Config{Conn: c}) }
		run("conn=default", fast)
		run("conn=tuned", fast, grpc.WithStaticStreamWindowSize(16<<20), grpc.WithStaticConnWindowSize(16<<20), grpc.WithDisableRetry())
		run("ordinary", func(c *grpc.ClientConn) lister { return ordinary{runtimeapi.NewRuntimeServiceClient(c)} },
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	}
}

// reportCPU reports the CPU time that this process has used since the given CPU time.
func reportCPU(b *testing.B, since time.Duration) {
	b.Helper()
	b.ReportMetric(float64(cpuTime()-since)/float64(b.N)/1e6, "cpu-ms/op")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIdleRelistOverASocket measures a relist of a generator on an idle node, over
// the same socket. kubelet 1.36, including the work of its runtime: 500 pods 33.5 to 37
// ms and 248 k allocations, 5,000 pods 320 ms and 2.49 M. Bounds here: 1.5 ms of CPU
// and 200 allocations with 500 pods, 15 ms with 5,000 pods.
func BenchmarkIdleRelistOverASocket(b *testing.B) {
	for _, pods := range []int{110, 500, 5000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			g := newGenerator(b, pods)
			b.ReportAllocs()
			defer reportCPU(b, cpuTime())
			for b.Loop() {
				_, _ = g.Relist(b.Context())
			}
		})
	}
}

// newGenerator returns a generator on a tuned connection to a runtime with idle pods.
// The generator has already listed all pods.
func newGenerator(tb testing.TB, pods int) *pleg.Generator {
	tb.Helper()
	conn := dial(tb, startRuntime(tb, pods),
		grpc.WithStaticStreamWindowSize(16<<20), grpc.WithStaticConnWindowSize(16<<20), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	runtime := inspected{ordinary{runtimeapi.NewRuntimeServiceClient(conn)}, map[string]runtimeapi.ContainerState{}}
	containers, err := runtime.ListContainers(tb.Context(), nil)
	require.NoError(tb, err)
	for _, c := range containers {
		runtime.states[c.GetId()] = c.GetState()
	}
	g, err := pleg.New(pleg.Config{
		Runtime: runtime, Cache: podcache.New(),
		Handler: func(context.Context, pleg.Event) {}, Lister: newLister(tb, wirelist.Config{Conn: conn}),
	})
	require.NoError(tb, err)
	for range 2 {
		res, err := g.Relist(tb.Context())
		require.NoError(tb, err)
		require.Equal(tb, pods, res.Pods)
	}
	return g
}

// inspected returns statuses without a call, because the generator requests each status
// only once.
type inspected struct {
	ordinary
	states map[string]runtimeapi.ContainerState // as listed
}

func (inspected) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Id: id}}, nil
}

func (i inspected) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: id, State: i.states[id]}}, nil
}
