package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
	"k8s.io/client-go/util/cert"
)

// answers serves the connections of probes and hooks, as if each container listened on each port
// and were healthy. It supports HTTP, HTTPS, gRPC health checks and TCP, and opens no sockets.
type answers struct {
	ctx      context.Context
	stop     context.CancelFunc
	network  *bufconn.Listener
	server   *http.Server
	tls      *tls.Config
	accepted chan net.Conn
	running  sync.WaitGroup // all goroutines
}

// connBuffer is the size of a connection's buffer in each direction, in bytes.
const connBuffer = 4 << 10

// tlsHandshake is the first byte of a TLS connection.
const tlsHandshake = 0x16

// newAnswers starts to serve. The caller must call close.
func newAnswers(ctx context.Context) *answers {
	a := &answers{network: bufconn.Listen(connBuffer), accepted: make(chan net.Conn)}
	a.ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	certificate := sync.OnceValues(func() (*tls.Certificate, error) {
		certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(agentName, nil, nil)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		return &pair, err
	})
	a.tls = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() }}
	health := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(health, healthy{})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // for gRPC
	a.server = &http.Server{
		Protocols: protocols, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				health.ServeHTTP(w, r)
				return
			}
			_, _ = io.WriteString(w, "ok\n") // the client may have disconnected
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				a.running.Add(1)
			case http.StateClosed, http.StateHijacked:
				a.running.Done()
			default:
			}
		},
	}
	a.running.Go(a.acceptAll)
	a.running.Go(func() { _ = a.server.Serve(listener{a}) }) // Serve returns because the listener was closed
	return a
}

// close closes all connections and waits until all goroutines have ended.
func (a *answers) close() {
	a.stop()
	_ = a.network.Close()
	_ = a.server.Close()
	a.running.Wait()
}

// dial connects to any address.
func (a *answers) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return a.network.DialContext(ctx)
}

// acceptAll accepts connections until close is called.
func (a *answers) acceptAll() {
	for {
		raw, err := a.network.Accept()
		if err != nil {
			return
		}
		a.running.Go(func() { a.accept(raw) })
	}
}

// accept waits for the first byte of a connection and passes the connection to the HTTP server. A
// TCP probe closes the connection without a byte.
func (a *answers) accept(raw net.Conn) {
	stop := context.AfterFunc(a.ctx, func() { _ = raw.Close() })
	defer stop()
	buffered := bufferedConn{raw, bufio.NewReader(raw)}
	first, err := buffered.reader.Peek(1)
	if err != nil {
		_ = raw.Close()
		return
	}
	conn := net.Conn(buffered)
	if first[0] == tlsHandshake {
		conn = tls.Server(conn, a.tls)
	}
	select {
	case a.accepted <- conn:
	case <-a.ctx.Done():
		_ = raw.Close()
	}
}

// bufferedConn is a connection whose first bytes are in a buffer.
type bufferedConn struct {
	net.Conn
	reader *bufio.Reader
}

// Read implements [net.Conn].
func (c bufferedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }

// listener is the listener of the HTTP server.
type listener struct{ *answers }

// Accept implements [net.Listener].
func (l listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. It does nothing, because answers.close stops the listener.
func (l listener) Close() error { return nil }

// Addr implements [net.Listener].
func (l listener) Addr() net.Addr { return &net.UnixAddr{Name: agentName, Net: "pipe"} }

// healthy answers gRPC health checks, for every service name.
type healthy struct {
	grpc_health_v1.UnimplementedHealthServer
}

// Check implements grpc_health_v1.HealthServer.
func (healthy) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}
