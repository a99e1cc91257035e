package certificates_test

import (
	"context"
	"crypto/tls"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent/cluster/certificates"
)

func TestConnect_RequestsACertificateWithTheBootstrapKubeconfig(t *testing.T) {
	t.Parallel()
	s, dir := listen(t, time.Hour), t.TempDir()
	cfg := certificates.ClientConfig{
		Kubeconfig: filepath.Join(dir, "etc", "kubelet.conf"), Bootstrap: s.kubeconfig(&clientcmdapi.AuthInfo{Token: "abc"}),
		Dir: filepath.Join(dir, "pki"), NodeName: "node1",
	}
	c, err := certificates.Connect(t.Context(), cfg)
	require.NoError(t, err)
	require.Len(t, s.asked(), 1)
	asked := s.asked()[0]
	require.Equal(t, "kubernetes.io/kube-apiserver-client-kubelet", asked.Spec.SignerName)
	require.Equal(t, "Bearer abc", s.tried()[0].token)
	subject := parse(asked.Spec.Request).Subject
	require.Equal(t, "system:node:node1", subject.CommonName)
	require.Equal(t, []string{"system:nodes"}, subject.Organization)

	current := filepath.Join(cfg.Dir, "kubelet-client-current.pem")
	require.Equal(t, current, c.Config().CertFile)
	require.Equal(t, current, c.Config().KeyFile)
	require.Equal(t, s.http.URL, c.Config().Host)
	require.Empty(t, c.Config().BearerToken)
	requireMode(t, current, 0o600)
	requireMode(t, cfg.Kubeconfig, 0o600)
	target, err := os.Readlink(current)
	require.NoError(t, err)
	require.Regexp(t, `/pki/kubelet-client-\d{4}(-\d\d){5}\.pem$`, target)
	require.Equal(t, []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, asked.Spec.Usages)
	require.Contains(t, read(t, cfg.Kubeconfig), "client-certificate: "+current)

	// The next start uses the kubeconfig.
	before := read(t, cfg.Kubeconfig)
	_, err = certificates.Connect(t.Context(), cfg)
	require.NoError(t, err)
	require.Len(t, s.asked(), 1)
	require.Equal(t, before, read(t, cfg.Kubeconfig))
	require.NoError(t, c.Run(t.Context()), "no rotation")
}

func TestConnect_RequestsACertificateAgainWhenItHasExpired(t *testing.T) {
	t.Parallel()
	s, dir := listen(t, time.Hour), t.TempDir()
	cert, key := s.pair(time.Now().Add(s.life))
	cfg := certificates.ClientConfig{
		Kubeconfig: s.kubeconfig(&clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}),
		Dir:        filepath.Join(dir, "pki"), NodeName: "node1", Clock: testingclock.NewFakeClock(time.Now().Add(2 * time.Hour)),
	}
	_, err := certificates.Connect(t.Context(), cfg)
	require.ErrorContains(t, err, "the client certificate expired at ")
	require.Empty(t, s.asked())
	cfg.Bootstrap = filepath.Join(dir, "missing")
	_, err = certificates.Connect(t.Context(), cfg)
	require.ErrorContains(t, err, "bootstrap kubeconfig "+cfg.Bootstrap)
}

func TestConnect_WritesTheServerOfTheBootstrapKubeconfig(t *testing.T) {
	t.Parallel()
	s, dir := listen(t, time.Hour), t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	require.NoError(t, os.WriteFile(ca, s.trust(), 0o600))
	bootstrap, err := clientcmd.LoadFromFile(s.kubeconfig(&clientcmdapi.AuthInfo{Token: "abc"}))
	require.NoError(t, err)
	bootstrap.Clusters["c"].CertificateAuthorityData, bootstrap.Clusters["c"].CertificateAuthority = nil, "ca.crt" // next to the kubeconfig
	bootstrap.Clusters["c"].TLSServerName, bootstrap.Clusters["c"].ProxyURL = "127.0.0.1", s.proxy()
	cfg := certificates.ClientConfig{
		Kubeconfig: filepath.Join(dir, "kubelet.conf"), Bootstrap: filepath.Join(dir, "bootstrap.conf"), Dir: dir, NodeName: "node1",
	}
	require.NoError(t, clientcmd.WriteToFile(*bootstrap, cfg.Bootstrap))
	c, err := certificates.Connect(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, ca, c.Config().CAFile)
	require.Equal(t, "127.0.0.1", c.Config().ServerName)
	written, err := clientcmd.LoadFromFile(cfg.Kubeconfig)
	require.NoError(t, err)
	require.Equal(t, "default-context", written.CurrentContext)
	require.Equal(t, bootstrap.Clusters["c"].ProxyURL, written.Clusters["default-cluster"].ProxyURL)
	require.Empty(t, written.AuthInfos["default-auth"].Token, "the bootstrap token is not copied")
}

func TestConnect_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	s, dir := listen(t, time.Hour), t.TempDir()
	cfg := certificates.ClientConfig{
		Kubeconfig: filepath.Join(dir, "kubelet.conf"), Bootstrap: s.kubeconfig(&clientcmdapi.AuthInfo{Token: "abc"}), Dir: dir, NodeName: "node1",
	}
	s.http.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := certificates.Connect(ctx, cfg)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoFileExists(t, cfg.Kubeconfig)
}

func TestConnect_RotationRequiresACertificate(t *testing.T) {
	t.Parallel()
	s := listen(t, time.Hour)
	cfg := certificates.ClientConfig{Kubeconfig: s.kubeconfig(&clientcmdapi.AuthInfo{Token: "abc"}), Dir: t.TempDir(), NodeName: "node1"}
	c, err := certificates.Connect(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, "abc", c.Config().BearerToken)
	cfg.Rotate = true
	_, err = certificates.Connect(t.Context(), cfg)
	require.ErrorContains(t, err, "the kubeconfig has no client certificate")
}

func TestConnect_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := certificates.Connect(t.Context(), certificates.ClientConfig{Rotate: true})
	for _, field := range []string{"Kubeconfig", "NodeName", "Dir"} {
		require.ErrorContains(t, err, field+" is required")
	}
}

// bootstrapped returns the configuration of a node whose bootstrap kubeconfig has the token abc.
func (s *signer) bootstrapped() certificates.ClientConfig {
	s.t.Helper()
	dir := s.t.TempDir()
	return certificates.ClientConfig{
		Kubeconfig: filepath.Join(dir, "kubelet.conf"), Bootstrap: s.kubeconfig(&clientcmdapi.AuthInfo{Token: "abc"}), Dir: filepath.Join(dir, "pki"), NodeName: "node1",
	}
}

func TestConnect_RepairsWhatCanNotBeUsed(t *testing.T) {
	t.Parallel()
	overwrite := func(t *testing.T, path, content string) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	for _, c := range []struct {
		name    string
		destroy func(t *testing.T, s *signer, kubeconfig, current string)
		err     string
	}{
		{"a_missing_kubeconfig", func(t *testing.T, _ *signer, kubeconfig, _ string) {
			t.Helper()
			require.NoError(t, os.Remove(kubeconfig))
		}, "no such file"},
		{"a_truncated_kubeconfig", func(t *testing.T, _ *signer, kubeconfig, _ string) {
			t.Helper()
			overwrite(t, kubeconfig, read(t, kubeconfig)[:100])
		}, "kubelet.conf"},
		{"an_empty_kubeconfig", func(t *testing.T, _ *signer, kubeconfig, _ string) {
			t.Helper()
			overwrite(t, kubeconfig, "")
		}, "invalid configuration"},
		{"a_missing_certificate", func(t *testing.T, _ *signer, _, current string) {
			t.Helper()
			require.NoError(t, os.Remove(current))
		}, "no such file"},
		{"a_truncated_certificate", func(t *testing.T, _ *signer, _, current string) {
			t.Helper()
			overwrite(t, current, read(t, current)[:200])
		}, "failed to find any PEM data"},
		{"a_certificate_without_its_key", func(t *testing.T, s *signer, _, current string) {
			t.Helper()
			cert, _ := s.pair(time.Now().Add(time.Hour))
			overwrite(t, current, string(cert))
		}, "found a certificate rather than a key"},
		{"the_key_of_another_certificate", func(t *testing.T, s *signer, _, current string) {
			t.Helper()
			cert, _ := s.pair(time.Now().Add(time.Hour))
			_, key := s.pair(time.Now().Add(time.Hour))
			overwrite(t, current, string(cert)+string(key))
		}, "private key does not match public key"},
		{"an_expired_certificate", func(t *testing.T, s *signer, _, current string) {
			t.Helper()
			cert, key := s.pair(time.Now().Add(-time.Minute))
			overwrite(t, current, string(cert)+string(key))
		}, "the client certificate expired at "},
	} {
		for _, rotate := range []bool{false, true} {
			t.Run(c.name+map[bool]string{true: "_with_rotation"}[rotate], func(t *testing.T) {
				t.Parallel()
				s := listen(t, time.Hour)
				cfg := s.bootstrapped()
				cfg.Rotate = rotate
				_, err := certificates.Connect(t.Context(), cfg)
				require.NoError(t, err)
				current := filepath.Join(cfg.Dir, "kubelet-client-current.pem")
				c.destroy(t, s, cfg.Kubeconfig, current)

				without := cfg
				without.Bootstrap = ""
				_, err = certificates.Connect(t.Context(), without)
				require.ErrorContains(t, err, c.err)
				require.ErrorContains(t, err, "kubeconfig "+cfg.Kubeconfig)
				require.Len(t, s.tried(), 1)

				client, err := certificates.Connect(t.Context(), cfg)
				require.NoError(t, err)
				require.Len(t, s.tried(), 2)
				require.Equal(t, "Bearer abc", s.tried()[1].token)
				require.Equal(t, current, client.Config().CertFile)
				_, err = certificates.Connect(t.Context(), without)
				require.NoError(t, err)
			})
		}
	}
}

func TestConnect_RequestsACertificateThoughOneIsStored(t *testing.T) {
	t.Parallel()
	s := listen(t, time.Hour)
	cfg := s.bootstrapped()
	s.store(cfg.Dir, time.Now().Add(time.Hour)) // perhaps of another cluster
	_, err := certificates.Connect(t.Context(), cfg)
	require.NoError(t, err)
	require.Len(t, s.tried(), 1)
	require.Nil(t, s.tried()[0].serial, "the stored certificate is not used for the request")
}

// store stores a client certificate that expires at end, and returns the content of its file.
func (s *signer) store(dir string, end time.Time) string {
	s.t.Helper()
	cert, key := s.pair(end)
	require.NoError(s.t, os.MkdirAll(dir, 0o700))
	target := filepath.Join(dir, "kubelet-client-before.pem")
	require.NoError(s.t, os.WriteFile(target, append(cert, key...), 0o600))
	require.NoError(s.t, os.Symlink(target, filepath.Join(dir, "kubelet-client-current.pem")))
	return read(s.t, target)
}

func TestConnect_RotationUsesTheStoredCertificate(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]time.Duration{"instead_of_a_valid_one": time.Hour, "instead_of_an_expired_one": -time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir := listen(t, time.Hour), t.TempDir()
			cert, key := s.pair(time.Now().Add(end))
			stored := s.store(dir, time.Now().Add(time.Hour))
			c, err := certificates.Connect(t.Context(), certificates.ClientConfig{
				Kubeconfig: s.kubeconfig(&clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}), Dir: dir, NodeName: "node1", Rotate: true,
			})
			require.NoError(t, err)
			require.Equal(t, stored, read(t, c.Config().CertFile))
			require.Empty(t, c.Config().CertData)
			require.Empty(t, s.tried())
		})
	}
}

func TestConnect_RotationReplacesAStoredCertificateThatCanNotBeUsed(t *testing.T) {
	t.Parallel()
	s, dir := listen(t, time.Hour), t.TempDir()
	cert, key := s.pair(time.Now().Add(time.Hour))
	s.store(dir, time.Now().Add(-time.Minute))
	c, err := certificates.Connect(t.Context(), certificates.ClientConfig{
		Kubeconfig: s.kubeconfig(&clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}), Dir: dir, NodeName: "node1", Rotate: true,
	})
	require.NoError(t, err)
	require.Equal(t, string(cert)+string(key), read(t, c.Config().CertFile))
}

func TestConnect_ReportsAStoreThatCanNotBeUsed(t *testing.T) {
	t.Parallel()
	s := listen(t, time.Hour)
	cfg := s.bootstrapped()
	require.NoError(t, os.MkdirAll(filepath.Join(cfg.Dir, "kubelet-client-updated.pem"), 0o700))
	_, err := certificates.Connect(t.Context(), cfg)
	require.ErrorContains(t, err, "client certificate: expected ")

	cert, key := s.pair(time.Now().Add(time.Hour))
	cfg = certificates.ClientConfig{
		Kubeconfig: s.kubeconfig(&clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}), Dir: t.TempDir(), NodeName: "node1", Rotate: true,
	}
	require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, "kubelet-client-current.pem"), nil, 0o600))
	_, err = certificates.Connect(t.Context(), cfg)
	require.ErrorContains(t, err, "rotate the client certificate of "+cfg.Kubeconfig)
	require.ErrorContains(t, err, "to be a symlink but it is a file")
}

func TestConnect_RetriesADeniedRequest(t *testing.T) {
	t.Parallel()
	s := listen(t, time.Hour)
	s.decide = func(n int, csr *certificatesv1.CertificateSigningRequest) {
		if n < 2 {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
			return
		}
		approve(csr, s.sign(csr.Spec.Request))
	}
	cfg, clk, log := s.bootstrapped(), testingclock.NewFakeClock(time.Now()), &journal{}
	cfg.Clock, cfg.Logger = clk, log.logger()
	done := make(chan error, 1)
	go func() {
		_, err := certificates.Connect(t.Context(), cfg)
		done <- err
	}()
	for n, pause := range []time.Duration{2 * time.Second, 4 * time.Second} {
		waits(t, clk, log, "will retry", n+1)
		clk.Step(pause - time.Millisecond)
		require.Len(t, s.tried(), n+1)
		clk.Step(pause / 2)
	}
	require.NoError(t, <-done)
	require.Len(t, s.tried(), 3)
	require.FileExists(t, cfg.Kubeconfig)
}

// waits waits until a client has logged a message a number of times and waits for the clock.
func waits(t *testing.T, clk *testingclock.FakeClock, log *journal, message string, times int) {
	t.Helper()
	await(t, "the client waits for the clock", func() bool {
		return strings.Count(log.String(), message) == times && clk.Waiters() == 1
	})
}

// running is a client that runs.
type running struct {
	*signer
	*certificates.Client
	clock *testingclock.FakeClock
	log   *journal
	first *big.Int // the serial number of its first certificate, which lives for an hour
}

// run runs a client. Its next certificates live for four hours.
func run(t *testing.T, change func(*certificates.ClientConfig)) running {
	t.Helper()
	s := listen(t, time.Hour)
	cert, key := s.pair(time.Now().Add(time.Hour))
	s.life = 4 * time.Hour
	clk, log := testingclock.NewFakeClock(time.Now()), &journal{}
	cfg := certificates.ClientConfig{
		Kubeconfig: s.kubeconfig(&clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}), Dir: t.TempDir(), NodeName: "node1",
		Rotate: true, Clock: clk, Logger: log.logger(),
	}
	if change != nil {
		change(&cfg)
	}
	c, err := certificates.Connect(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, string(cert)+string(key), read(t, c.Config().CertFile), "the certificate of the kubeconfig is used until it is due")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	return running{s, c, clk, log, pair.Leaf.SerialNumber}
}

func TestClient_ReplacesItsCertificateAndItsConnections(t *testing.T) {
	t.Parallel()
	r := run(t, func(cfg *certificates.ClientConfig) {
		cfg.Bootstrap = filepath.Join(cfg.Dir, "deleted after the first start")
	})
	config := r.Config()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	// connection returns the client certificate of the connection that a request uses.
	connection := func() *big.Int {
		n := len(r.tried())
		_, err := client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), &certificatesv1.CertificateSigningRequest{}, metav1.CreateOptions{})
		if err != nil || len(r.tried()) == n {
			return nil // the connection was closed during the request
		}
		return r.tried()[n].serial
	}
	r.set(func() {
		r.decide = func(_ int, csr *certificatesv1.CertificateSigningRequest) {
			if csr.Spec.Request != nil {
				approve(csr, r.sign(csr.Spec.Request))
			}
		}
	})
	require.Equal(t, r.first, connection())

	waits(t, r.clock, r.log, "requested", 0)
	r.clock.Step(41 * time.Minute)
	waits(t, r.clock, r.log, "requested", 0)
	r.clock.Step(15 * time.Minute)
	waits(t, r.clock, r.log, "got a certificate", 1)
	require.Equal(t, r.first, r.tried()[1].serial, "the request is sent with the current certificate")
	require.Equal(t, "kubernetes.io/kube-apiserver-client-kubelet", r.asked()[1].Spec.SignerName)
	pair, err := tls.LoadX509KeyPair(config.CertFile, config.CertFile)
	require.NoError(t, err)
	require.NotEqual(t, r.first, pair.Leaf.SerialNumber)
	await(t, "the client connects with the new certificate", func() bool {
		serial := connection()
		return serial != nil && serial.Cmp(pair.Leaf.SerialNumber) == 0
	})
}

func TestClient_RequestsWithTheBootstrapKubeconfigWhenItsCertificateHasExpired(t *testing.T) {
	t.Parallel()
	bootstrap := filepath.Join(t.TempDir(), "bootstrap.conf")
	r := run(t, func(cfg *certificates.ClientConfig) { cfg.Bootstrap = bootstrap })
	waits(t, r.clock, r.log, "requested", 0)
	r.clock.Step(2 * time.Hour) // as if the node was suspended
	waits(t, r.clock, r.log, "there is no valid client certificate", 1)
	require.Empty(t, r.tried())
	require.NoError(t, os.Rename(r.kubeconfig(&clientcmdapi.AuthInfo{Token: "abc"}), bootstrap))
	r.clock.Step(3 * time.Second)
	waits(t, r.clock, r.log, "got a certificate", 1)
	require.Equal(t, "Bearer abc", r.tried()[0].token)
	require.Nil(t, r.tried()[0].serial)
}

func TestClient_RetriesWithItsExpiredCertificateWithoutABootstrapKubeconfig(t *testing.T) {
	t.Parallel()
	r := run(t, nil)
	waits(t, r.clock, r.log, "requested", 0)
	r.set(func() { r.refuse = func(int) *apierrors.StatusError { return apierrors.NewUnauthorized("") } })
	r.clock.Step(2 * time.Hour)
	waits(t, r.clock, r.log, "will retry", 1)
	r.clock.Step(3 * time.Second)
	waits(t, r.clock, r.log, "will retry", 2)
	require.Equal(t, r.first, r.tried()[1].serial)
}

func TestClient_RequestsACertificateForAnotherNodeName(t *testing.T) {
	t.Parallel()
	r := run(t, func(cfg *certificates.ClientConfig) { cfg.NodeName = "node2" })
	waits(t, r.clock, r.log, "got a certificate", 1)
	require.Equal(t, "system:node:node2", parse(r.asked()[0].Spec.Request).Subject.CommonName)
}

func TestConnect_UsesARelativeDir(t *testing.T) {
	s, dir := listen(t, time.Hour), t.TempDir()
	t.Chdir(dir)
	cfg := s.bootstrapped()
	cfg.Dir = "pki"
	_, err := certificates.Connect(t.Context(), cfg)
	require.NoError(t, err, "the paths in the kubeconfig are relative to the folder of the kubeconfig")
	require.FileExists(t, filepath.Join(dir, "pki", "kubelet-client-current.pem"))
}

// proxy starts a proxy and returns its URL.
func (s *signer) proxy() string {
	s.t.Helper()
	var copies sync.WaitGroup
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		client, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
		for _, pair := range [][2]net.Conn{{server, client}, {client, server}} {
			copies.Go(func() {
				_, _ = io.Copy(pair[0], pair[1])
				_ = pair[0].Close()
			})
		}
	}))
	s.t.Cleanup(func() {
		s.http.CloseClientConnections()
		copies.Wait()
		proxy.Close()
	})
	return proxy.URL
}
