package fakecri

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// services are the listening ports of the node's containers.
type services struct {
	open  map[*container]map[uint16]net.Listener
	kept  bool // keep runs
	ended bool // by Shutdown
	wg    sync.WaitGroup
}

// Shutdown closes all that the node's programs listen on and returns when
// nothing of it runs any more; programs that are started later listen on
// nothing. All else goes on. It is needed only with Config.Listen, and may be
// called again.
func (n *Node) Shutdown() {
	n.mu.Lock()
	n.services.ended = true
	for c := range n.services.open {
		n.hangUp(c)
	}
	n.broadcast()
	n.mu.Unlock()
	n.services.wg.Wait()
}

// hostAddress is the address of programs in pods on the host's network.
const hostAddress = "127.0.0.1"

// serveProgram opens the ports of a program that starts, or none of them.
func (n *Node) serveProgram(ctx context.Context, c *container) error {
	if n.cfg.Listen == nil || n.services.ended || len(c.program.Ports) == 0 {
		return nil
	}
	if n.services.open == nil {
		n.services.open = map[*container]map[uint16]net.Listener{}
	}
	n.services.open[c] = map[uint16]net.Listener{}
	for _, p := range c.program.Ports {
		if p.Protocol == TCP && c.program.HealthyAfter > 0 {
			continue
		}
		if err := n.open(c, p); err != nil {
			n.hangUp(c)
			return err
		}
	}
	if !n.services.kept {
		n.services.kept = true
		n.services.wg.Go(func() { n.keep(context.WithoutCancel(ctx)) })
	}
	return nil
}

// keep lets what is due happen on time for as long as programs listen: who
// probes them does not look at the node. It takes the lock, and closes what
// ended in a way that closed nothing, such as a reboot.
func (n *Node) keep(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	quiet := func() bool {
		for c := range n.services.open {
			if c.state == runtimeapi.ContainerState_CONTAINER_EXITED {
				n.hangUp(c)
			}
		}
		return len(n.services.open) == 0
	}
	for {
		// It fails when the runtime restarts, which is nothing to programs.
		if err := n.await(ctx, quiet); err == nil {
			n.services.kept = false
			return
		}
	}
}

// hangUp closes the ports of a container.
func (n *Node) hangUp(c *container) {
	for _, lis := range n.services.open[c] {
		_ = lis.Close() // it is gone, whatever this says
	}
	delete(n.services.open, c)
}

// tuneTCP opens or closes the TCP ports of a container, as its health says.
func (n *Node) tuneTCP(c *container) error {
	ports, ok := n.services.open[c]
	if !ok {
		return nil
	}
	for _, p := range c.program.Ports {
		lis, open := ports[p.Number]
		switch healthy := n.healthy(c); {
		case p.Protocol != TCP || open == healthy:
		case open:
			_ = lis.Close()
			delete(ports, p.Number)
		default:
			if err := n.open(c, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// open listens on a port and has it served.
func (n *Node) open(c *container, p Port) error {
	host := c.pod.ip
	if host == "" {
		host = hostAddress
	}
	lis, err := n.cfg.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(p.Number))))
	if err != nil {
		return err
	}
	n.services.open[c][p.Number] = lis
	n.services.wg.Go(func() {
		switch p.Protocol {
		case GRPC:
			n.serveGRPC(c, lis)
		case TCP:
			serveTCP(lis)
		case HTTP:
			n.serveHTTP(c, p, lis)
		}
	})
	return nil
}

// askHealth is what a server asks when it is probed. A program that has ended
// may still have connections, for a moment.
func (n *Node) askHealth(c *container) (running, healthy bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle()
	return c.running(), n.healthy(c)
}

// The servers below return when their listener is closed, and then let nothing
// of theirs live on.

func serveTCP(lis net.Listener) {
	for {
		conn, err := lis.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

func (n *Node) serveHTTP(c *container, p Port, lis net.Listener) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		running, healthy := n.askHealth(c)
		if !running {
			hangUpOn(w)
			return
		}
		code, fixed := p.Paths[r.URL.Path]
		switch {
		case fixed:
		case healthy:
			code = http.StatusOK
		default:
			code = http.StatusServiceUnavailable
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, http.StatusText(code)+"\n") // the client may be gone
	}
	var conns sync.WaitGroup
	srv := &http.Server{
		Handler:           http.HandlerFunc(handler),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				conns.Done()
			default:
			}
		},
	}
	_ = srv.Serve(lis) // it returns because we closed the listener
	_ = srv.Close()
	conns.Wait()
}

// hangUpOn closes the connection of a request without an answer.
func hangUpOn(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

func (n *Node) serveGRPC(c *container, lis net.Listener) {
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	grpc_health_v1.RegisterHealthServer(srv, healthServer{node: n, container: c})
	_ = srv.Serve(lis) // it returns because we closed the listener
	srv.Stop()
}

// healthServer answers the gRPC health checks of a container, for every service name.
type healthServer struct {
	grpc_health_v1.UnimplementedHealthServer
	node      *Node
	container *container
}

// Check implements grpc_health_v1.HealthServer.
func (s healthServer) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	switch running, healthy := s.node.askHealth(s.container); {
	case !running:
		return nil, errUnavailable()
	case !healthy:
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}
