package prober

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A half is one direction of a connection in memory, which behaves like a TCP connection.
type half struct {
	mu       sync.Mutex
	changed  sync.Cond
	data     []byte
	end      error // error for the reader after the data, or nil while the connection is open
	deaf     bool  // the reader has closed
	deadline time.Time
	timer    *time.Timer
}

func newHalf() *half {
	h := &half{}
	h.changed.L = &h.mu
	return h
}

func (h *half) update(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	h.changed.Broadcast()
}

// A memConn is one end of a connection in memory.
type memConn struct {
	in, out       *half
	local, remote net.Addr
}

// newPair returns the client's and the server's end.
func newPair(address string) (client, server *memConn) {
	up, down := newHalf(), newHalf()
	a, b := memAddr("10.0.0.9:40000"), memAddr(address)
	return &memConn{in: down, out: up, local: a, remote: b}, &memConn{in: up, out: down, local: b, remote: a}
}

type memAddr string

func (memAddr) Network() string  { return "tcp" }
func (a memAddr) String() string { return string(a) }

func (c *memConn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

func (c *memConn) Read(b []byte) (int, error) {
	h := c.in
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.deaf:
			return 0, c.fail("read", net.ErrClosed)
		case !h.deadline.IsZero() && !time.Now().Before(h.deadline):
			return 0, c.fail("read", os.ErrDeadlineExceeded)
		case len(h.data) > 0:
			n := copy(b, h.data)
			h.data = h.data[n:]
			return n, nil
		case errors.Is(h.end, io.EOF):
			return 0, io.EOF
		case h.end != nil:
			return 0, c.fail("read", h.end)
		}
		h.changed.Wait()
	}
}

func (c *memConn) Write(b []byte) (int, error) {
	h := c.out
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.end != nil:
		return 0, c.fail("write", net.ErrClosed)
	case h.deaf:
		return 0, c.fail("write", os.NewSyscallError("write", syscall.EPIPE))
	}
	h.data = append(h.data, b...)
	h.changed.Broadcast()
	return len(b), nil
}

// Close is for net.Conn.
func (c *memConn) Close() error {
	c.finish(io.EOF)
	return nil
}

// isClosed reports whether either side has closed.
func (c *memConn) isClosed() bool {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return c.in.end != nil || c.in.deaf
}

// reset closes the connection with a reset for the other side.
func (c *memConn) reset() { c.finish(os.NewSyscallError("read", syscall.ECONNRESET)) }

func (c *memConn) finish(end error) {
	c.out.update(func() {
		if c.out.end == nil {
			c.out.end = end
		}
	})
	c.in.update(func() { c.in.deaf = true })
}

func (c *memConn) LocalAddr() net.Addr  { return c.local }
func (c *memConn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline is for net.Conn. Nothing waits to write.
func (c *memConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline is for net.Conn.
func (c *memConn) SetReadDeadline(t time.Time) error {
	c.in.update(func() {
		c.in.deadline = t
		if c.in.timer != nil {
			c.in.timer.Stop()
		}
		if !t.IsZero() {
			c.in.timer = time.AfterFunc(time.Until(t), func() { c.in.update(func() {}) })
		}
	})
	return nil
}

// SetWriteDeadline is for net.Conn. Nothing waits to write.
func (c *memConn) SetWriteDeadline(time.Time) error { return nil }
