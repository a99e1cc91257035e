package certificates_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"

	"github.com/kubeparts/kubeparts/agent/cluster/certificates"
)

func TestMain(m *testing.M) {
	// Between two errors, client-go sleeps until the time of the last one is over. It shares that time
	// between bubbles, whose clocks differ by years.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	// Clients notice a replaced certificate soon.
	transport.CertCallbackRefreshDuration = 50 * time.Millisecond
	goleak.VerifyTestMain(m,
		// client-go watches the file of a client certificate as long as the process runs.
		goleak.IgnoreAnyFunction("k8s.io/client-go/transport.(*dynamicClientCert).run"),
		goleak.IgnoreAnyFunction("k8s.io/client-go/transport.(*dynamicClientCert).runWorker"),
		goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop"),
		goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*Typed[...]).updateUnfinishedWorkLoop"),
	)
}

// signer is an API server that signs requests for certificates. It answers over TLS after listen, and
// in memory as a transport of clients, which works in a synctest bubble.
type signer struct {
	t    *testing.T
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey
	life time.Duration
	http *httptest.Server // nil before listen

	mu sync.Mutex
	// decide changes the request with number n, which starts with 0. By default, each request is
	// approved and signed.
	decide func(n int, csr *certificatesv1.CertificateSigningRequest)
	// refuse returns the response to the creation with number n, or nil to accept it.
	refuse   func(n int) *apierrors.StatusError
	away     bool // no request reaches the server
	attempts []attempt
	requests []certificatesv1.CertificateSigningRequest
	reads    int           // lists and watches
	changed  chan struct{} // closed at the next change
}

// attempt is an attempt to create a CertificateSigningRequest.
type attempt struct {
	at     time.Time
	token  string   // the Authorization header
	serial *big.Int // of the client certificate; nil without one
}

func newSigner(t *testing.T, life time.Duration) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	ca, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &signer{t: t, ca: ca, key: key, life: life, changed: make(chan struct{})}
}

// listen returns a signer that listens on a port.
func listen(t *testing.T, life time.Duration) *signer {
	t.Helper()
	s := newSigner(t, life)
	s.http = httptest.NewUnstartedServer(s)
	s.http.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS13}
	s.http.StartTLS() // clients send credentials over TLS only
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// client returns a client that reaches the signer in memory.
func (s *signer) client() kubernetes.Interface {
	s.t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api.test", Transport: s, QPS: -1})
	require.NoError(s.t, err)
	return client
}

// set changes fields of the signer.
func (s *signer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// sign returns a certificate for a request, as PEM.
func (s *signer) sign(request []byte) []byte {
	csr := parse(request)
	return s.issue(&x509.Certificate{Subject: csr.Subject, DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses, NotAfter: time.Now().Add(s.life)}, csr.PublicKey)
}

// issue returns a certificate, as PEM.
func (s *signer) issue(template *x509.Certificate, key crypto.PublicKey) []byte {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		panic(err)
	}
	template.SerialNumber, template.NotBefore = serial, template.NotAfter.Add(-s.life-time.Second)
	der, err := x509.CreateCertificate(rand.Reader, template, s.ca, key, s.key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// parse returns the request in a PEM block.
func parse(request []byte) *x509.CertificateRequest {
	block, _ := pem.Decode(request)
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		panic(err)
	}
	return csr
}

// approve approves a request and issues a certificate, nil if the certificate is not issued yet.
func approve(csr *certificatesv1.CertificateSigningRequest, cert []byte) {
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue})
	csr.Status.Certificate = cert
}

// ServeHTTP implements http.Handler.
func (s *signer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodPost:
		s.create(w, r)
	case query.Get("sendInitialEvents") != "": // as an old server, which has only lists and watches
		answer(w, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
	case query.Get("watch") != "":
		s.watch(w, r)
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reads++
		_ = json.NewEncoder(w).Encode(certificatesv1.CertificateSigningRequestList{
			TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequestList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: s.selected(query),
		})
	}
}

// answer writes an error.
func answer(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

// create stores a request for a certificate and decides about it.
func (s *signer) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	sent, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := attempt{at: time.Now(), token: r.Header.Get("Authorization")}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		a.serial = r.TLS.PeerCertificates[0].SerialNumber
	}
	s.attempts = append(s.attempts, a)
	if s.refuse != nil {
		if err := s.refuse(len(s.attempts) - 1); err != nil {
			answer(w, err)
			return
		}
	}
	csr, n := *sent.(*certificatesv1.CertificateSigningRequest), len(s.requests)
	csr.Name, csr.UID, csr.ResourceVersion = csr.GenerateName+strconv.Itoa(n), "1", "1"
	if s.decide != nil {
		s.decide(n, &csr)
	} else {
		approve(&csr, s.sign(csr.Spec.Request))
	}
	s.requests = append(s.requests, csr)
	_ = json.NewEncoder(w).Encode(csr)
}

// selected returns the requests that a client has selected.
func (s *signer) selected(query url.Values) (items []certificatesv1.CertificateSigningRequest) {
	for _, csr := range s.requests {
		if query.Get("fieldSelector") == "metadata.name="+csr.Name {
			items = append(items, csr)
		}
	}
	return items
}

// watch sends the selected requests at each change.
func (s *signer) watch(w http.ResponseWriter, r *http.Request) {
	s.set(func() { s.reads++ })
	w.WriteHeader(http.StatusOK)
	for r.Context().Err() == nil {
		s.mu.Lock()
		items, changed, away := s.selected(r.URL.Query()), s.changed, s.away
		s.mu.Unlock()
		if away {
			return
		}
		for _, csr := range items {
			csr.TypeMeta = metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": csr})
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		select {
		case <-changed:
		case <-r.Context().Done():
		}
	}
}

// RoundTrip implements http.RoundTripper: it answers in memory.
func (s *signer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	away := s.away
	if away && r.Method == http.MethodPost {
		s.attempts = append(s.attempts, attempt{at: time.Now()})
	}
	s.mu.Unlock()
	if away {
		return nil, errors.New("connection refused")
	}
	recorder := httptest.NewRecorder()
	if r.URL.Query().Get("watch") == "" || r.URL.Query().Get("sendInitialEvents") != "" {
		s.ServeHTTP(recorder, r)
		return recorder.Result(), nil
	}
	read, write := io.Pipe()
	context.AfterFunc(r.Context(), func() { read.CloseWithError(r.Context().Err()) })
	go func() {
		s.ServeHTTP(pipe{recorder, write}, r)
		_ = write.Close()
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: read, Request: r, ContentLength: -1}, nil
}

// pipe is an http.ResponseWriter that writes the body to a pipe.
type pipe struct {
	http.ResponseWriter
	body io.Writer
}

func (p pipe) Write(data []byte) (int, error) { return p.body.Write(data) }

// trust returns the certificate that clients of the server trust, as PEM.
func (s *signer) trust() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
}

// asked returns the requests for certificates.
func (s *signer) asked() []certificatesv1.CertificateSigningRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// tried returns the attempts to create a request.
func (s *signer) tried() []attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.attempts)
}

// kubeconfig writes a kubeconfig for the signer and returns its path.
func (s *signer) kubeconfig(user *clientcmdapi.AuthInfo) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "config")
	require.NoError(s.t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: s.http.URL, CertificateAuthorityData: s.trust()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": user},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, path))
	return path
}

// pair returns a certificate of the node that expires at end, and its key, as PEM.
func (s *signer) pair(end time.Time) (cert, key []byte) {
	s.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(s.t, err)
	der, err := x509.MarshalECPrivateKey(private)
	require.NoError(s.t, err)
	cert = s.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "system:node:node1", Organization: []string{"system:nodes"}}, IPAddresses: []net.IP{{10, 0, 0, 1}}, NotAfter: end,
	}, private.Public())
	return cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// await waits until a condition is true.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick, end := time.NewTicker(20*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			require.Fail(t, "still not: "+what)
		}
	}
}

// read returns the content of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

// bed is the serving certificate of a node in a synctest bubble, with a signer in memory.
type bed struct {
	*signer
	dir    string
	log    journal
	server *certificates.Server

	mu        sync.Mutex
	addresses []corev1.NodeAddress
}

// journal is a log that several goroutines write to.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// logger returns a logger that writes to the journal.
func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// inBubble calls f with a new bed whose certificates live for an hour, in a synctest bubble.
func inBubble(t *testing.T, f func(b *bed)) {
	t.Helper()
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	synctest.Test(t, func(t *testing.T) {
		f(&bed{signer: newSigner(t, time.Hour), dir: dir, addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}})
	})
}

// start starts a Server, and returns a function that stops it.
func (b *bed) start() (stop func()) {
	b.t.Helper()
	var err error
	b.server, err = certificates.NewServer(certificates.ServerConfig{
		Client: b.client(), NodeName: "node1", Dir: b.dir, Logger: b.log.logger(),
		Addresses: func() []corev1.NodeAddress {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.addresses
		},
	})
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.server.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(b.t, <-done)
	})
	b.t.Cleanup(stop)
	synctest.Wait()
	return stop
}

// move changes the addresses of the node.
func (b *bed) move(ips ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addresses = nil
	for _, ip := range ips {
		b.addresses = append(b.addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
}

// served returns the certificate that the node serves, nil if it has none.
func (b *bed) served() *x509.Certificate {
	current, err := b.server.GetCertificate(nil)
	if err != nil {
		require.ErrorContains(b.t, err, "must be approved")
		return nil
	}
	return current.Leaf
}

// current returns the path of the link to the current serving certificate.
func (b *bed) current() string { return filepath.Join(b.dir, "kubelet-server-current.pem") }

// after waits for a time of the bubble, and until every goroutine waits too.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
