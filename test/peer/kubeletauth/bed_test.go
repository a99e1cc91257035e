package kubeletauth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
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

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// idle is an agent without pods.
type idle struct{ kubeletapi.Agent }

func (idle) Pods() []agent.Pod                                  { return nil }
func (idle) Health() []agent.Check                              { return nil }
func (idle) Summary(context.Context) (*statsapi.Summary, error) { return &statsapi.Summary{}, nil }
func (idle) Node() *corev1.Node {
	n := &corev1.Node{}
	n.Name = "node1"
	return n
}

// serve serves our API until the test ends, and returns its URL.
func serve(t *testing.T, access kubeletapi.Access) (url string) {
	t.Helper()
	text := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	s, err := kubeletapi.New(kubeletapi.Config{
		Agent: idle{}, Access: access, PodLogs: t.TempDir(), Pprof: true, Configz: func() map[string]any { return nil },
		Metrics: text, ProbeMetrics: text, ResourceMetrics: text,
	})
	require.NoError(t, err)
	listener, err := s.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return access.URL(listener.Addr())
}

// apiServer responds to TokenReviews and SubjectAccessReviews. The only valid token is
// "good". The field allows decides which requests are allowed.
type apiServer struct {
	client *kubernetes.Clientset

	mu      sync.Mutex
	allows  func(authorizationv1.SubjectAccessReviewSpec) bool
	reviews []authorizationv1.SubjectAccessReviewSpec
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	var err error
	a.client, err = kubernetes.NewForConfig(&rest.Config{Host: server.URL, Transport: transport, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	require.NoError(t, err)
	return a
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		if review.Spec.Token == "good" {
			review.Status.Authenticated = true
			review.Status.User = authenticationv1.UserInfo{
				Username: "jane", UID: "7", Groups: []string{"people"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
			}
		}
		_ = json.NewEncoder(w).Encode(review)
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.reviews = append(a.reviews, review.Spec)
		review.Status.Allowed = a.allows(review.Spec)
		_ = json.NewEncoder(w).Encode(review)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (a *apiServer) taken() []authorizationv1.SubjectAccessReviewSpec {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.reviews = nil }()
	return a.reviews
}

// delegating returns the authenticator of the kubelet. Without a CA it only authenticates
// tokens.
func (a *apiServer) delegating(t *testing.T, caFile string, anonymous bool) authenticator.Request {
	t.Helper()
	cfg := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: anonymous}, CacheTTL: time.Minute,
		TokenAccessReviewClient: a.client.AuthenticationV1(), WebhookRetryBackoff: &wait.Backoff{Steps: 1},
	}
	if caFile != "" {
		data, err := os.ReadFile(caFile)
		require.NoError(t, err)
		ca, err := dynamiccertificates.NewStaticCAContent("ca", data)
		require.NoError(t, err)
		cfg.ClientCertificateCAContentProvider = ca
	}
	all, _, err := cfg.New()
	require.NoError(t, err)
	return all
}

// authorizer returns the authorizer of the kubelet in the mode Webhook.
func (a *apiServer) authorizer(t *testing.T) authorizer.Authorizer {
	t.Helper()
	all, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: a.client.AuthorizationV1(), WebhookRetryBackoff: &wait.Backoff{Steps: 1},
	}.New()
	require.NoError(t, err)
	return all
}

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{cert, key}
}

// access writes the CA's certificate and key, and returns an Access that serves with them.
func (a *authority) access(t *testing.T) kubeletapi.Access {
	t.Helper()
	dir := t.TempDir()
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	require.NoError(t, err)
	access := kubeletapi.Access{CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key"), ClientCAFile: filepath.Join(dir, "cert")}
	require.NoError(t, os.WriteFile(access.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600))
	require.NoError(t, os.WriteFile(access.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	return access
}

// issue returns a client certificate.
func (a *authority) issue(t *testing.T, name string, change func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: []string{"admins", "people"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// ask sends a request to our server, and returns the code and the text of the response.
func ask(t *testing.T, method, url string, cert *tls.Certificate, authorization string) (code int, text string) {
	t.Helper()
	cfg := &tls.Config{InsecureSkipVerify: true}
	if cert != nil {
		cfg.Certificates = []tls.Certificate{*cert}
	}
	transport := &http.Transport{TLSClientConfig: cfg}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	answer, err := transport.RoundTrip(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, strings.TrimSpace(string(data))
}
