package api_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
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
			require.EqualError(t, err, "the agent responded with 401 Unauthorized: unknown token (set --token-file to the file with its token, or --cert-file and --key-file)")
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
	require.Len(t, tokens, 3, "the untrusted server must not receive the token")
}

// TestClient_Certificate checks that a client reads its certificate files and sends the certificate
// for each new connection.
func TestClient_Certificate(t *testing.T) {
	t.Parallel()
	var users []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, c := range r.TLS.PeerCertificates {
			users = append(users, c.Subject.CommonName)
		}
		_, _ = io.WriteString(w, "{}")
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	cfg := api.ClientConfig{Server: server.URL, CAFile: filepath.Join(dir, "ca"), CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}
	require.NoError(t, os.WriteFile(cfg.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	_, err := api.NewClient(cfg)
	require.ErrorContains(t, err, "read client certificate: open "+cfg.CertFile)
	writeClientCertificate(t, cfg, "alice")
	c, err := api.NewClient(cfg)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	_, err = c.Status(t.Context())
	require.NoError(t, err)
	writeClientCertificate(t, cfg, "bob")
	_, err = c.Status(t.Context())
	require.NoError(t, err)
	c.Close() // the next request connects again
	_, err = c.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"alice", "alice", "bob"}, users)

	for want, change := range map[string]func(*api.ClientConfig){
		"the client certificate and its private key must be set together": func(cfg *api.ClientConfig) { cfg.KeyFile = "" },
		"a client certificate is only used over https":                    func(cfg *api.ClientConfig) { cfg.Server = "http://127.0.0.1:1" },
	} {
		broken := cfg
		change(&broken)
		_, err = api.NewClient(broken)
		require.ErrorContains(t, err, want)
	}
}

func writeClientCertificate(t *testing.T, cfg api.ClientConfig, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cfg.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600))
	require.NoError(t, os.WriteFile(cfg.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
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
			t.Error("the client followed the redirect")
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
		require.ErrorContains(t, err, "http://127.0.0.1:", "the error must name the server")
	}
}

// A caller whose context is cancelled gets the context's error.
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
	require.NoError(t, err, "a cancelled watch must return no error")
}

// The agent restarts during a watch. The caller continues with the last number.
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
		require.Error(t, err, "an unexpected end of the stream must be an error")
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
		list, watch int // number of events before a response that is too long
	}{
		"one":                     {event, 1, 1},
		"many":                    {strings.Repeat(event, 8), 2, 8},
		"a long event":            {event + strings.TrimSuffix(event, "\"}\n") + strings.Repeat("y", 300_000), 1, 1},
		"nothing":                 {event + strings.Repeat("\n", 300_000), 1, 1},
		"an event that just fits": {event + strings.Repeat(" ", 149_999-len(event)) + "\n", 1, 1},
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
		if name == "a long event" || name == "nothing" {
			require.ErrorContains(t, err, "longer than", name)
		} else {
			require.ErrorIs(t, err, api.ErrStreamEnded, name)
		}
	}
}
