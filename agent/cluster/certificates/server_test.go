package certificates_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeparts/kubeparts/agent/cluster/certificates"
)

func TestServer_RequestsACertificateForTheAddresses(t *testing.T) {
	inBubble(t, func(b *bed) {
		t := b.t
		b.addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "10.0.0.2"},
			{Type: corev1.NodeHostName, Address: "node1"},
			{Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
			{Type: corev1.NodeExternalIP, Address: "10.0.0.1"},
			{Type: corev1.NodeHostName, Address: "10.0.0.2"},
			{Type: corev1.NodeInternalDNS, Address: "node1"},
			{Type: corev1.NodeExternalDNS, Address: "a.test"},
			{Type: corev1.NodeInternalIP, Address: "fd00::1"},
		}
		b.start()
		require.NotNil(t, b.served())
		asked := b.asked()[0]
		require.Equal(t, "kubernetes.io/kubelet-serving", asked.Spec.SignerName)
		require.Equal(t, []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}, asked.Spec.Usages)
		request := parse(asked.Spec.Request)
		require.Equal(t, "system:node:node1", request.Subject.CommonName)
		require.Equal(t, []string{"system:nodes"}, request.Subject.Organization)
		require.Equal(t, []string{"a.test", "node1"}, request.DNSNames)
		require.Equal(t, []string{"10.0.0.1", "10.0.0.2", "fd00::1"}, texts(request.IPAddresses))
		require.NoError(t, request.CheckSignature())
	})
}

func TestServer_HasNoCertificateBeforeRun(t *testing.T) {
	t.Parallel()
	server, err := certificates.NewServer(certificates.ServerConfig{
		Client: &kubernetes.Clientset{}, NodeName: "node1", Dir: t.TempDir(), Addresses: func() []corev1.NodeAddress { return nil },
	})
	require.NoError(t, err)
	_, err = server.GetCertificate(nil)
	require.ErrorContains(t, err, "its CertificateSigningRequest must be approved")
}

func TestServer_ReportsProblems(t *testing.T) {
	t.Parallel()
	_, err := certificates.NewServer(certificates.ServerConfig{})
	for _, field := range []string{"Client", "NodeName", "Dir", "Addresses"} {
		require.ErrorContains(t, err, field+" is required")
	}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "kubelet-server-updated.pem"), 0o700))
	server, err := certificates.NewServer(certificates.ServerConfig{
		Client: &kubernetes.Clientset{}, NodeName: "node1", Dir: dir, Addresses: func() []corev1.NodeAddress { return nil },
	})
	require.NoError(t, err)
	require.ErrorContains(t, server.Run(t.Context()), "serving certificate: ")
}

func TestSelfSigned_KeepsItsFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	cert, key, err := certificates.SelfSigned(dir, "node1")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "kubelet.crt"), cert)
	require.Equal(t, filepath.Join(dir, "kubelet.key"), key)
	requireMode(t, key, 0o600)
	requireMode(t, cert, 0o644)
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	require.NoError(t, pair.Leaf.VerifyHostname("node1"))

	firstCert, firstKey := read(t, cert), read(t, key)
	_, _, err = certificates.SelfSigned(dir, "node2")
	require.NoError(t, err)
	require.Equal(t, firstCert, read(t, cert))
	require.Equal(t, firstKey, read(t, key))
}

func TestSelfSigned_ReportsProblems(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"kubelet.key", "kubelet.crt"} {
		dir := t.TempDir()
		_, _, err := certificates.SelfSigned(dir, "node1")
		require.NoError(t, err)
		require.NoError(t, os.Remove(filepath.Join(dir, missing)))
		_, _, err = certificates.SelfSigned(dir, "node1")
		require.ErrorContains(t, err, "self-signed serving certificate: ", "without %s", missing)
		require.NoFileExists(t, filepath.Join(dir, missing), "nothing is overwritten")
	}
	_, _, err := certificates.SelfSigned("/proc/none", "node1")
	require.ErrorContains(t, err, "write the self-signed serving certificate")
}
