package streaming

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// requestTimeout is the time for a client to send its request.
const requestTimeout = 10 * time.Second

// Serve serves the URLs of streams on a listener until ctx is done, and then returns nil. It
// returns an error if the listener fails. When it returns, the listener and the connections of all
// clients are closed, and all streams have ended.
func (s *Server) Serve(ctx context.Context, lis net.Listener) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the context of all requests and streams
	defer cancel()
	conns := &connections{Listener: lis, open: map[*conn]struct{}{}}
	var serving sync.WaitGroup // connections before their upgrade, and handlers
	web := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			serving.Add(1)
			defer serving.Done()
			s.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: requestTimeout,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				serving.Add(1)
			case http.StateHijacked, http.StateClosed:
				serving.Done()
			case http.StateActive, http.StateIdle:
			}
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() }) // the listener is closed even if Close returns an error
	defer stop()
	err := web.Serve(conns)
	conns.closeAll() // the http.Server does not close the connections of streams
	cancel()
	serving.Wait()
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("streaming: serve: %w", err)
	}
	return nil
}

// connections is a listener that records its open connections.
type connections struct {
	net.Listener

	mu   sync.Mutex
	open map[*conn]struct{}
}

// conn is a connection of a client.
type conn struct {
	net.Conn
	of *connections
}

// Accept records the connection until it is closed.
func (c *connections) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	tracked := &conn{Conn: accepted, of: c}
	c.open[tracked] = struct{}{}
	return tracked, nil
}

// Close closes the connection.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (c *connections) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		_ = conn.Conn.Close() // the error does not matter
	}
}
