//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

const (
	idlePods = 100
	// idleLimit is what an idle agent may call in a minute, whatever it calls. The
	// kubelet, measured on this bed, makes 239 calls with no pod at all.
	idleLimit = 30
	// deathLimit is how soon it must show that the runtime is gone, however rare the
	// relists are.
	deathLimit = 2 * time.Second
	// idleSettle is as long as no list is asked for before the agent counts as idle.
	// Its relists are 30 s apart then, and the gap before was one of 16 s.
	idleSettle = 20 * time.Second
)

// Not parallel: the pods of other tests would be news for this agent's stream.
func TestAHundredIdlePodsCostFewCallsAndTheRuntimesEndShowsAtOnce(t *testing.T) {
	n, p := newNode(t), startProxy(t)
	n.start("--cri-endpoint", p.endpoint, "--eviction-hard", "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%")
	for i := range idlePods {
		n.write(fmt.Sprintf("p%02d.yaml", i), idlePod(fmt.Sprintf("p%02d", i), ""))
	}
	waitFor(t, 2*time.Minute, "all to run", func() (string, bool) {
		shown, err := n.agent.pods()
		up := 0
		for i := range shown {
			if running(&shown[i]) {
				up++
			}
		}
		return fmt.Sprint(up, err), up == idlePods
	})
	waitFor(t, 3*time.Minute, "the agent to come to rest", func() (string, bool) {
		return fmt.Sprint(p.counts()), p.quiet("List") > idleSettle
	})

	before := p.counts()
	rest := time.NewTimer(time.Minute)
	defer rest.Stop()
	<-rest.C
	calls, total := p.counts(), 0
	for method := range calls {
		calls[method] -= before[method]
		total += calls[method]
	}
	maps.DeleteFunc(calls, func(_ string, n int) bool { return n == 0 })
	t.Logf("%d idle pods: %d CRI calls in a minute: %v", idlePods, total, calls)
	figure(t, "idle-calls", float64(total), "calls", idleLimit)
	require.Positive(t, total, "nothing was counted")

	healthy := n.agent.health(func(code int, _ string) bool { return code == http.StatusOK })
	seen, ok := healthy()
	require.True(t, ok, seen)
	gone := time.Now()
	p.server.Stop()
	waitFor(t, deathLimit, "the agent to be unhealthy", n.agent.health(func(code int, _ string) bool {
		return code == http.StatusServiceUnavailable
	}))
	t.Logf("unhealthy %v after the end of its runtime", time.Since(gone).Round(10*time.Millisecond))
}

// proxy stands between an agent and a bed's runtime and counts calls.
type proxy struct {
	endpoint string
	server   *grpc.Server
	// meddle is called before a call is passed on, if not nil, and may fail it. What it
	// returns beside an error is called when the runtime has answered.
	meddle func(method string, request []byte) (answered func(), err error)

	mu    sync.Mutex
	calls map[string]int       // by method
	last  map[string]time.Time // by method
}

func startProxy(t *testing.T) *proxy {
	t.Helper()
	return startProxyTo(t, bed.endpoint, nil)
}

func startProxyTo(t *testing.T, endpoint string, meddle func(string, []byte) (func(), error)) *proxy {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "p.sock")
	p := &proxy{endpoint: "unix://" + socket, meddle: meddle, calls: map[string]int{}, last: map[string]time.Time{}}
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	const limit = 64 << 20
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(limit)))
	require.NoError(t, err)
	p.server = grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.MaxRecvMsgSize(limit),
		grpc.UnknownServiceHandler(func(_ any, agent grpc.ServerStream) error { return p.forward(agent, conn) }))
	served := make(chan error, 1)
	go func() { served <- p.server.Serve(listener) }()
	t.Cleanup(func() {
		p.server.Stop()
		require.NoError(t, <-served)
		require.NoError(t, conn.Close())
	})
	return p
}

// forward passes one request on and all of its answers back. CRI has no calls with
// more than one request.
func (p *proxy) forward(agent grpc.ServerStream, conn *grpc.ClientConn) error {
	path, _ := grpc.MethodFromServerStream(agent)
	method := path[strings.LastIndex(path, "/")+1:]
	p.mu.Lock()
	p.calls[method]++
	p.last[method] = time.Now()
	p.mu.Unlock()

	ctx, cancel := context.WithCancel(agent.Context())
	defer cancel()
	var message []byte
	if err := agent.RecvMsg(&message); err != nil {
		return err
	}
	answered := func() {}
	if p.meddle != nil {
		var err error
		if answered, err = p.meddle(method, message); err != nil {
			return err
		}
	}
	runtime, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
	if err != nil {
		return err
	}
	if err := errors.Join(runtime.SendMsg(&message), runtime.CloseSend()); err != nil {
		return err
	}
	for {
		switch err := runtime.RecvMsg(&message); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		answered()
		if err := agent.SendMsg(&message); err != nil {
			return err
		}
	}
}

func (p *proxy) counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.calls)
}

// quiet returns for how long no method with the given prefix was called.
func (p *proxy) quiet(prefix string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var newest time.Time
	for method, at := range p.last {
		if strings.HasPrefix(method, prefix) && at.After(newest) {
			newest = at
		}
	}
	return time.Since(newest)
}

// rawCodec leaves messages as they are.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is no message", v)
	}
	*b = data.Materialize()
	return nil
}
