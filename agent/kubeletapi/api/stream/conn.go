package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/moby/spdystream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

const (
	spdy          = "SPDY/3.1"
	versionHeader = "X-Stream-Protocol-Version"
	// openTimeout is the maximum time until the server confirms a new stream.
	openTimeout = 30 * time.Second
	openPoll    = 100 * time.Millisecond
	// closeTimeout is the maximum time for the last messages to the server.
	closeTimeout = 5 * time.Second
)

// conn is a SPDY connection.
type conn struct {
	ctx       context.Context // of the caller
	raw       io.Closer
	spdy      *spdystream.Connection
	unwatch   func() bool
	served    chan struct{} // closed when the connection has ended
	mu        sync.Mutex
	openCount int
	streams   map[*spdystream.Stream]bool
}

// dial connects to a path of the agent with a version of the protocol.
func dial(ctx context.Context, c *api.Client, path string, query url.Values, version string) (*conn, error) {
	raw, header, err := c.Upgrade(ctx, path, query, http.Header{"Upgrade": {spdy}, versionHeader: {version}})
	if err != nil {
		return nil, err
	}
	if got := header.Get(versionHeader); got != version {
		_ = raw.Close()
		return nil, fmt.Errorf("the runtime supports the protocol %q, want %q", got, version)
	}
	session, err := spdystream.NewConnection(netConn{raw}, false)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	conn := &conn{ctx: ctx, raw: raw, spdy: session, served: make(chan struct{}), streams: map[*spdystream.Stream]bool{}}
	conn.unwatch = context.AfterFunc(ctx, func() { _ = raw.Close() })
	go func() {
		defer close(conn.served)
		session.Serve(refuse)
	}()
	return conn, nil
}

// refuse refuses a stream that the server opens. Only clients open streams.
func refuse(s *spdystream.Stream) { _ = s.Refuse() }

// open opens a stream. The header of the stream has the kind of the stream and all entries of more.
func (c *conn) open(kind string, more http.Header) (*spdystream.Stream, error) {
	header := http.Header{corev1.StreamType: {kind}}
	maps.Copy(header, more)
	s, err := c.spdy.CreateStream(header, nil, false)
	if err == nil {
		err = c.confirmed(s)
	}
	if err != nil {
		if s != nil {
			_ = s.Reset() // otherwise close would wait for the stream
		}
		return nil, fmt.Errorf("open the stream %s: %w", kind, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[s] = true
	return s, nil
}

// confirmed waits until the server confirms a stream. It polls, because the library does not end
// the wait when the connection ends.
func (c *conn) confirmed(s *spdystream.Stream) error {
	for range openTimeout / openPoll {
		if err := s.WaitTimeout(openPoll); !errors.Is(err, spdystream.ErrTimeout) {
			return err
		}
		select {
		case <-c.spdy.CloseChan():
			return ErrLost
		default:
		}
	}
	return fmt.Errorf("the server has not confirmed the stream within %v", openTimeout)
}

// drop closes a stream in both directions.
func (c *conn) drop(s *spdystream.Stream) {
	c.mu.Lock()
	delete(c.streams, s)
	c.mu.Unlock()
	_ = s.Reset() // fails only if the connection is closed
}

// close closes the connection and waits for its goroutines.
func (c *conn) close() {
	c.unwatch()
	c.mu.Lock()
	streams := c.streams
	c.streams = map[*spdystream.Stream]bool{}
	c.mu.Unlock()
	// A peer that does not read would block the writes below. So the connection is closed when ctx is
	// done, or after closeTimeout.
	defer context.AfterFunc(c.ctx, func() { _ = c.raw.Close() })()
	late := clock.RealClock{}.AfterFunc(closeTimeout, func() { _ = c.raw.Close() })
	defer late.Stop()
	for s := range streams {
		_ = s.Reset() // otherwise Wait would wait for the streams
	}
	if c.spdy.Close() != nil {
		_ = c.raw.Close()
	}
	_ = c.spdy.Wait(closeTimeout) // Wait returns an error if the connection was closed before
	<-c.served
}

// netConn is a [net.Conn] for a connection that net/http returns after a switch of protocols. SPDY
// does not use its addresses and deadlines.
type netConn struct{ io.ReadWriteCloser }

// LocalAddr implements [net.Conn].
func (netConn) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements [net.Conn].
func (netConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// SetDeadline implements [net.Conn]. It has no effect.
func (netConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements [net.Conn]. It has no effect.
func (netConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements [net.Conn]. It has no effect.
func (netConn) SetWriteDeadline(time.Time) error { return nil }
