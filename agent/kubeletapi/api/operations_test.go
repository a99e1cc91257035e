package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

func TestClient_Operations(t *testing.T) {
	t.Parallel()
	var asked []string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.RequestURI())
		switch r.URL.Path {
		case "/agent/images":
			_, _ = io.WriteString(w, `{"items":[{"id":"sha256:1","containers":2}]}`)
		case "/agent/pull":
			_, _ = io.WriteString(w, `{"id":"sha256:1","digests":["a@sha256:2"]}`)
		default:
			_, _ = io.WriteString(w, `{"name":"web-node1"}`)
		}
	})
	list, err := c.Images(t.Context())
	require.NoError(t, err)
	require.Equal(t, []api.Image{{ID: "sha256:1", Containers: 2}}, list.Items)
	r, err := c.Restart(t.Context(), "ns", "a/../b")
	require.NoError(t, err)
	require.Equal(t, "web-node1", r.Name)
	i, err := c.Pull(t.Context(), "a:1&x=y")
	require.NoError(t, err)
	require.Equal(t, []string{"a@sha256:2"}, i.Digests)
	require.Equal(t, []string{"GET /agent/images", "POST /agent/restart/ns/a%2F..%2Fb", "POST /agent/pull?image=a%3A1%26x%3Dy"}, asked)
}

func TestClient_OperationsFail(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"refused": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "it is ended", http.StatusConflict) }, "409 Conflict: it is ended"},
		"html":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "unexpected response"},
		"half": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}, "no agent responds"},
	} {
		_, err := client(t, x.handler).Restart(t.Context(), "ns", "web")
		require.ErrorContains(t, err, x.want, name)
		_, err = client(t, x.handler).Pull(t.Context(), "image")
		require.ErrorContains(t, err, x.want, name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := client(t, func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
	_, err := c.Pull(ctx, "image")
	require.ErrorIs(t, err, context.Canceled)
}

func TestClient_Upgrade(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "echo" || r.Header.Get("X-More") != "more" || r.Method != http.MethodPost {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		conn, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Answer: yes\r\n\r\n")
		_, _ = io.CopyN(conn, buffer, 5)
	})
	conn, header, err := c.Upgrade(t.Context(), "/stream", nil, http.Header{"Upgrade": {"echo"}, "X-More": {"more"}})
	require.NoError(t, err)
	require.Equal(t, "yes", header.Get("X-Answer"))
	_, err = io.WriteString(conn, "hello")
	require.NoError(t, err)
	text, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "hello", string(text))
	require.NoError(t, conn.Close())

	_, _, err = c.Upgrade(t.Context(), "/stream", nil, http.Header{"Upgrade": {"other"}})
	status, ok := errors.AsType[*api.StatusError](err)
	require.True(t, ok, err)
	require.Equal(t, http.StatusBadRequest, status.Code)
}
