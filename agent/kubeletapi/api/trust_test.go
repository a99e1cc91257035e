package api_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

// TestClient_TokenOverTLS checks that a client trusts the CA in a file, and reads the
// token for each request.
func TestClient_TokenOverTLS(t *testing.T) {
	t.Parallel()
	var tokens []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
		if len(tokens) == 2 {
			http.Error(w, "unknown token", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, "{}")
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(ca, append([]byte("# of the agent\n"), certificate...), 0o600))
	c, err := api.NewClient(api.ClientConfig{Server: server.URL + "/", CAFile: ca, TokenFile: token})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	for i, want := range []string{"", "--token-file", ""} {
		require.NoError(t, os.WriteFile(token, fmt.Appendf(nil, " token-%d\n", i), 0o600))
		_, err = c.Status(t.Context())
		if want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, "the agent responded with 401 Unauthorized: unknown token (set --token-file to the file with its token)")
		}
	}
	require.Equal(t, []string{"Bearer token-0", "Bearer token-1", "Bearer token-2"}, tokens)

	// The same agent under a name that its certificate does not have.
	other := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	stranger, err := api.NewClient(api.ClientConfig{Server: other, CAFile: ca, TokenFile: token})
	require.NoError(t, err)
	t.Cleanup(stranger.Close)
	_, err = stranger.Status(t.Context())
	require.ErrorContains(t, err, "could not verify the certificate of the agent at "+other)
	require.Len(t, tokens, 3, "it was not told the token")
}

func TestNewClient_RefusesQueryAndFragment(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"http://127.0.0.1:1#x", "http://127.0.0.1:1?", "http://127.0.0.1:1/#x", "http://127.0.0.1:1/?"} {
		_, err := api.NewClient(api.ClientConfig{Server: server})
		require.ErrorContains(t, err, "want http://HOST:PORT", server)
	}
}

func TestClient_RedirectIsAnError(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			t.Error("it was followed")
		}
		http.Redirect(w, r, "/moved", http.StatusMovedPermanently)
	})
	for name, ask := range map[string]func() error{
		"pods":   func() error { _, err := c.Pods(t.Context()); return err },
		"plan":   func() error { _, err := c.EvictionPlan(t.Context(), api.FormText); return err },
		"logs":   func() error { _, err := c.Logs(t.Context(), api.LogsQuery{}); return err },
		"events": func() error { _, err := numbers(t.Context(), c, api.EventsQuery{}, 0); return err },
		"watch":  func() error { _, err := numbers(t.Context(), c, api.EventsQuery{Watch: true}, 0); return err },
	} {
		require.ErrorContains(t, ask(), "the agent responded with 301 Moved Permanently", name)
	}
}

func TestClient_InvalidJSON(t *testing.T) {
	t.Parallel()
	for body, ok := range map[string]bool{
		`{"items":[]}`: true, " {} \n": true, `{"items":[],"unknown":1}`: true, "null": true,
		"": false, `{"items":`: false, `{} {}`: false, `[]`: false, `{"items":"none"}`: false, "\xff": false,
	} {
		_, err := client(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }).Pods(t.Context())
		if ok {
			require.NoError(t, err, body)
			continue
		}
		require.ErrorContains(t, err, "/pods: unexpected response", body)
		require.ErrorContains(t, err, "http://127.0.0.1:", "it names the server")
	}
}

// A caller that has stopped waiting gets its own context's error.
func TestClient_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := client(t, func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
	_, err := c.Status(ctx)
	require.ErrorIs(t, err, context.Canceled)
	_, err = c.Logs(ctx, api.LogsQuery{})
	require.ErrorIs(t, err, context.Canceled)
	_, err = numbers(ctx, c, api.EventsQuery{}, 0)
	require.ErrorIs(t, err, context.Canceled)
	_, err = numbers(ctx, c, api.EventsQuery{Watch: true}, 0)
	require.NoError(t, err, "a watch ends so")
}

// A watch of an agent that restarts, with numbers that the caller continues.
func TestClient_WatchBreaksAndResumes(t *testing.T) {
	t.Parallel()
	var asked []string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		switch len(asked) {
		case 1: // the stream breaks within an event
			_, _ = io.WriteString(w, "{\"number\":1}\n{\"number\":2}\n{\"num")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case 2:
			http.Error(w, "it starts", http.StatusServiceUnavailable)
		case 3:
			_, _ = io.WriteString(w, "{\"number\":3}\nnot an event")
		default:
			_, _ = io.WriteString(w, "{\"number\":4}\n")
		}
	})
	var got []uint64
	var errs []string
	for since := uint64(0); since < 4; {
		all, err := numbers(t.Context(), c, api.EventsQuery{Since: since, Watch: true}, 0)
		require.Error(t, err, "an end that nobody asked for is told")
		errs = append(errs, err.Error())
		if got = append(got, all...); len(got) > 0 {
			since = got[len(got)-1]
		}
	}
	require.Equal(t, []uint64{1, 2, 3, 4}, got)
	require.Equal(t, []string{"watch=true", "since=2&watch=true", "since=2&watch=true", "since=3&watch=true"}, asked)
	require.Equal(t, []string{
		api.ErrStreamEnded.Error(), "the agent responded with 503 Service Unavailable: it starts",
		"read events: invalid character 'o' in literal null (expecting 'u')", api.ErrStreamEnded.Error(),
	}, errs)
}

// The size of a response is limited, and in a watch the size of each event.
func TestClient_EventsAreLimited(t *testing.T) {
	t.Parallel()
	event := `{"number":1,"message":"` + strings.Repeat("x", 50_000) + "\"}\n"
	for name, x := range map[string]struct {
		text        string
		list, watch int // the events before an answer that is too long
	}{
		"one":           {event, 1, 1},
		"many":          {strings.Repeat(event, 8), 2, 8},
		"a long one":    {event + strings.TrimSuffix(event, "\"}\n") + strings.Repeat("y", 300_000), 1, 1},
		"nothing":       {event + strings.Repeat("\n", 300_000), 1, 1},
		"one that fits": {event + strings.Repeat(" ", 149_999-len(event)) + "\n", 1, 1},
	} {
		c := client(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, x.text) })
		c.LimitAnswers(150_000)
		got, err := numbers(t.Context(), c, api.EventsQuery{}, 0)
		require.Len(t, got, x.list, name)
		if len(x.text) > 150_000 {
			require.ErrorContains(t, err, "/agent/events: the response is longer than 150000 bytes", name)
		} else {
			require.NoError(t, err, name)
		}
		got, err = numbers(t.Context(), c, api.EventsQuery{Watch: true}, 0)
		require.Len(t, got, x.watch, name)
		if name == "a long one" || name == "nothing" {
			require.ErrorContains(t, err, "longer than", name)
		} else {
			require.ErrorIs(t, err, api.ErrStreamEnded, name)
		}
	}
}
