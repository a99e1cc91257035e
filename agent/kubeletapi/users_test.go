package kubeletapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// authority is a CA of client certificates, or an intermediate CA.
type authority struct {
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	chain [][]byte // certificates that a client sends after its own
}

// newAuthority returns a CA.
func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	return new(authority).issueCA(t, name)
}

// issueCA returns an intermediate CA. A zero authority signs a CA with its own key.
func (a *authority) issueCA(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	parent, signer := template, key
	if a.key != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	made := &authority{cert: cert, key: key}
	if a.key != nil {
		made.chain = [][]byte{der}
	}
	return made
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue returns the client certificate of a user. change may modify its template.
func (a *authority) issue(t *testing.T, name string, change ...func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: name, Organization: []string{"admins", "people"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range change {
		c(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: append([][]byte{der}, a.chain...), PrivateKey: key}
}

// tlsAccess returns an access with a serving certificate and a CA of clients.
func tlsAccess(t *testing.T, ca *authority) kubeletapi.Access {
	t.Helper()
	dir := t.TempDir()
	access := kubeletapi.Access{
		CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key"), ClientCAFile: filepath.Join(dir, "ca"),
	}
	cert, key := certificate(t, 1)
	writeFile(t, access.CertFile, cert)
	writeFile(t, access.KeyFile, key)
	writeFile(t, access.ClientCAFile, ca.pem())
	return access
}

// tokens is a TokenReviewer with a user for each valid token. The review of the token
// "broken" fails.
type tokens struct {
	users map[string]kubeletapi.User
	mu    sync.Mutex
	calls map[string]int
}

func (v *tokens) ReviewToken(ctx context.Context, token string) (kubeletapi.User, bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.calls == nil {
		v.calls = map[string]int{}
	}
	v.calls[token]++
	if token == "broken" {
		return kubeletapi.User{}, false, net.ErrClosed
	}
	if _, ok := ctx.Deadline(); !ok {
		return kubeletapi.User{}, false, context.DeadlineExceeded
	}
	user, ok := v.users[token]
	return user, ok, nil
}

func (v *tokens) count(token string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.calls[token]
}

// judge is an Authorizer that records the requests and calls decide, if it is set. Otherwise it
// allows each request.
type judge struct {
	decide func(kubeletapi.Attributes) (bool, string, error)
	mu     sync.Mutex
	seen   []kubeletapi.Attributes
}

func (j *judge) Authorize(_ context.Context, a kubeletapi.Attributes) (bool, string, error) {
	j.mu.Lock()
	j.seen = append(j.seen, a)
	j.mu.Unlock()
	if j.decide == nil {
		return true, "", nil
	}
	return j.decide(a)
}

// take returns and clears the recorded requests.
func (j *judge) take() []kubeletapi.Attributes {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer func() { j.seen = nil }()
	return j.seen
}
