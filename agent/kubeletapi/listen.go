package kubeletapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Listen listens on a TCP address for [Server.Run]. It returns an error for an address that
// another machine can reach, unless [Config].Access has a certificate and a token.
func (s *Server) Listen(ctx context.Context, address string) (net.Listener, error) {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	if err := s.mayListen(resolved); err != nil {
		return nil, err
	}
	// The address that was checked, even if the name resolves to another one now.
	return new(net.ListenConfig).Listen(ctx, "tcp", resolved.String())
}

// mayListen returns an error for an address that takes a certificate and a token that the server
// does not have.
func (s *Server) mayListen(addr net.Addr) error {
	if isLoopback(addr) || s.cert != nil && s.token != nil {
		return nil
	}
	return fmt.Errorf("%s can be reached from other machines: a certificate and a token file are required", addr)
}

// connections has the open connections. When there are too many, it closes the connection whose
// client was idle for the longest time, so that a new one is always accepted. Such a client
// sends no request, or does not read its answer. Streams are not closed.
type connections struct {
	limit int

	mu    sync.Mutex
	open  map[net.Conn]connState
	turns uint64 // the number of changes, which orders them

	serving sync.WaitGroup // the goroutines of net/http that serve connections
}

// connState is the state of a connection.
type connState struct {
	since  uint64 // the change with which the state began
	stream bool   // its request is answered by a stream
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// trackedConn is the value of connKey.
type trackedConn struct {
	pool *connections
	conn net.Conn
}

func newConnections(limit int) *connections {
	return &connections{limit: limit, open: map[net.Conn]connState{}}
}

// label implements [http.Server.ConnContext].
func (c *connections) label(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, trackedConn{c, conn})
}

// setAnswering records how the connection of a request is answered. Without Run a request has no
// connection.
func setAnswering(ctx context.Context, state connState) {
	if t, ok := ctx.Value(connKey{}).(trackedConn); ok {
		t.pool.mu.Lock()
		defer t.pool.mu.Unlock()
		if _, open := t.pool.open[t.conn]; open {
			t.pool.set(t.conn, state)
		}
	}
}

// set records a change of a connection. Callers hold mu.
func (c *connections) set(conn net.Conn, state connState) {
	c.turns++
	state.since = c.turns
	c.open[conn] = state
}

// changed implements [http.Server.ConnState].
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		c.set(conn, connState{})
	case http.StateActive: // the first byte of a request, whose rest may never come
	case http.StateHijacked, http.StateClosed:
		delete(c.open, conn)
		c.serving.Done() // its goroutine does nothing more
	}
	if state == http.StateNew {
		c.serving.Add(1)
	}
	if state == http.StateNew && len(c.open) > c.limit {
		c.closeOne()
	}
}

// wait returns when no connection is served any more. No new one may come.
func (c *connections) wait() { c.serving.Wait() }

// closeOne closes the connection that changed least recently and is not a stream.
// Callers hold mu.
func (c *connections) closeOne() {
	var oldest net.Conn
	for conn, state := range c.open {
		if !state.stream && (oldest == nil || state.since < c.open[oldest].since) {
			oldest = conn
		}
	}
	if oldest == nil {
		return // cannot be: the new connection is not a stream
	}
	delete(c.open, oldest)
	if t, ok := oldest.(*tls.Conn); ok {
		oldest = t.NetConn() // the Close of TLS waits for the client
	}
	_ = oldest.Close() // the client has no use for an error
}

// profiles returns the endpoints of pprof.
func (s *Server) profiles() []endpoint {
	return []endpoint{
		{"/debug/pprof/", slowly(http.HandlerFunc(pprof.Index))},
		{"/debug/pprof/cmdline", http.HandlerFunc(pprof.Cmdline)},
		{"/debug/pprof/symbol", http.HandlerFunc(pprof.Symbol)},
		{"/debug/pprof/profile", s.stream(pprof.Profile)},
		{"/debug/pprof/trace", s.stream(pprof.Trace)},
	}
}

// slowly sets the time limit of an answer that is computed. It returns nil for nil.
func slowly(next http.Handler) http.Handler {
	if next == nil {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeWithin(w, answerTimeout)
		next.ServeHTTP(w, r)
	})
}

// writeWithin sets the time limit for the rest of an answer. The ignored error is that of a
// writer without deadlines, in a test.
func writeWithin(w http.ResponseWriter, limit time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(clock.RealClock{}.Now().Add(limit))
}

// unhurried removes the time limits of a request. The ignored errors are as in writeWithin.
func unhurried(w http.ResponseWriter) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Time{})
}
