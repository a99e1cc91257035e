package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	cli "github.com/kubeparts/kubeparts/examples/minimal-agent/commands"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/settings"
)

// freePort returns a port on which no process listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

func TestListeners_ServeHealthAndReadOnlyPathsWithoutCredentials(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	health, readOnly := freePort(t), freePort(t)
	a := start(t, "--token-file", token, "--healthz-port", health, "--read-only-port", readOnly)
	main := a.url
	for _, tc := range []struct {
		url, path string
		want      int
	}{
		{main, "/healthz", http.StatusUnauthorized},
		{main, "/pods", http.StatusUnauthorized},
		{"http://127.0.0.1:" + health, "/healthz", http.StatusOK},
		{"http://127.0.0.1:" + health, "/pods", http.StatusNotFound},
		{"http://127.0.0.1:" + readOnly, "/healthz", http.StatusOK},
		{"http://127.0.0.1:" + readOnly, "/pods", http.StatusOK},
		{"http://127.0.0.1:" + readOnly, "/metrics", http.StatusOK},
		{"http://127.0.0.1:" + readOnly, "/containerLogs/default/web/web", http.StatusMethodNotAllowed},
		{"http://127.0.0.1:" + readOnly, "/agent/status", http.StatusNotFound},
	} {
		a.url = tc.url
		code, _ := a.get(t, tc.path)
		require.Equal(t, tc.want, code, "%s%s", tc.url, tc.path)
	}
	stdout, _ := a.printed()
	text := strings.Join(stdout, "\n")
	require.Contains(t, text, "serving health checks on http://127.0.0.1:"+health)
	require.Contains(t, text, "serving health, pods, statistics and metrics to everybody on http://127.0.0.1:"+readOnly)
	require.NoError(t, a.stop())
}

// pki writes a serving certificate for 127.0.0.1 that is also its own CA, and returns a client
// certificate that this CA has signed.
func pki(t *testing.T) (certFile, keyFile string, client tls.Certificate) {
	t.Helper()
	dir := t.TempDir()
	sign := func(template, parent *x509.Certificate, by *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		if by == nil {
			by = key
		}
		template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
		require.NoError(t, err)
		return der, key
	}
	server := &x509.Certificate{
		Subject: pkix.Name{CommonName: "node1"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, key := sign(server, server, nil)
	bytes, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytes}), 0o600))
	user := &x509.Certificate{Subject: pkix.Name{CommonName: "jane"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	signed, userKey := sign(user, server, key)
	return certFile, keyFile, tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: userKey}
}

func TestClientCertificates_AreAcceptedBeyondLoopback(t *testing.T) {
	t.Parallel()
	certFile, keyFile, jane := pki(t)
	a := start(t, "--listen", "0.0.0.0:0", "--tls-cert-file", certFile, "--tls-private-key-file", keyFile, "--client-ca-file", certFile, "--anonymous-auth")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(a.url, "https://"))
	require.NoError(t, err)
	for path, want := range map[string]struct{ jane, anonymous int }{
		"/pods":          {http.StatusOK, http.StatusOK},
		"/agent/status":  {http.StatusOK, http.StatusForbidden},
		"/exec/ns/no/no": {http.StatusBadRequest, http.StatusForbidden}, // without parameters
	} {
		for who, certs := range map[string][]tls.Certificate{"jane": {jane}, "anonymous": nil} {
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certs}}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+port+path, nil)
			require.NoError(t, err)
			answer, err := (&http.Client{Transport: transport}).Do(r)
			require.NoError(t, err)
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			transport.CloseIdleConnections()
			require.Equal(t, map[string]int{"jane": want.jane, "anonymous": want.anonymous}[who], answer.StatusCode, "%s %s: %s", who, path, body)
		}
	}
	_, stderr := a.printed()
	require.Equal(t, 2, strings.Count(stderr, "refused a request"), stderr)

	dir := t.TempDir()
	janesCert, janesKey := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	der, err := x509.MarshalPKCS8PrivateKey(jane.PrivateKey)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(janesCert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: jane.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(janesKey, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	for code, credentials := range map[int][]string{cli.ExitOK: {"--cert-file", janesCert, "--key-file", janesKey}, cli.ExitFailed: nil} {
		var said bytes.Buffer
		p := cli.Program{Name: "minimal-agent", Stdout: &said, Stderr: &said, Clock: clock.RealClock{}, RunFlags: settings.Flags}
		args := append([]string{"status", "--server", "https://127.0.0.1:" + port, "--ca-file", certFile}, credentials...)
		require.Equal(t, code, p.Main(t.Context(), args), &said)
	}
	require.NoError(t, a.stop())
}
