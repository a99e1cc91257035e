package fakecri_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/kubeparts/kubeparts/fakecri"
)

// socketNode returns a node whose web pod listens on a real address.
func socketNode(t *testing.T) (b *bed, sandbox, id string) {
	t.Helper()
	b = newBed(t, func(c *fakecri.Config) { c.Clock, c.Listen = nil, net.Listen })
	t.Cleanup(b.Shutdown)
	sandbox, id = b.start("web", "demo/web:1")
	return b, sandbox, id
}

func TestPorts_ListenOnEachPodsOwnAddress(t *testing.T) {
	b, sandbox, id := socketNode(t)
	other, _ := b.start("other", "demo/web:1") // the same port at another address
	for _, s := range []string{sandbox, other} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+b.ip(s)+":8080/healthz", http.NoBody)
		require.NoError(t, err)
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "OK\n", string(body))
	}
	require.NoError(t, b.StopContainer(t.Context(), id, 1))
	var d net.Dialer
	_, err := d.DialContext(t.Context(), "tcp", b.ip(sandbox)+":8080")
	require.ErrorContains(t, err, "refused")
}

func TestPortForwardStream_ConnectsToAProgram(t *testing.T) {
	b, sandbox, _ := socketNode(t)
	client, stream := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- b.PortForwardStream(t.Context(), sandbox, 8080, stream) }()
	_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(client)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(answer), "HTTP/1.1 200 OK\r\n"), string(answer))
	require.NoError(t, <-done)

	// A context that ends closes both sides.
	ctx, cancel := context.WithCancel(t.Context())
	client, stream = net.Pipe()
	go func() { done <- b.PortForwardStream(ctx, sandbox, 8080, stream) }()
	_, err = io.WriteString(client, "GET") // returns when the stream is connected
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-done)
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)

	_, stream = net.Pipe()
	requireCode(t, codes.Unknown, b.PortForwardStream(t.Context(), sandbox, 1, stream), "failed to connect to port 1")
	_, err = stream.Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
}
