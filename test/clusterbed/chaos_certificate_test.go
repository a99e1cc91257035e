//go:build chaos

package clusterbed_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The client certificate of the agent expires while the agent runs. The pods run on. With this
// certificate, a restarted agent exits. With a bootstrap kubeconfig, it gets a new certificate.
func TestAgent_ExpiredCertificate(t *testing.T) {
	inChaos(t)
	dir := bed.env["KPCLUSTER_DIR"]
	h := follow(t, map[string]int32{"crashing": 3})
	bindBootstrap(t)
	life := 30 * time.Second
	kubeconfig := expiringKubeconfig(t, life)
	expired := time.After(life)
	restart(t, "--kubeconfig", kubeconfig)
	apply(t, shell("steady", "sleep 100000"))
	apply(t, crashing("crashing"))
	awaitField(t, "pod/steady", ".status.phase", "Running")
	<-expired
	mark := logMark(t)
	await(t, "the log says why requests fail", func() bool { return loggedSince(t, mark, "Unauthorized") > 0 })
	h.awaitRestart(t, "crashing")
	require.True(t, h.running("steady"))

	require.NoError(t, stopAgent())
	mark = logMark(t)
	require.NoError(t, startAgent("--kubeconfig", kubeconfig))
	awaitEnd(t)
	require.Positive(t, loggedSince(t, mark, "the client certificate expired at"))
	require.True(t, h.running("steady"))

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "root", "pki")))
	require.NoError(t, startAgent("--kubeconfig", kubeconfig, "--bootstrap-kubeconfig", filepath.Join(dir, "bootstrap.kubeconfig")))
	require.NoError(t, awaitNode())
	require.FileExists(t, filepath.Join(dir, "root", "pki", "kubelet-client-current.pem"))
	h.check(t)
}

// expiringKubeconfig returns the path of a kubeconfig of the node with a certificate that expires soon.
func expiringKubeconfig(t *testing.T, life time.Duration) string {
	t.Helper()
	dir := bed.env["KPCLUSTER_DIR"]
	ca, err := tls.LoadX509KeyPair(bed.env["CLUSTER_CA"], pki("ca.key"))
	require.NoError(t, err)
	issue(t, "expiring", &x509.Certificate{
		NotAfter: time.Now().Add(life),
		Subject:  pkix.Name{CommonName: "system:node:" + bed.env["NODE_NAME"], Organization: []string{"system:nodes"}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, &ca)
	config, err := os.ReadFile(filepath.Join(dir, "node.kubeconfig"))
	require.NoError(t, err)
	file := filepath.Join(dir, "expiring.kubeconfig")
	text := strings.NewReplacer("/node.crt", "/expiring.crt", "/node.key", "/expiring.key").Replace(string(config))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// issue creates a key and a certificate whose validity began an hour ago, writes both to files of this
// name, and returns them. Without a certificate authority, the certificate is self-signed.
func issue(t *testing.T, name string, template *x509.Certificate, ca *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Now()
	template.SerialNumber, template.NotBefore = big.NewInt(now.UnixNano()), now.Add(-time.Hour)
	parent, signer := template, crypto.PrivateKey(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for suffix, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		require.NoError(t, os.WriteFile(pki(name+suffix), pem.EncodeToMemory(block), 0o600))
	}
	pair, err := tls.LoadX509KeyPair(pki(name+".crt"), pki(name+".key"))
	require.NoError(t, err)
	return pair
}
