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
// other machines can reach, unless [Config].Access has a certificate and authenticates clients.
func (s *Server) Listen(ctx context.Context, address string) (net.Listener, error) {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	if err := s.mayListen(resolved); err != nil {
		return nil, err
	}
	// Listen on the checked address: a second resolution of the name may return another address.
	return new(net.ListenConfig).Listen(ctx, "tcp", resolved.String())
}

// mayListen returns an error if other machines can reach addr and the server lacks a certificate
// or a way to authenticate clients.
func (s *Server) mayListen(addr net.Addr) error {
	if isLoopback(addr) || s.cfg.Access.encrypts() && s.users != nil {
		return nil
	}
	return fmt.Errorf("other machines can reach %s: a certificate is required, and a token file, a client CA or a TokenReviewer", addr)
}

// connections tracks the open connections. Every new connection is accepted. If a new connection
// exceeds the limit, closeOne closes the connection whose state has not changed for the longest
// time. The state changes when the connection is opened, when the server starts to handle a
// request, and when the response is complete. Streams are not closed.
type connections struct {
	limit int
	// invalid is called when a connection ends and its last request was incomplete or invalid.
	invalid func(net.Conn)

	mu      sync.Mutex
	open    map[net.Conn]connState
	changes uint64 // number of state changes so far

	serving sync.WaitGroup // connections served by net/http, and calls of holdConnection that are not released
}

// connState is the state of a connection.
type connState struct {
	since   uint64 // number of the change that set the state
	stream  bool   // the response is long: see Config.MaxStreams
	reading bool   // net/http has read at least a part of a request, and has not called the handler
}

// connKey is the context key of a request's connection.
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

// setAnswering records the kind of response on the connection of a request. It does nothing for a
// request that Run does not serve.
func setAnswering(ctx context.Context, state connState) {
	if t, ok := ctx.Value(connKey{}).(trackedConn); ok {
		t.pool.mu.Lock()
		defer t.pool.mu.Unlock()
		if _, open := t.pool.open[t.conn]; open {
			t.pool.set(t.conn, state)
		}
	}
}

// holdConnection makes Run wait until the caller calls release. Call it before Hijack. Otherwise,
// Run does not wait for the hijacked connection. ctx is the context of the request.
func holdConnection(ctx context.Context) (release func()) {
	t, ok := ctx.Value(connKey{}).(trackedConn)
	if !ok {
		return func() {}
	}
	t.pool.serving.Add(1)
	return t.pool.serving.Done
}

// set records a change of a connection. Callers hold mu.
func (c *connections) set(conn net.Conn, state connState) {
	c.changes++
	state.since = c.changes
	c.open[conn] = state
}

// changed implements [http.Server.ConnState].
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if c.update(conn, state) {
		c.invalid(conn)
	}
	if state == http.StateHijacked || state == http.StateClosed {
		c.serving.Done() // net/http does not serve the connection any more
	}
}

// update records the state of a connection. It reports whether the connection has ended during an
// incomplete or invalid request.
func (c *connections) update(conn net.Conn, state http.ConnState) (invalid bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, open := c.open[conn]
	switch state {
	case http.StateNew:
		c.serving.Add(1)
		c.set(conn, connState{})
		if len(c.open) > c.limit {
			c.closeOne()
		}
	case http.StateIdle:
		c.set(conn, connState{})
	case http.StateActive: // not counted as a change: the rest of the request may never arrive
		if open {
			was.reading = true
			c.open[conn] = was
		}
	case http.StateHijacked, http.StateClosed:
		delete(c.open, conn)
		return was.reading
	}
	return false
}

// wait waits until no connection is served any more. The caller must not accept connections during
// the wait.
func (c *connections) wait() { c.serving.Wait() }

// closeOne closes the connection whose state has not changed for the longest time. It never closes
// a stream. Callers hold mu.
func (c *connections) closeOne() {
	var oldest net.Conn
	for conn, state := range c.open {
		if !state.stream && (oldest == nil || state.since < c.open[oldest].since) {
			oldest = conn
		}
	}
	delete(c.open, oldest)
	if t, ok := oldest.(*tls.Conn); ok {
		oldest = t.NetConn() // tls.Conn.Close waits for the client
	}
	_ = oldest.Close() // the error does not matter
}

// profiles returns the endpoints of pprof.
func (s *Server) profiles() []endpoint {
	get := []string{http.MethodGet}
	return []endpoint{
		{"/debug/pprof/", s.profile(), get},
		{"/debug/pprof/cmdline", http.HandlerFunc(pprof.Cmdline), get},
		{"/debug/pprof/symbol", http.HandlerFunc(pprof.Symbol), get},
		{"/debug/pprof/profile", s.stream(pprof.Profile), get},
		{"/debug/pprof/trace", s.stream(pprof.Trace), get},
	}
}

// profile returns the handler of a profile or, if the request has the parameter seconds, of the
// difference of two profiles. The difference is a stream, because it may take longer than
// answerTimeout. Other profiles are not streams: they show what an agent does whose streams are all
// in use.
func (s *Server) profile() http.HandlerFunc {
	now, difference := withTimeLimit(http.HandlerFunc(pprof.Index)), s.stream(pprof.Index)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("seconds") {
			difference(w, r)
			return
		}
		now.ServeHTTP(w, r)
	}
}

// withTimeLimit returns a handler that sets the time limit of the response to answerTimeout and
// then calls the given handler. If the given handler is nil, withTimeLimit returns nil.
func withTimeLimit(next http.Handler) http.Handler {
	if next == nil {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeWithin(w, answerTimeout)
		next.ServeHTTP(w, r)
	})
}

// writeWithin sets the time limit for the rest of a response. It ignores the error, because only
// the response writers of tests have no deadlines.
func writeWithin(w http.ResponseWriter, limit time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(clock.RealClock{}.Now().Add(limit))
}

// removeTimeLimits removes the time limits of a request and its response. It ignores errors, as
// writeWithin does.
func removeTimeLimits(w http.ResponseWriter) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Time{})
}
