package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// TestStreams_ExecInAPod runs a command in a container of the embedded runtime as kubectl exec does,
// over a WebSocket.
func TestStreams_ExecInAPod(t *testing.T) {
	t.Parallel()
	dir, token := t.TempDir(), filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
	a := start(t, "--manifests", dir, "--root-dir", t.TempDir(), "--token-file", token)
	dial := func(header http.Header) (*websocket.Conn, int) {
		dialer := websocket.Dialer{Subprotocols: []string{"v4.channel.k8s.io"}}
		conn, answer, err := dialer.DialContext(t.Context(),
			strings.Replace(a.url, "http", "ws", 1)+"/exec/default/a/app?command=true&output=1", header)
		if answer != nil {
			require.NoError(t, answer.Body.Close())
			if err != nil {
				return nil, answer.StatusCode
			}
		}
		require.NoError(t, err)
		return conn, answer.StatusCode
	}
	_, code := dial(nil)
	require.Equal(t, http.StatusUnauthorized, code)
	var conn *websocket.Conn
	await(t, "the container runs", func() bool {
		conn, code = dial(http.Header{"Authorization": {"Bearer secret"}})
		return code == http.StatusSwitchingProtocols
	})
	defer conn.Close()
	var last string
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			break
		}
		last = string(message)
	}
	require.Contains(t, last, `"status":"Success"`)
}
