package server

import (
	"context"
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

// connections closes one that waits for its client when there are too many.
type connections struct {
	limit int

	mu   sync.Mutex
	open map[net.Conn]time.Time // since when it waits; zero while a request is answered
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// label is for [http.Server.ConnContext].
func label(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

func newConnections(limit int) *connections {
	return &connections{limit: limit, open: map[net.Conn]time.Time{}}
}

// busy says that a request of a connection is being answered from now on. Until then
// its client may just dawdle.
func (c *connections) busy(ctx context.Context) {
	conn, ok := ctx.Value(connKey{}).(net.Conn)
	if !ok {
		return // not a request of Run's
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.open[conn]; open {
		c.open[conn] = time.Time{}
	}
}

// changed is for [http.Server.ConnState].
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		c.open[conn] = time.Now()
	case http.StateActive: // it has begun to say what it wants
	case http.StateHijacked, http.StateClosed:
		delete(c.open, conn)
	}
	if state == http.StateNew && len(c.open) > c.limit {
		c.closeOne()
	}
}

// closeOne closes the connection that has waited for longest: the newest one at worst. Callers hold mu.
func (c *connections) closeOne() {
	var oldest net.Conn
	for conn, since := range c.open {
		if !since.IsZero() && (oldest == nil || since.Before(c.open[oldest])) {
			oldest = conn
		}
	}
	if oldest != nil {
		delete(c.open, oldest)
		_ = oldest.Close() // which nobody is interested in
	}
}

// mountPprof serves profiles, which take as long as they are asked to.
func mountPprof(mux *http.ServeMux) {
	patient := func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			unhurried(w)
			h(w, r)
		}
	}
	mux.Handle("GET /debug/pprof/", http.HandlerFunc(pprof.Index))
	mux.Handle("GET /debug/pprof/cmdline", http.HandlerFunc(pprof.Cmdline))
	mux.Handle("GET /debug/pprof/symbol", http.HandlerFunc(pprof.Symbol))
	mux.Handle("GET /debug/pprof/profile", patient(pprof.Profile))
	mux.Handle("GET /debug/pprof/trace", patient(pprof.Trace))
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
