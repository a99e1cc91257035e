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
	open    map[*container]map[uint16]net.Listener
	waiting bool // waitPorts is running
	ended   bool // Shutdown was called
	wg      sync.WaitGroup
}

// Shutdown closes all listeners of the node's programs, and returns when their goroutines
// have ended. Programs that are started later do not listen. The rest of the node keeps
// working. Shutdown is needed only with Config.Listen, and may be called again.
func (n *Node) Shutdown() {
	n.mu.Lock()
	n.services.ended = true
	for c := range n.services.open {
		n.closePorts(c)
	}
	n.broadcast()
	n.mu.Unlock()
	n.services.wg.Wait()
}

// hostAddress is the address of programs in pods on the host's network.
const hostAddress = "127.0.0.1"

// serveProgram opens the ports of a starting program, except the TCP ports of a program
// with HealthyAfter. If it cannot open a port, it closes all ports of the program.
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
			n.closePorts(c)
			return err
		}
	}
	if !n.services.waiting {
		n.services.waiting = true
		n.services.wg.Go(func() { n.waitPorts(context.WithoutCancel(ctx)) })
	}
	return nil
}

// waitPorts applies scheduled changes on time for as long as programs listen. Without it, they would
// only be applied at the next call of a method, and a probe of a TCP port calls no method. waitPorts
// acquires the lock. It also closes the ports of exited containers, because a reboot does not close
// them.
func (n *Node) waitPorts(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	allClosed := func() bool {
		for c := range n.services.open {
			if c.state == runtimeapi.ContainerState_CONTAINER_EXITED {
				n.closePorts(c)
			}
		}
		return len(n.services.open) == 0
	}
	for {
		// await fails when the runtime restarts. The programs continue to run, so wait again.
		if err := n.await(ctx, allClosed); err == nil {
			n.services.waiting = false
			return
		}
	}
}

// closePorts closes the ports of a container.
func (n *Node) closePorts(c *container) {
	for _, lis := range n.services.open[c] {
		_ = lis.Close() // the listener is closed even if Close returns an error
	}
	delete(n.services.open, c)
}

// updateTCP opens the TCP ports of a healthy container, and closes the TCP ports of an
// unhealthy container.
func (n *Node) updateTCP(c *container) error {
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

// open listens on a port and starts a goroutine that serves it.
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

// health reports whether a container is running and whether it is healthy, for a probe. A program
// that has recently exited may still have open connections, so a probe can find it not running.
func (n *Node) health(c *container) (running, healthy bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance()
	return c.running(), n.healthy(c)
}

// The servers below return when their listener is closed and all their goroutines have
// ended.

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
		running, healthy := n.health(c)
		if !running {
			dropConn(w)
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
		_, _ = io.WriteString(w, http.StatusText(code)+"\n") // the client may have disconnected
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
	_ = srv.Serve(lis) // Serve returns because the listener was closed
	_ = srv.Close()
	conns.Wait()
}

// dropConn closes the connection of a request and sends no response.
func dropConn(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

func (n *Node) serveGRPC(c *container, lis net.Listener) {
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	grpc_health_v1.RegisterHealthServer(srv, healthServer{node: n, container: c})
	_ = srv.Serve(lis) // Serve returns because the listener was closed
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
	switch running, healthy := s.node.health(s.container); {
	case !running:
		return nil, errUnavailable()
	case !healthy:
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}
