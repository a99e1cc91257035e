package kubeletapi_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

func TestMain(m *testing.M) {
	// After an error, this function waits for a second before it returns.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}

// ask sends a request to a server's handler, without connection limits.
func ask(t *testing.T, cfg kubeletapi.Config, path string, headers ...string) (code int, body string) {
	t.Helper()
	w := answer(t, cfg, path, headers...)
	return w.Code, w.Body.String()
}

// answer returns the response of a server's handler. headers alternates names and values.
func answer(t *testing.T, cfg kubeletapi.Config, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	s, err := kubeletapi.New(withAgent(cfg))
	require.NoError(t, err)
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	s.Handler().ServeHTTP(w, r)
	return w
}

// pipes is a listener with in-memory connections. They use the bubble's time.
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

// serve serves cfg on in-memory connections. It returns a function that stops the
// server.
func serve(t *testing.T, cfg kubeletapi.Config) (p *pipes, stop func() error) {
	t.Helper()
	s, err := kubeletapi.New(withAgent(cfg))
	require.NoError(t, err)
	p = &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Run(ctx, p) }()
	return p, func() error { cancel(); return <-served }
}

func TestRun_SlowClientsAreDisconnected(t *testing.T) {
	for name, request := range map[string]string{
		"nothing":      "",
		"half a line":  "GET /he",
		"half a head":  "GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
		"half a body":  "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1",
		"no next line": "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, stop := serve(t, kubeletapi.Config{})
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

func TestRun_ClientThatReadsNothingDoesNotDelayShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := serve(t, kubeletapi.Config{Page: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, strings.Repeat("x", 1<<20))
		})})
		c := p.dial()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		synctest.Wait()
		began := time.Now()
		require.NoError(t, stop())
		require.LessOrEqual(t, time.Since(began), 5*time.Second)
		require.NoError(t, c.Close())
	})
}
