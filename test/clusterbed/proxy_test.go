//go:build chaos

package clusterbed_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// proxyPort is the port of the proxy at the address of the node.
const proxyPort = "7443"

// proxy passes the requests of the agent to the API server, with the certificate of the node, and
// causes faults.
type proxy struct {
	forward *httputil.ReverseProxy
	server  *http.Server
	ended   chan error

	mu        sync.Mutex
	faults    faults
	requests  int // since the faults were set
	refused   int // of these requests
	breakOpen chan struct{}
}

// faults are the faults of a proxy. The zero value has no faults.
type faults struct {
	latency    time.Duration // of each request
	errorEvery int           // of each group of this many requests, the middle request fails; 0: none fails
	eventDelay time.Duration // of everything that a watch returns
	// refuse returns the status code with which a request is refused, or 0. Optional.
	refuse func(*http.Request) int
	hold   <-chan struct{} // requests wait until it is closed; nil: they do not wait
}

// throughProxy starts a proxy, and restarts the agent with the proxy as its API server.
func throughProxy(t *testing.T) *proxy {
	t.Helper()
	p := &proxy{ended: make(chan error, 1), breakOpen: make(chan struct{})}
	target, err := url.Parse(server(""))
	require.NoError(t, err)
	p.forward = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transportOf(t, "node"),
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ModifyResponse: func(answer *http.Response) error {
			if answer.Request.URL.Query().Get("watch") != "" {
				answer.Body = p.delay(answer.Request.Context(), answer.Body)
			}
			return nil
		},
	}
	// The proxy has its own certificates: for an agent whose clock is behind, those of the bed are not
	// valid yet.
	ca := issue(t, "proxy-ca", &x509.Certificate{
		NotAfter: time.Now().Add(24 * time.Hour), Subject: pkix.Name{CommonName: "proxy-ca"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, nil)
	issue(t, "proxy", &x509.Certificate{
		NotAfter: time.Now().Add(24 * time.Hour), Subject: pkix.Name{CommonName: "proxy"}, IPAddresses: []net.IP{net.ParseIP(bed.env["NODE_IP"])},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, &ca)
	listener, err := listenInside(bed.env["NODE_IP"] + ":" + proxyPort)
	require.NoError(t, err)
	p.server = &http.Server{Handler: p, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { p.ended <- p.server.ServeTLS(listener, pki("proxy.crt"), pki("proxy.key")) }()
	t.Cleanup(func() {
		p.set(faults{})
		require.NoError(t, p.server.Close())
		require.ErrorIs(t, <-p.ended, http.ErrServerClosed)
	})
	restart(t, proxied(t)...)
	return p
}

// proxied returns the flags for a kubeconfig of the node with the proxy as the API server.
func proxied(t *testing.T) []string {
	t.Helper()
	dir := bed.env["KPCLUSTER_DIR"]
	config, err := os.ReadFile(filepath.Join(dir, "node.kubeconfig"))
	require.NoError(t, err)
	file := filepath.Join(dir, "proxied.kubeconfig")
	text := strings.NewReplacer(":6443", ":"+proxyPort, bed.env["CLUSTER_CA"], pki("proxy-ca.crt")).Replace(string(config))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return []string{"--kubeconfig", file}
}

// set replaces the faults, and returns the numbers of the requests and of the refused requests since
// the last call.
func (p *proxy) set(f faults) (requests, refused int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	requests, refused = p.requests, p.refused
	p.faults, p.requests, p.refused = f, 0, 0
	return requests, refused
}

// endWatches ends all watches as an API server ends them.
func (p *proxy) endWatches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.breakOpen)
	p.breakOpen = make(chan struct{})
}

// next counts a request and returns the faults for it, and the code with which it is refused or 0.
func (p *proxy) next(r *http.Request) (f faults, code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	f = p.faults
	if f.refuse != nil {
		code = f.refuse(r)
	}
	if f.errorEvery > 0 && p.requests%f.errorEvery == f.errorEvery/2 {
		code = http.StatusInternalServerError
	}
	if code != 0 {
		p.refused++
	}
	return f, code
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, code := p.next(r)
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-r.Context().Done():
			return
		}
	}
	select {
	case <-time.After(f.latency):
	case <-r.Context().Done():
		return
	}
	if code == 0 {
		p.forward.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	reason := map[int]metav1.StatusReason{http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusInternalServerError: metav1.StatusReasonInternalError}[code]
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "refused by the proxy of the test",
	})
}

// delay returns a body whose data arrive after the delay of the faults.
func (p *proxy) delay(ctx context.Context, body io.ReadCloser) io.ReadCloser {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &delayed{proxy: p, ctx: ctx, body: body, chunks: make(chan chunk, 1<<16), cut: p.breakOpen}
	go d.receive()
	return d
}

// delayed is the body of the response to a watch.
type delayed struct {
	proxy  *proxy
	ctx    context.Context
	body   io.ReadCloser
	chunks chan chunk // closed at the end of the body
	cut    <-chan struct{}
	rest   []byte // of the last chunk
}

type chunk struct {
	data []byte
	at   time.Time // when it arrived
}

// receive reads the body until its end.
func (d *delayed) receive() {
	defer close(d.chunks)
	for {
		data := make([]byte, 1<<15)
		n, err := d.body.Read(data)
		if n > 0 {
			d.chunks <- chunk{data[:n], time.Now()}
		}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (d *delayed) Read(into []byte) (int, error) {
	if len(d.rest) == 0 {
		if err := d.next(); err != nil {
			return 0, err
		}
	}
	n := copy(into, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// next waits for the next chunk, and then until it is due.
func (d *delayed) next() error {
	var c chunk
	var open bool
	select {
	case c, open = <-d.chunks:
		if !open {
			return io.EOF
		}
	case <-d.cut:
		return io.EOF
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
	d.proxy.mu.Lock()
	wait := d.proxy.faults.eventDelay
	d.proxy.mu.Unlock()
	select {
	case <-time.After(time.Until(c.at.Add(wait))):
	case <-d.cut:
		return io.EOF
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
	d.rest = c.data
	return nil
}

// Close implements io.Closer.
func (d *delayed) Close() error { return d.body.Close() }
