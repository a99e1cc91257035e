package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync"
	"time"
)

// Listen listens on a TCP address for a Server with that access. Without a certificate
// and a token it refuses any address that another machine can reach.
func Listen(ctx context.Context, address string, access Access) (net.Listener, error) {
	if err := access.Validate(); err != nil {
		return nil, err
	}
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	if !isLoopback(resolved) && (access.CertFile == "" || access.TokenFile == "") {
		return nil, fmt.Errorf("%s can be reached from other machines: that takes a certificate and a token", address)
	}
	// What was looked at is what is listened on, whatever the name means next.
	return new(net.ListenConfig).Listen(ctx, "tcp", resolved.String())
}

// connections are those that are open. When there are too many, it closes the one
// whose client has done nothing for longest, so that a new client is always let in: one
// that is idle, has not sent its request, or does not read its answer. Streams stay.
type connections struct {
	limit int

	mu    sync.Mutex
	open  map[net.Conn]connState
	turns uint64 // counts changes of connections, to order them
}

// connState is what a connection does, and since which change.
type connState struct {
	since  uint64
	stream bool // its request is answered by a stream
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

// label is for [http.Server.ConnContext].
func (c *connections) label(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, trackedConn{c, conn})
}

// setAnswering records that a request is being answered now, and whether by a stream. A
// request that Run did not accept has no connection.
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

// changed is for [http.Server.ConnState].
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		c.set(conn, connState{})
	case http.StateActive: // the first byte of a request, which may never be complete
	case http.StateHijacked, http.StateClosed:
		delete(c.open, conn)
	}
	if state == http.StateNew && len(c.open) > c.limit {
		c.closeOne()
	}
}

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
		return // the new one is never a stream
	}
	delete(c.open, oldest)
	if t, ok := oldest.(*tls.Conn); ok {
		oldest = t.NetConn() // TLS would wait for the client to take a farewell
	}
	_ = oldest.Close() // nobody waits for the result
}

// profiles take as long as the client asks for.
func (s *Server) profiles() []endpoint {
	return []endpoint{
		{"/debug/pprof/", slowly(http.HandlerFunc(pprof.Index))},
		{"/debug/pprof/cmdline", http.HandlerFunc(pprof.Cmdline)},
		{"/debug/pprof/symbol", http.HandlerFunc(pprof.Symbol)},
		{"/debug/pprof/profile", s.stream(pprof.Profile)},
		{"/debug/pprof/trace", s.stream(pprof.Trace)},
	}
}

// slowly gives a handler the time to compute its answer. It returns nil for nil.
func slowly(next http.Handler) http.Handler {
	if next == nil {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeWithin(w, answerTimeout)
		next.ServeHTTP(w, r)
	})
}

// writeWithin sets the time that is left to write an answer. A writer in a test has no
// deadline, which is the error that is dropped.
func writeWithin(w http.ResponseWriter, limit time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
}

// unhurried takes the deadlines off a request. The errors are those of a writer that
// has none.
func unhurried(w http.ResponseWriter) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Time{})
}

// debugWriter logs what others print.
type debugWriter struct{ log *slog.Logger }

func (d debugWriter) Write(p []byte) (int, error) {
	d.log.Debug("http", "message", strings.TrimSpace(string(p)))
	return len(p), nil
}
