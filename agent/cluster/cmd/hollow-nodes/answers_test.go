package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func TestAnswers_HTTP(t *testing.T) {
	t.Parallel()
	a := newAnswers(t.Context())
	defer a.close()
	transport := &http.Transport{DialContext: a.dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	for _, url := range []string{"http://10.0.0.2:8080/healthz", "https://10.0.0.2:8443/", "https://10.0.0.3/"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		answer, err := (&http.Client{Transport: transport}).Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.Equal(t, "ok\n", string(body))
	}
}

func TestAnswers_GRPC(t *testing.T) {
	t.Parallel()
	a := newAnswers(t.Context())
	defer a.close()
	conn, err := grpc.NewClient("passthrough:///10.0.0.2:9090", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return a.dial(ctx, "tcp", address) }))
	require.NoError(t, err)
	defer conn.Close()
	for _, service := range []string{"", "any"} {
		answer, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus())
	}
}

func TestAnswers_CloseEndsAllConnections(t *testing.T) {
	t.Parallel()
	a := newAnswers(t.Context())
	probe, err := a.dial(t.Context(), "tcp", "10.0.0.2:1")
	require.NoError(t, err)
	require.NoError(t, probe.Close(), "a TCP probe sends nothing")
	silent, err := a.dial(t.Context(), "tcp", "10.0.0.2:2")
	require.NoError(t, err)
	open, err := a.dial(t.Context(), "tcp", "10.0.0.2:3")
	require.NoError(t, err)
	_, err = io.WriteString(open, "GET / HTTP/1.1\r\n")
	require.NoError(t, err)
	handshake, err := a.dial(t.Context(), "tcp", "10.0.0.2:4")
	require.NoError(t, err)
	_, err = handshake.Write([]byte{tlsHandshake})
	require.NoError(t, err)

	a.close()
	for _, c := range []net.Conn{silent, open, handshake} {
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err)
	}
	_, err = a.dial(t.Context(), "tcp", "10.0.0.2:1")
	require.Error(t, err)
}
