package kubeletapi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// run serves cfg on loopback until the test ends or stop is called, and returns its URL.
func run(t *testing.T, cfg kubeletapi.Config) (url string, stop func() error) {
	t.Helper()
	s, err := kubeletapi.New(withAgent(cfg))
	require.NoError(t, err)
	listener, err := s.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, listener) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		require.NoError(t, stop())
	})
	return cfg.Access.URL(listener.Addr()), stop
}

// get sends a request. headers alternates names and values.
func get(t *testing.T, client *http.Client, url string, headers ...string) (code int, header http.Header, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	answer, err := client.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, answer.Header, string(data)
}

func page(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
}

// writeFile replaces a file atomically. The new file has another modification time.
func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", data, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

func TestGuard_TokenIsRequiredExceptForLivezAndThePage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	writeFile(t, file, []byte("s3cret\n"))
	var log lines
	url, _ := run(t, kubeletapi.Config{
		Access: kubeletapi.Access{TokenFile: file}, Metrics: page("hello"), Page: page("ask"), Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	code, header, body := get(t, http.DefaultClient, url+"/metrics")
	require.Equal(t, http.StatusUnauthorized, code)
	require.Equal(t, "Bearer", header.Get("WWW-Authenticate"))
	require.NotContains(t, body, "hello")
	for _, bad := range []string{"", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crets", "Basic s3cret", "s3cret", "Bearer S3CRET"} {
		code, _, _ := get(t, http.DefaultClient, url+"/healthz", "Authorization", bad)
		require.Equal(t, http.StatusUnauthorized, code, "%q", bad)
	}
	code, _, _ = get(t, http.DefaultClient, url+"/livez")
	require.Equal(t, http.StatusOK, code)
	code, _, body = get(t, http.DefaultClient, url+"/")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ask", body)
	for _, good := range []string{"Bearer s3cret", "bearer  s3cret "} {
		code, _, body = get(t, http.DefaultClient, url+"/metrics", "Authorization", good)
		require.Equal(t, http.StatusOK, code, good)
		require.Equal(t, "hello", body)
	}
	code, _, _ = get(t, http.DefaultClient, url+"/metrics", "Authorization", "Bearer s3cret", "Host", "evil.example")
	require.Equal(t, http.StatusOK, code, "the authentication scheme must be case-insensitive")

	// The token changes, and is then revoked.
	writeFile(t, file, []byte("another"))
	await(t, "the server accepts the new token", func() bool {
		code, _, _ := get(t, http.DefaultClient, url+"/metrics", "Authorization", "Bearer another")
		return code == http.StatusOK
	})
	code, _, _ = get(t, http.DefaultClient, url+"/metrics", "Authorization", "Bearer s3cret")
	require.Equal(t, http.StatusUnauthorized, code)
	writeFile(t, file, []byte(" \n"))
	await(t, "the server accepts no token", func() bool {
		code, _, _ := get(t, http.DefaultClient, url+"/metrics", "Authorization", "Bearer another")
		return code == http.StatusUnauthorized
	})
	require.Contains(t, log.String(), "the token that it had before is refused until the file can be read")
}

// await polls cond until cond returns true.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick, end := time.NewTicker(20*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("condition is still false: %s", what)
		}
	}
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// certificate creates a certificate for 127.0.0.1, and its key.
func certificate(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	bytes, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytes})
}

func TestCertificate_IsReloadedWhenItChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	access := kubeletapi.Access{CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}
	install := func(serial int64) {
		cert, key := certificate(t, serial)
		writeFile(t, access.CertFile, cert)
		writeFile(t, access.KeyFile, key)
	}
	install(1)
	url, _ := run(t, kubeletapi.Config{Access: access, Page: page("hello")})
	require.True(t, strings.HasPrefix(url, "https://"), url)
	serial := func() int64 {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
		c, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "https://"))
		require.NoError(t, err)
		defer c.Close()
		state := c.(*tls.Conn).ConnectionState()
		require.GreaterOrEqual(t, state.Version, uint16(tls.VersionTLS12))
		return state.PeerCertificates[0].SerialNumber.Int64()
	}
	require.EqualValues(t, 1, serial())
	install(2)
	await(t, "the server presents the new certificate", func() bool { return serial() == 2 })
	writeFile(t, access.CertFile, []byte("half a cert"))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	code, _, body := get(t, client, url+"/")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "hello", body)
}

func TestGuard_RefusesOtherHostNames(t *testing.T) {
	t.Parallel()
	url, _ := run(t, kubeletapi.Config{Page: page("hello")})
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:10255": 200, "127.0.0.1:1": 200, "127.1.2.3": 200, "[::1]:80": 200, "[::1]": 200, "app.localhost": 200, "localhost.": 200,
		"evil.example": 403, "evil.example:10255": 403, "127.0.0.1.evil.example": 403, "10.0.0.1": 403, "localhost.evil.example": 403, "[::2]:80": 403,
	} {
		code, header, _ := get(t, http.DefaultClient, url+"/", "Host", host)
		require.Equal(t, want, code, host)
		require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-store", header.Get("Cache-Control"))
		require.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'")
	}
}

func TestListen_RefusesReachableAddressesWithoutTLSAndToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := certificate(t, 1)
	full := kubeletapi.Access{CertFile: filepath.Join(dir, "c"), KeyFile: filepath.Join(dir, "k"), TokenFile: filepath.Join(dir, "t")}
	writeFile(t, full.CertFile, cert)
	writeFile(t, full.KeyFile, key)
	writeFile(t, full.TokenFile, []byte("x"))
	with := func(access kubeletapi.Access) *kubeletapi.Server {
		s, err := kubeletapi.New(withAgent(kubeletapi.Config{Access: access}))
		require.NoError(t, err)
		return s
	}
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"} {
		for name, access := range map[string]kubeletapi.Access{
			"nothing": {}, "no token": {CertFile: full.CertFile, KeyFile: full.KeyFile}, "no certificate": {TokenFile: full.TokenFile},
		} {
			_, err := with(access).Listen(t.Context(), address)
			require.ErrorContains(t, err, "a certificate is required, and a token file, a client CA or a TokenReviewer", "%s %s", address, name)
		}
	}
	for _, address := range []string{"127.0.0.1", "127.0.0.1:http:1", "nowhere.invalid:1"} {
		_, err := with(kubeletapi.Access{}).Listen(t.Context(), address)
		require.Error(t, err, address)
	}
	l, err := with(full).Listen(t.Context(), "0.0.0.0:0")
	require.NoError(t, err)
	require.ErrorContains(t, with(kubeletapi.Access{}).Run(t.Context(), l), "a certificate is required, and a token file, a client CA or a TokenReviewer")
	require.ErrorIs(t, l.Close(), net.ErrClosed, "Run must close a listener that it rejects")
	l, err = with(kubeletapi.Access{}).Listen(t.Context(), "localhost:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestAccess_GetCertificateReplacesTheFiles(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t, 1)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	var issued atomic.Bool
	token := filepath.Join(t.TempDir(), "token")
	writeFile(t, token, []byte("secret"))
	url, _ := run(t, kubeletapi.Config{Access: kubeletapi.Access{TokenFile: token, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if !issued.Load() {
			return nil, errors.New("no certificate yet")
		}
		return &pair, nil
	}}})
	require.True(t, strings.HasPrefix(url, "https://"), url)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/livez", http.NoBody)
	require.NoError(t, err)
	_, err = client.Do(request)
	require.ErrorContains(t, err, "tls: internal error")
	issued.Store(true)
	code, _, body := get(t, client, url+"/livez")
	require.Equal(t, http.StatusOK, code, body)

	_, err = kubeletapi.New(kubeletapi.Config{Agent: &fake{}, Access: kubeletapi.Access{
		CertFile: "/c", KeyFile: "/k", GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil },
	}})
	require.ErrorContains(t, err, "CertFile and GetCertificate: must not both be set")
}

func TestNew_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := kubeletapi.New(kubeletapi.Config{
		MaxStreams: -1, Checks: []kubeletapi.Check{{}}, Access: kubeletapi.Access{KeyFile: "k"},
	})
	require.ErrorContains(t, err, "field Agent is required")
	require.ErrorContains(t, err, "MaxStreams")
	require.ErrorContains(t, err, "Checks[0]")
	require.ErrorContains(t, err, "CertFile and KeyFile: must both be set")
	empty := filepath.Join(t.TempDir(), "empty")
	writeFile(t, empty, nil)
	_, err = kubeletapi.New(kubeletapi.Config{Agent: &fake{}, Access: kubeletapi.Access{TokenFile: empty, CertFile: empty, KeyFile: "/nowhere"}})
	require.ErrorContains(t, err, "must contain one word of printable ASCII characters")
	require.ErrorContains(t, err, "/nowhere")
	_, err = kubeletapi.New(kubeletapi.Config{Agent: &fake{}, Access: kubeletapi.Access{TokenFile: t.TempDir()}})
	require.ErrorContains(t, err, "must be a regular file")
}

func TestRun_ThousandConnections(t *testing.T) {
	t.Parallel()
	url, stop := run(t, kubeletapi.Config{Page: page("hello"), MaxConnections: 100})
	address := strings.TrimPrefix(url, "http://")
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for i := range 1000 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		open = append(open, c)
		switch i % 3 { // an idle connection; a connection with an incomplete request; a connection that stays open after its response
		case 1:
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHo")
		case 2:
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
		if i%100 == 0 {
			asked := time.Now()
			code, _, _ := get(t, http.DefaultClient, url+"/livez")
			require.Equal(t, http.StatusOK, code)
			require.Less(t, time.Since(asked), 5*time.Second)
		}
	}
	code, _, _ := get(t, http.DefaultClient, url+"/")
	require.Equal(t, http.StatusOK, code)
	began := time.Now()
	require.NoError(t, stop())
	require.Less(t, time.Since(began), 8*time.Second)
}

func TestRun_RefusesLargeHeadersAndOtherMethods(t *testing.T) {
	t.Parallel()
	url, _ := run(t, kubeletapi.Config{Page: page("hello"), Events: fixed{}})
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", strings.Repeat("x", 1<<20))
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil { // an error means that the server has closed the connection during the request
		require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, answer.StatusCode)
		require.NoError(t, answer.Body.Close())
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
		for _, path := range []string{"/", "/livez", "/agent/events"} {
			r, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader("x"))
			require.NoError(t, err)
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode, "%s %s", method, path)
		}
	}
	code, _, _ := get(t, http.DefaultClient, url+"/nothing")
	require.Equal(t, http.StatusNotFound, code)
	code, _, _ = get(t, http.DefaultClient, url+"/configz")
	require.Equal(t, http.StatusNotFound, code, "an endpoint that is not configured must not exist")
}
