package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pipes is a listener whose connections are in memory, so that time can be the
// test's.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.accept <- server
	return client
}

// serve runs serveHTTP on connections in memory and returns what stops it.
func serve(t *testing.T, handler http.Handler) (p *pipes, stop func() error) {
	t.Helper()
	p = &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- serveHTTP(ctx, p, handler) }()
	return p, func() error { cancel(); return <-served }
}

func TestClientsThatDawdleAreCutOff(t *testing.T) {
	for name, request := range map[string]string{
		"nothing":      "",
		"half a line":  "GET /he",
		"half a head":  "GET /healthz HTTP/1.1\r\nHost: x\r\n",
		"half a body":  "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1",
		"no next line": "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, stop := serve(t, http.NotFoundHandler())
				c, began := p.dial(), time.Now()
				fmt.Fprint(c, request)
				reader := bufio.NewReader(c)
				var err error
				for err == nil {
					_, err = reader.ReadByte()
				}
				require.LessOrEqual(t, time.Since(began), 90*time.Second)
				require.NoError(t, c.Close())
				require.NoError(t, stop())
			})
		})
	}
}

func TestClientThatReadsNothingHoldsUpNoStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, strings.Repeat("x", 1<<20))
		}))
		c := p.dial()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()
		began := time.Now()
		require.NoError(t, stop())
		require.LessOrEqual(t, time.Since(began), 5*time.Second)
		require.NoError(t, c.Close())
	})
}
