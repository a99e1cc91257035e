package streaming_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/fakecri/streaming"
)

func TestServe_EndsAllStreams(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := streaming.New(listener.Addr().String())
	b := newBed(t, fakecri.Program{Exec: map[string]fakecri.Exec{"sleep": {Runtime: time.Hour}, "cat": {Echo: true}}},
		func(c *fakecri.Config) { c.Streamer = server.Streamer })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	idle, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	defer idle.Close()
	var streams []*websocket.Conn
	for _, command := range []string{"sleep", "cat"} {
		answer, err := b.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: b.container, Cmd: []string{command}, Stdin: true, Stdout: true})
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(answer.GetUrl(), "http://"+listener.Addr().String()+"/exec/"))
		streams = append(streams, b.dial(answer.GetUrl()))
	}
	stop()
	require.NoError(t, <-done)
	for _, s := range streams {
		read(s) // returns, because the connection is closed
	}
}

// failing is a listener that fails.
type failing struct{ net.Listener }

func (failing) Accept() (net.Conn, error) { return nil, errors.New("too many files") }

func TestServe_ListenerFails(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.EqualError(t, streaming.New("x").Serve(t.Context(), failing{listener}), "streaming: serve: too many files")
}

func TestExec_InputAndTerminal(t *testing.T) {
	t.Parallel()
	b := newBed(t, fakecri.Program{Exec: map[string]fakecri.Exec{"cat": {Echo: true}}})
	answer, err := b.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: b.container, Cmd: []string{"cat"}, Stdin: true, Stdout: true, Tty: true})
	require.NoError(t, err)
	conn := b.dial(answer.GetUrl())
	receive := func(want string) {
		for got := ""; got != want; {
			_, message, err := conn.ReadMessage()
			require.NoError(t, err)
			got += string(message[1:])
		}
	}
	require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, []byte("\x04"+`{"Width":80,"Height":24}`)))
	receive("24 80\r\n")
	require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, []byte("\x00typed")))
	receive("typed")
	require.NoError(t, b.Kill(b.container, 1))
	require.Contains(t, read(conn)[status], `"message":"137"`)
}
