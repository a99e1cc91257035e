package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

// client returns a client of a server with this handler.
func client(t *testing.T, handler http.HandlerFunc) *api.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := api.NewClient(api.ClientConfig{Server: server.URL})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestClient_SendsTheRequestedQueries(t *testing.T) {
	t.Parallel()
	var asked []string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Accept"))
		_, _ = io.WriteString(w, "{}")
	})
	ctx := t.Context()
	_, err := c.Status(ctx)
	require.NoError(t, err)
	_, err = c.Pods(ctx)
	require.NoError(t, err)
	_, err = c.Explain(ctx, "default", "a/../b?c")
	require.NoError(t, err)
	text, err := c.EvictionPlan(ctx, api.FormText)
	require.NoError(t, err)
	require.Equal(t, "{}", string(text))
	_, err = c.GCPlan(ctx, api.FormJSON)
	require.NoError(t, err)
	log, err := c.Logs(ctx, api.LogsQuery{Namespace: "n", Pod: "p", Container: "c", TailLines: new(int64(0)), Since: 1500 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, log.Close())
	log, err = c.Logs(ctx, api.LogsQuery{Namespace: "n", Pod: "p", Container: "c", Follow: true, Previous: true, Timestamps: true})
	require.NoError(t, err)
	require.NoError(t, log.Close())
	_, err = numbers(ctx, c, api.EventsQuery{Since: 7}, 0)
	require.NoError(t, err)
	require.Equal(t, []string{
		"GET /agent/status application/json", "GET /pods application/json", "GET /agent/explain/default/a%2F..%2Fb%3Fc application/json",
		"GET /agent/plan/eviction text/plain", "GET /agent/plan/gc application/json",
		"GET /containerLogs/n/p/c?sinceSeconds=2&tailLines=0 ", "GET /containerLogs/n/p/c?follow=true&previous=true&timestamps=true ",
		"GET /agent/events?since=7 ",
	}, asked)
}

func TestNewClient_InvalidServers(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"x", "127.0.0.1:10255", "ftp://x", "http://", "http://x/y", "http://x?y", "http://u:p@x", "http://[::1", ":"} {
		_, err := api.NewClient(api.ClientConfig{Server: server})
		require.ErrorContains(t, err, "want http://HOST:PORT", server)
	}
	for _, server := range []string{"", "http://x/", "https://x", "http://[::1]:80"} {
		c, err := api.NewClient(api.ClientConfig{Server: server})
		require.NoError(t, err, server)
		c.Close()
	}
}

func TestClient_TokenIsNotSentToOtherHosts(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	for server, ok := range map[string]bool{
		"http://127.0.0.1:1": true, "http://[::1]:1": true, "http://localhost:1": true, "https://example.com": true,
		"http://example.com": false, "http://10.0.0.1": false, "http://localhost.example.com": false,
	} {
		_, err := api.NewClient(api.ClientConfig{Server: server, TokenFile: token})
		require.Equal(t, ok, err == nil, "%s: %v", server, err)
	}
	// The client does not send the token to the target of a redirect.
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed") }))
	t.Cleanup(elsewhere.Close)
	agent := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	t.Cleanup(agent.Close)
	c, err := api.NewClient(api.ClientConfig{Server: agent.URL, TokenFile: token})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	_, err = c.Status(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist, "the token file does not exist")
	require.NoError(t, os.WriteFile(token, []byte("x"), 0o600))
	_, err = c.Status(t.Context())
	refused, ok := errors.AsType[*api.StatusError](err)
	require.True(t, ok, err)
	require.Equal(t, http.StatusFound, refused.Code)
}

func TestClient_CACertificates(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ca.pem")
	_, err := api.NewClient(api.ClientConfig{CAFile: file})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(file, []byte("nothing"), 0o600))
	_, err = api.NewClient(api.ClientConfig{CAFile: file})
	require.ErrorContains(t, err, file+" contains no certificate")
}

func TestClient_InvalidResponses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"html": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "unexpected response"},
		"half": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}, "no agent responds"},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			for chunk := make([]byte, 1<<20); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "longer than"},
		"error": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, strings.Repeat("x", 1<<20), http.StatusTeapot)
		}, "418 I'm a teapot: xxx"},
	} {
		_, err := client(t, c.handler).Status(t.Context())
		require.ErrorContains(t, err, c.want, name)
		require.Less(t, len(err.Error()), 10<<10)
	}
	c, err := api.NewClient(api.ClientConfig{Server: "http://127.0.0.1:1"})
	require.NoError(t, err)
	_, err = c.Status(t.Context())
	unreachable, ok := errors.AsType[*api.UnreachableError](err)
	require.True(t, ok)
	require.Equal(t, "http://127.0.0.1:1", unreachable.Server)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}

// numbers returns the numbers of the first events, up to the limit most, and the error of the last
// item.
func numbers(ctx context.Context, c *api.Client, q api.EventsQuery, most int) (all []uint64, err error) {
	for e, err := range c.Events(ctx, q) {
		if err != nil {
			return all, err
		}
		if all = append(all, e.Number); len(all) == most {
			break
		}
	}
	return all, nil
}

func TestEvents_WatchContinuesAfterLostEvents(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.RawQuery {
		case "watch=true":
			fmt.Fprintf(w, "{\"number\":1}\n{\"number\":2}\n\n{\"number\":2,\"reason\":%q}\n", api.EventsLost)
		case "since=2&watch=true":
			fmt.Fprint(w, "{\"number\":8}\n")
		default:
			t.Error(r.URL)
		}
	})
	got, err := numbers(t.Context(), c, api.EventsQuery{Watch: true}, 0)
	require.ErrorIs(t, err, api.ErrStreamEnded)
	require.Equal(t, []uint64{1, 2, 2, 8}, got)
	got, err = numbers(t.Context(), c, api.EventsQuery{Watch: true}, 1)
	require.NoError(t, err)
	require.Equal(t, []uint64{1}, got, "the iteration must stop when the caller stops")
}

func TestEvents_ListEnds(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{"": "", "{\"number\":1}\n": "", "{\"number\":1}\n{\"num": "unexpected EOF", "<html>": "invalid character"} {
		_, err := numbers(t.Context(), client(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }), api.EventsQuery{}, 0)
		if want == "" {
			require.NoError(t, err, body)
		} else {
			require.ErrorContains(t, err, want, body)
		}
	}
	_, err := numbers(t.Context(), client(t, http.NotFound), api.EventsQuery{}, 0)
	require.ErrorContains(t, err, "404")
}

func TestEvents_WatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "{\"number\":1}\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	var got []uint64
	for e, err := range c.Events(ctx, api.EventsQuery{Watch: true}) {
		require.NoError(t, err)
		got = append(got, e.Number)
		cancel()
	}
	require.Equal(t, []uint64{1}, got)
}

func TestClient_InvalidTokensAreNotSent(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "token")
	for _, text := range []string{"", " \n", "a b", "a\nb", "a\x00", "ä"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		c, err := api.NewClient(api.ClientConfig{Server: server.URL, TokenFile: file})
		require.NoError(t, err)
		_, err = c.Status(t.Context())
		require.EqualError(t, err, "read token: "+file+" must contain one word of printable ASCII characters", "%q", text)
		c.Close()
	}
}

func TestClient_UntrustedCertificateIsNotReportedAsUnreachable(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	c, err := api.NewClient(api.ClientConfig{Server: server.URL})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	_, err = c.Status(t.Context())
	require.ErrorContains(t, err, "--ca-file")
	require.NotContains(t, err.Error(), "check that it is running")
}
