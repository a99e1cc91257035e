//go:build linux && hostile

package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubeparts/kubeparts/fakecri"
)

const (
	// firstPort is the port of the first bad server; each pod of badImage has all of them.
	firstPort = 9000
	badImage  = "hostile/bad:1"
	// serverTime is the longest time for which a bad server keeps a connection open.
	serverTime = 20 * time.Second
	// endless is the size of an endless response.
	endless = 32 << 20
)

// badServer handles a connection of a misbehaving server. It returns when writing or
// reading fails.
type badServer struct {
	name  string
	serve func(net.Conn) error
}

// badServers returns all bad servers, for HTTP, gRPC and TCP. Each gets probes of each
// kind.
func badServers() []badServer {
	const ok = "HTTP/1.1 200 OK\r\n"
	write := func(text string) func(net.Conn) error {
		return func(c net.Conn) error {
			readRequest(c)
			_, err := io.WriteString(c, text)
			return err
		}
	}
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	return []badServer{
		{"closes at once", func(net.Conn) error { return nil }},
		{"never reads, never answers", hold},
		{"answers byte by byte", func(c net.Conn) error { return slowly(c, strings.Repeat(ok, 1000)) }},
		{"endless header", func(c net.Conn) error { return repeat(c, ok, "X-A: "+strings.Repeat("y", 4000)+"\r\n") }},
		{"endless body", func(c net.Conn) error { return repeat(c, ok+"\r\n", strings.Repeat("z", 4096)) }},
		{"endless interim answers", func(c net.Conn) error { return repeat(c, "", "HTTP/1.1 103 Early Hints\r\n\r\n") }},
		{"truncated chunk", write(ok + "Transfer-Encoding: chunked\r\n\r\nffff\r\nshort")},
		{"chunk of a senseless size", write(ok + "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\nffffffffffffffff\r\n")},
		{"lying length", write(ok + "Content-Length: 99999999999\r\n\r\nshort")},
		{"redirects to itself", write("HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")},
		{"redirects elsewhere", write("HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")},
		{"bad status", write("HTTP/9.9 99999 \x00\x1b[2J\r\n\r\n")},
		{"control characters", write("HTTP/1.1 500 \x1b[2J\u202e\r\nContent-Length: 12\r\n\r\nx\n[+]ok\x00\xff\r\n")},
		{"another protocol", write("SSH-2.0-OpenSSH_9\r\n\x00\x00\x00\xff")},
		{"garbage TLS", write("\x16\x03\x03\xff\xff" + strings.Repeat("\x02\xfe", 4000))},
		{"compressed endless body", func(c net.Conn) error { return bomb(c, ok+"Content-Encoding: gzip\r\n\r\n") }},
		{"HTTP/2, then silence", func(c net.Conn) error { return errors.Join(write(settings)(c), hold(c)) }},
		{"endless pings", func(c net.Conn) error { return repeat(c, settings, "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678") }},
		{"endless settings", func(c net.Conn) error { return repeat(c, settings, settings) }},
		{"frame of 16 MiB", write(settings + "\xff\xff\xff\x00\x00\x00\x00\x00\x01")},
		{"GOAWAY", write(settings + "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02")},
		{"compression error", write(settings + "\x00\x00\x04\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff")},
	}
}

// servers are the bad servers of a node's pods. They listen where fakecri's programs would.
type servers struct {
	ctx   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup
	mu    sync.Mutex
	conns map[string]int // by server: how many connections there were
}

func newServers(ctx context.Context) *servers {
	ctx, stop := context.WithCancel(ctx)
	return &servers{ctx: ctx, stop: stop, conns: map[string]int{}}
}

func (s *servers) close() {
	s.stop()
	s.wg.Wait()
}

// program returns the program of the containers with the ports of all bad servers.
func program() (p fakecri.Program) {
	for i := range badServers() {
		p.Ports = append(p.Ports, fakecri.Port{Number: uint16(firstPort + i), Protocol: fakecri.TCP})
	}
	return p
}

// listen is the Listen function for fakecri. Its listeners pass the connections to bad
// servers.
func (s *servers) listen(network, address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen(network, address)
	all := badServers()
	if err != nil || n < firstPort || n >= firstPort+len(all) {
		return l, err
	}
	return &badListener{l, s, all[n-firstPort]}, nil
}

type badListener struct {
	net.Listener
	s   *servers
	bad badServer
}

// Accept returns when the listener is closed.
func (l *badListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.s.mu.Lock()
		l.s.conns[l.bad.name]++
		l.s.mu.Unlock()
		l.s.wg.Go(func() {
			defer context.AfterFunc(l.s.ctx, func() { c.Close() })()
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(serverTime)) // if this fails, serve fails too
			_ = l.bad.serve(c)                            // the client has gone away
		})
	}
}

// total returns the number of connections, and the number of kinds of servers that had
// connections.
func (s *servers) total() (connections, kinds int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.conns {
		connections += n
	}
	return connections, len(s.conns)
}

// readRequest reads the client's first bytes. A server that closes a connection with unread
// bytes resets it, and the client would not see the response.
func readRequest(c net.Conn) { _, _ = c.Read(make([]byte, 64<<10)) }

// hold waits until the client has closed the connection, without reading from it.
func hold(c net.Conn) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return errors.New("no TCP connection")
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); time.Since(begin) < serverTime/4; <-tick.C {
		if err := tcp.SetKeepAlive(true); err != nil {
			return err // closed by us
		}
	}
	return nil
}

func slowly(c net.Conn, text string) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := range len(text) {
		if _, err := fmt.Fprint(c, text[i:i+1]); err != nil {
			return err
		}
		<-tick.C
	}
	return nil
}

func repeat(c net.Conn, first, again string) error {
	if _, err := io.WriteString(c, first); err != nil {
		return err
	}
	some := []byte(strings.Repeat(again, 1+(16<<10)/len(again)))
	for sent := 0; sent < endless; sent += len(some) {
		if _, err := c.Write(some); err != nil {
			return err
		}
	}
	return nil
}

// bomb sends a few bytes that decompress to many bytes.
func bomb(c net.Conn, header string) error {
	readRequest(c)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.Copy(z, io.LimitReader(zeros{}, endless)); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c, "%s%s", header, b.String())
	return err
}

type zeros struct{}

// Read returns zeros.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
