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
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
	// idleLimit is the maximum number of calls of all methods that an idle agent may make
	// in a minute. The kubelet, measured on this bed, makes 239 calls with no pod at all.
	idleLimit = 30
	// idleCPU and idleMemory are the maximum CPU time of an idle agent in a minute, in seconds,
	// and its maximum memory, in MiB. On an idle machine the agent needs 0.3 s.
	idleCPU, idleMemory = 0.6, 40
	// deathLimit is the time within which the agent must report that the runtime is down, for
	// any period of relists.
	deathLimit = 2 * time.Second
	// idleSettle is the time without a list call after which the agent counts as idle. The
	// period of its relists is then 30 s; it is 1 s while the state of any pod is uncertain.
	idleSettle = 5 * time.Second
)

// TestIdleAgent_StaysWithinLimitsWithHundredPods measures an idle agent with a hundred pods, a restart after
// SIGKILL, and the removal of the pods. Not parallel: it measures, and pods of other tests
// would appear in this agent's event stream.
func TestIdleAgent_StaysWithinLimitsWithHundredPods(t *testing.T) {
	needs(t, containerEvents) // without events, the agent relists every second
	n, p := newNode(t), startProxy(t)
	flags := []string{"--cri-endpoint", p.endpoint, "--eviction-hard", "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%"}
	n.start(flags...)
	for i := range idlePods {
		n.write(fmt.Sprintf("p%02d.yaml", i), idlePod(fmt.Sprintf("p%02d", i), ""))
	}
	waitFor(t, 2*time.Minute, "all pods to run", n.allRun(idlePods))
	waitFor(t, 3*time.Minute, "the agent to be idle", func() (string, bool) {
		return fmt.Sprint(p.counts()), p.quiet("List") > idleSettle
	})
	n.requireIdle(p)

	n.agent.kill(t)
	began, adopting := time.Now(), stalls(t)
	n.start(flags...)
	waitFor(t, time.Minute, "all pods to be reported Running again", n.allRun(idlePods))
	figure(t, "adopt-hundred", (time.Since(began) - adopting()).Seconds(), "s", 5) // 1 on an idle machine

	began = time.Now()
	for i := range idlePods {
		n.remove(fmt.Sprintf("p%02d.yaml", i))
	}
	waitFor(t, 2*time.Minute, "all pods to be removed", func() (string, bool) {
		shown, err := n.agent.pods()
		boxes, boxErr := bed.sandboxes(map[string]string{labelAgent: n.name})
		return fmt.Sprint(len(shown), len(boxes), err, boxErr), errors.Join(err, boxErr) == nil && len(shown)+len(boxes) == 0
	})
	// The runtime needs nearly all of this time. TestManyPods_StopTimeIsBoundedByRuntimeTime compares
	// it with the runtime's own calls.
	figure(t, "hundred-gone", time.Since(began).Seconds(), "s", 0)

	healthy := n.agent.health(func(code int, _ string) bool { return code == http.StatusOK })
	waitFor(t, 10*time.Second, "the agent to be healthy", healthy)
	gone, stalled := time.Now(), stalls(t)
	p.server.Stop()
	waitFor(t, startTimeout, "the agent to be unhealthy", n.agent.health(func(code int, _ string) bool {
		return code == http.StatusInternalServerError
	}))
	t.Logf("unhealthy %v after the runtime was stopped", time.Since(gone).Round(10*time.Millisecond))
	require.Less(t, time.Since(gone)-stalled(), deathLimit)
}

// allRun returns a condition that the agent reports this number of running pods.
func (n *node) allRun(pods int) condition {
	return func() (string, bool) {
		shown, err := n.agent.pods()
		up := 0
		for i := range shown {
			if running(&shown[i]) {
				up++
			}
		}
		return fmt.Sprint(up, err), up == pods
	}
}

// requireIdle requires that an agent without changes costs little. A delay by other processes
// can only increase the cost, so it measures up to three minutes, until one is within the limits.
func (n *node) requireIdle(p *proxy) {
	t := n.t
	t.Helper()
	calls, cpu, rss := n.idleMinute(p)
	for range 2 {
		if calls <= idleLimit && cpu <= idleCPU && rss <= idleMemory {
			break
		}
		calls, cpu, rss = n.idleMinute(p)
	}
	figure(t, "idle-calls", calls, "calls", idleLimit)
	require.Positive(t, calls, "the proxy counted no calls")
	figure(t, "idle-cpu", cpu, "s", idleCPU)
	figure(t, "idle-rss", rss, "MiB", idleMemory)
	_, metrics, err := n.agent.get("/metrics")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^go_goroutines (\d+)$`).FindStringSubmatch(metrics)
	require.NotNil(t, found, metrics)
	goroutines, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	figure(t, "idle-goroutines", float64(goroutines), "goroutines", 60)
}

// idleMinute returns the CRI calls and the CPU time in seconds of an agent in a minute, and its
// memory in MiB at the end.
func (n *node) idleMinute(p *proxy) (total, cpu, rss float64) {
	t := n.t
	t.Helper()
	before, cpuBefore := p.counts(), n.agent.cpu(t)
	rest := time.NewTimer(time.Minute)
	defer rest.Stop()
	<-rest.C
	calls := p.counts()
	cpu, rss = (n.agent.cpu(t) - cpuBefore).Seconds(), n.agent.rss(t)
	for method := range calls {
		calls[method] -= before[method]
		total += float64(calls[method])
	}
	maps.DeleteFunc(calls, func(_ string, n int) bool { return n == 0 })
	t.Logf("%d idle pods: %.2f s of CPU and %v CRI calls per minute: %v; %.1f MiB", idlePods, cpu, total, calls, rss)
	return total, cpu, rss
}

// rss returns the memory of the process in MiB.
func (a *agent) rss(t *testing.T) float64 {
	t.Helper()
	return float64(statOf(t, a.cmd.Process.Pid).ResidentMemory()) / (1 << 20)
}

// TestProgram_StaysWithinSizeAndStartLimits builds the agent as its users do, and measures the size
// of the binary and the time until the agent is ready.
func TestProgram_StaysWithinSizeAndStartLimits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent")
	// Without -trimpath, which would compile all dependencies again.
	build := exec.Command("go", "build", "-tags", "grpcnotrace", "-ldflags=-s -w", "-o", file, "./examples/minimal-agent")
	build.Dir = repository
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	info, err := os.Stat(file)
	require.NoError(t, err)
	figure(t, "binary", float64(info.Size())/1e6, "MB", 35)

	var took []time.Duration
	for range 5 {
		n := newNode(t)
		addr := freeAddr(t)
		began := time.Now()
		n.agent, err = startAgent(addr, n.output, n.flags(addr)...)
		require.NoError(t, err)
		ready := "nothing"
		for deadline := began.Add(10 * time.Second); ready != "" && time.Now().Before(deadline); {
			code, body, err := n.agent.get("/readyz")
			if ready = fmt.Sprint(code, body, err); code == http.StatusOK {
				ready = ""
			}
		}
		require.Empty(t, ready)
		took = append(took, time.Since(began))
		n.agent.stop(t)
	}
	slices.Sort(took)
	figure(t, "ready", took[len(took)/2].Seconds(), "s", 1) // 0.15 on an idle machine
}

// proxy is a CRI proxy between an agent and the runtime of a bed. It counts calls.
type proxy struct {
	endpoint string
	server   *grpc.Server
	// meddle, if not nil, is called before each forwarded call and may make it fail. If it
	// returns a function, the proxy calls the function when the runtime has responded.
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

// forward forwards one request and all of its responses. CRI has no calls with more than one
// request.
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

// quiet returns the time since the last call of a method with the prefix.
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

// rawCodec passes messages unchanged.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

// Name returns an empty name. With a name, CRI-O rejects the content type of the calls.
func (rawCodec) Name() string { return "" }

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
