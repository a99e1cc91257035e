package fakecri_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// wire is a network in memory, for probes in a bubble.
type wire struct {
	mu   sync.Mutex
	open map[string]*bufconn.Listener
}

// line is a listener that is removed from the wire when it is closed.
type line struct {
	*bufconn.Listener
	w    *wire
	addr string
}

func (l line) Close() error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.w.open[l.addr] == l.Listener {
		delete(l.w.open, l.addr)
	}
	return l.Listener.Close()
}

func (w *wire) listen(_, address string) (net.Listener, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[string]*bufconn.Listener{}
	}
	if w.open[address] != nil {
		return nil, fmt.Errorf("listen tcp %s: bind: address already in use", address)
	}
	lis := bufconn.Listen(1 << 16)
	w.open[address] = lis
	return line{lis, w, address}, nil
}

func (w *wire) dial(ctx context.Context, _, address string) (net.Conn, error) {
	w.mu.Lock()
	lis := w.open[address]
	w.mu.Unlock()
	if lis == nil {
		return nil, errors.New("connection refused")
	}
	return lis.DialContext(ctx)
}

// get returns the status code of an HTTP GET, or 0 without a response.
func (w *wire) get(t *testing.T, url string) int {
	t.Helper()
	transport := &http.Transport{DialContext: w.dial, DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0
	}
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// accepts reports whether connections to an address are accepted.
func (w *wire) accepts(t *testing.T, address string) bool {
	t.Helper()
	conn, err := w.dial(t.Context(), "tcp", address)
	if err != nil {
		return false
	}
	require.NoError(t, conn.Close())
	return true
}

// listening is a node in a bubble whose demo/web:1 has the given program.
func listening(t *testing.T, p fakecri.Program) (*bed, *wire) {
	t.Helper()
	w := &wire{}
	b := newBed(t, func(c *fakecri.Config) {
		c.Clock, c.Listen = nil, w.listen
		c.Programs["demo/web:1"] = p
	})
	t.Cleanup(b.Shutdown)
	return b, w
}

func (b *bed) ip(sandbox string) string { return b.sandbox(sandbox).GetNetwork().GetIp() }

func TestHTTPPort_AnswersByHealthAndPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := listening(t, fakecri.Program{
			HealthyAfter: 5 * time.Second, Runtime: 20 * time.Second,
			Ports: []fakecri.Port{{Number: 8080, Paths: map[string]int{"/moved": 302, "/bad": 500}}, {Number: 8081}},
		})
		sandbox, id := b.start("a", "demo/web:1")
		require.Equal(t, "127.88.0.2", b.ip(sandbox))
		const base = "http://127.88.0.2:8080"
		require.Equal(t, 503, w.get(t, base+"/healthz"))
		require.Equal(t, 302, w.get(t, base+"/moved"))
		require.Equal(t, 500, w.get(t, base+"/bad"))
		time.Sleep(5 * time.Second)
		require.Equal(t, 200, w.get(t, base+"/healthz"))
		require.Equal(t, 200, w.get(t, "http://127.88.0.2:8081/"))
		require.NoError(t, b.SetHealthy("default/a/app", false))
		require.Equal(t, 503, w.get(t, base+"/healthz"))
		require.NoError(t, b.SetHealthy(id, true))
		require.Equal(t, 200, w.get(t, base+"/healthz"))

		// The program exits on time although the test makes no call to the node.
		time.Sleep(15 * time.Second)
		synctest.Wait()
		require.Zero(t, w.get(t, base+"/healthz"))
		b.requireEnded(id, 0, "Completed", 20*time.Second)
		require.ErrorContains(t, b.SetHealthy(id, true), "CONTAINER_EXITED state")
		require.ErrorContains(t, b.SetHealthy("nobody", true), `no container "nobody"`)
	})
}

func TestGRPCPort_AnswersHealthChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := listening(t, fakecri.Program{HealthyAfter: time.Second, Ports: []fakecri.Port{{Number: 9090, Protocol: fakecri.GRPC}}})
		b.start("a", "demo/web:1")
		conn := dial(t, "passthrough:///127.88.0.2:9090", grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return w.dial(ctx, "tcp", address)
		}))
		client := healthpb.NewHealthClient(conn)
		check := func() healthpb.HealthCheckResponse_ServingStatus {
			resp, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "any"})
			require.NoError(t, err)
			return resp.GetStatus()
		}
		require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, check())
		time.Sleep(time.Second)
		require.Equal(t, healthpb.HealthCheckResponse_SERVING, check())
		require.NoError(t, b.Kill("default/a/app", 1))
		_, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{})
		requireCode(t, codes.Unavailable, err)
		require.NoError(t, conn.Close())
	})
}

func TestTCPPort_IsOpenWhileTheProgramIsHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := listening(t, fakecri.Program{HealthyAfter: 5 * time.Second, Ports: []fakecri.Port{{Number: 5432, Protocol: fakecri.TCP}}})
		b.start("a", "demo/web:1")
		const address = "127.88.0.2:5432"
		require.False(t, w.accepts(t, address))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.True(t, w.accepts(t, address))
		require.NoError(t, b.SetHealthy("default/a/app", false))
		require.False(t, w.accepts(t, address))

		taken, err := w.listen("tcp", address)
		require.NoError(t, err)
		require.ErrorContains(t, b.SetHealthy("default/a/app", true), "address already in use")
		require.NoError(t, taken.Close())
		require.NoError(t, b.SetHealthy("default/a/app", true))
		require.True(t, w.accepts(t, address))
	})
}

func TestPorts_OccupiedTCPPortStaysClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := listening(t, fakecri.Program{HealthyAfter: time.Second, Ports: []fakecri.Port{{Number: 1, Protocol: fakecri.TCP}}})
		_, id := b.start("a", "demo/web:1")
		taken, err := w.listen("tcp", "127.88.0.2:1")
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		require.Equal(t, running, b.status(id).GetState())
		require.NoError(t, taken.Close())
	})
}

func TestPorts_CloseWithTheContainer(t *testing.T) {
	for name, end := range map[string]func(b *bed, sandbox, id string) error{
		"stopped":        func(b *bed, _, id string) error { return b.StopContainer(b.t.Context(), id, 10) },
		"removed":        func(b *bed, _, id string) error { return b.RemoveContainer(b.t.Context(), id) },
		"pod stopped":    func(b *bed, sandbox, _ string) error { return b.StopPodSandbox(b.t.Context(), sandbox) },
		"killed":         func(b *bed, _, id string) error { return b.Kill(id, 1) },
		"shim killed":    func(b *bed, sandbox, _ string) error { return b.KillSandbox(sandbox) },
		"vanished":       func(b *bed, _, id string) error { return b.RemoveSilently(id) },
		"node rebooted":  func(b *bed, _, _ string) error { b.Reboot(time.Second); return nil },
		"node shut down": func(b *bed, _, _ string) error { b.Shutdown(); b.Shutdown(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, w := listening(t, fakecri.Program{Ports: []fakecri.Port{{Number: 80}, {Number: 81, Protocol: fakecri.GRPC}, {Number: 82, Protocol: fakecri.TCP}}})
				sandbox, id := b.start("a", "demo/web:1")
				for _, port := range []string{"80", "81", "82"} {
					require.True(t, w.accepts(t, "127.88.0.2:"+port))
				}
				require.NoError(t, end(b, sandbox, id))
				synctest.Wait()
				require.Empty(t, w.open)
			})
		})
	}
}

func TestPorts_StayOpenWhileTheRuntimeIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := listening(t, fakecri.Program{Runtime: 10 * time.Second, Ports: []fakecri.Port{{Number: 80}}})
		b.start("a", "demo/web:1")
		b.Restart(time.Minute)
		require.Equal(t, 200, w.get(t, "http://127.88.0.2:80/"))
		time.Sleep(11 * time.Second)
		synctest.Wait()
		require.Zero(t, w.get(t, "http://127.88.0.2:80/"))
	})
}

func TestPorts_OccupiedPortFailsTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := listening(t, fakecri.Program{Ports: []fakecri.Port{{Number: 80}, {Number: 81}}})
		sandbox := b.pod("a")
		taken, err := w.listen("tcp", "127.88.0.2:81")
		require.NoError(t, err)
		id := b.make(sandbox, "a", "app", "demo/web:1")
		requireCode(t, codes.Unknown, b.StartContainer(t.Context(), id), "address already in use")
		require.Equal(t, "StartError", b.status(id).GetReason())
		require.False(t, w.accepts(t, "127.88.0.2:80")) // the other port of the program is closed
		require.NoError(t, taken.Close())
	})
}

func TestShutdown_NewContainersOpenNoPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := listening(t, fakecri.Program{Ports: []fakecri.Port{{Number: 80}}})
		b.Shutdown()
		_, id := b.start("a", "demo/web:1")
		require.Equal(t, running, b.status(id).GetState())
		require.Empty(t, w.open)
	})
}

func TestHostNetwork_PodListensOnLoopback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := listening(t, fakecri.Program{Ports: []fakecri.Port{{Number: 80}}})
		config := podConfig("a", 0)
		config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}}
		sandbox, err := b.RunPodSandbox(t.Context(), config, "")
		require.NoError(t, err)
		id, err := b.CreateContainer(t.Context(), sandbox, containerConfig("app", "demo/web:1", 0), config)
		require.NoError(t, err)
		require.NoError(t, b.StartContainer(t.Context(), id))
		require.Equal(t, 200, w.get(t, "http://127.0.0.1:80/"))
	})
}

func TestPodNetwork(t *testing.T) {
	b := newBed(t, func(c *fakecri.Config) { c.PodNetwork = netip.MustParsePrefix("192.168.7.248/30") })
	one := b.pod("a")
	require.Equal(t, "192.168.7.250", b.ip(one))
	_, err := b.RunPodSandbox(t.Context(), podConfig("b", 0), "")
	requireCode(t, codes.Unknown, err, "no IP addresses available in range set: 192.168.7.248/30")
	require.NoError(t, b.RemovePodSandbox(t.Context(), one))
	require.Equal(t, "192.168.7.250", b.ip(b.pod("c")))

	for _, bad := range []string{"10.0.0.0/31", "10.0.0.1/24", "fd00::/64"} {
		_, err := fakecri.New(fakecri.Config{PodNetwork: netip.MustParsePrefix(bad)})
		require.ErrorContains(t, err, "field PodNetwork: "+bad)
	}
}

// TestPorts_OpenConnectionsCloseWithTheProgram sends requests on connections that were
// opened before the container ended.
func TestPorts_OpenConnectionsCloseWithTheProgram(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			b, w := listening(t, fakecri.Program{Ports: []fakecri.Port{{Number: 80, Paths: map[string]int{"/fixed": 204}}}})
			_, id := b.start("a", "demo/web:1")
			transport := &http.Transport{DialContext: w.dial}
			defer transport.CloseIdleConnections()
			ask := func() error {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.88.0.2:80/fixed", http.NoBody)
				require.NoError(t, err)
				resp, err := transport.RoundTrip(req)
				if err != nil {
					return err
				}
				require.Equal(t, 204, resp.StatusCode)
				return resp.Body.Close()
			}
			require.NoError(t, ask())
			require.NoError(t, b.Kill(id, 1))
			require.Error(t, ask())
		})
	}
}
