package prober

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A network is the servers of a world, for one side.
type network struct {
	w    web
	cert tls.Certificate

	mu       sync.Mutex
	now      run
	answered int
	requests []string
	conns    []*memConn // the server sides of connections
	serving  sync.WaitGroup
}

func newNetwork(t *testing.T, w web) *network {
	t.Helper()
	n := &network{w: w}
	if slices.ContainsFunc(w.Servers, func(s server) bool { return s.TLS != noTLS }) {
		n.cert = certificate(t)
	}
	return n
}

// certificate creates an untrusted, expired certificate for another host.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"elsewhere"}, NotAfter: time.Unix(1, 0)}
	made, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{made}, PrivateKey: key}
}

// begin begins a run.
func (n *network) begin(r run) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now, n.answered, n.requests = r, 0, nil
	if r.Hangup {
		for _, c := range n.conns {
			_ = c.Close() // it never fails
		}
	}
}

// seen returns the requests of the run so far.
func (n *network) seen() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.requests)
}

// open counts the connections that neither side has closed.
func (n *network) open() string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	open := 0
	for _, c := range n.conns {
		if !c.isClosed() {
			open++
		}
	}
	return strconv.Itoa(open)
}

// close closes all connections, and returns when the servers have stopped.
func (n *network) close() {
	n.mu.Lock()
	for _, c := range n.conns {
		_ = c.Close() // it never fails
	}
	n.mu.Unlock()
	n.serving.Wait()
}

// dial makes a connection to a server of the world.
func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: memAddr(address), Err: err}
	}
	n.mu.Lock()
	r := n.now
	n.mu.Unlock()
	i := slices.IndexFunc(n.w.Servers, func(s server) bool { return s.Address == address })
	switch {
	case r.Stalls:
		select { // net/http continues to dial after the request has ended
		case <-ctx.Done():
			return fail(ctx.Err())
		case <-time.After(20 * time.Second):
			return fail(os.NewSyscallError("connect", syscall.ETIMEDOUT))
		}
	case i < 0 || r.Refuses:
		return fail(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	client, end := newPair(address)
	n.mu.Lock()
	n.conns = append(n.conns, end)
	n.mu.Unlock()
	n.serving.Go(func() { n.serve(n.w.Servers[i], end) })
	return client, nil
}

// serve serves one connection.
func (n *network) serve(s server, raw *memConn) {
	if s.TLS == noTLS {
		n.answerAll(raw, raw, false)
		return
	}
	if s.TLS == broken {
		_, _ = raw.Read(make([]byte, 1))                        // closed with or without an error
		_, _ = raw.Write([]byte{0x15, 0x03, 0x03, 0, 2, 2, 40}) // a failed handshake
		_ = raw.Close()
		return
	}
	secure := tls.Server(raw, n.config(s.TLS))
	if secure.Handshake() != nil {
		_ = raw.Close()
		return
	}
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		n.http2(secure)
		_ = secure.Close()
		return
	}
	n.answerAll(secure, raw, s.TLS == both || s.TLS == onlyH2)
}

// config returns how a server does TLS.
func (n *network) config(kind tlsKind) *tls.Config {
	c := &tls.Config{Certificates: []tls.Certificate{n.cert}}
	switch kind {
	case http11:
		c.NextProtos = []string{"http/1.1"}
	case both:
		c.NextProtos = []string{"h2", "http/1.1"}
	case onlyH2:
		c.NextProtos = []string{"h2"}
		c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if !slices.Contains(hello.SupportedProtos, "h2") {
				return nil, errors.New("no HTTP/2")
			}
			return nil, nil
		}
	case other:
		c.NextProtos = []string{"acme"}
	case oldTLS:
		c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	case noTLS, plainly, broken:
	}
	return c
}

// next notes a request and returns the answer to it.
func (n *network) next(request string) reply {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests = append(n.requests, request)
	r := n.now.Answers[min(n.answered, len(n.now.Answers)-1)]
	n.answered++
	return r
}

// answerAll responds to requests until one side closes. A server that also supports HTTP/2
// sends simple responses, because both protocols must have the same result.
func (n *network) answerAll(c net.Conn, raw *memConn, two bool) {
	in := bufio.NewReader(c)
	for kept := false; ; kept = true {
		head, err := readHead(in)
		if err != nil || kept && n.forgets() {
			_ = c.Close()
			return
		}
		r := n.next(string(raw.LocalAddr().(memAddr)) + " " + head)
		if two {
			r = r.plain()
		}
		send(c, r)
		switch r.Then {
		case closes:
			_ = c.Close()
			return
		case resets:
			raw.reset()
			return
		case keeps:
		}
	}
}

// forgets reports whether a server closes a reused connection when another request arrives.
func (n *network) forgets() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now.Forgets || n.now.Answers[min(n.answered, len(n.now.Answers)-1)].Bytes == ""
}

// readHead reads a request to the end of its headers, and sorts the header lines. A TLS
// handshake has no such end: bytes that resemble one are random.
func readHead(in *bufio.Reader) (string, error) {
	const handshake = 0x16
	if first, err := in.Peek(1); err == nil && first[0] == handshake {
		_, err := io.Copy(io.Discard, in)
		return "", errors.Join(err, io.EOF)
	}
	var lines []string
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		if line == "\r\n" && len(lines) > 0 {
			slices.Sort(lines[1:])
			return strings.Join(lines, "\n"), nil
		}
		lines = append(lines, strings.TrimSuffix(line, "\r\n"))
	}
}

// send sends an answer in pieces.
func send(c net.Conn, r reply) {
	rest := []byte(r.Bytes)
	for i := range r.Pieces {
		<-time.After(r.Delay)
		n := len(rest) / (r.Pieces - i)
		if _, err := c.Write(rest[:n]); err != nil {
			return
		}
		rest = rest[n:]
	}
}
