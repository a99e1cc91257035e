package prober_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeparts/kubeparts/prober"
)

// tape is a connection to a server that answers any request and records it.
type tape struct {
	net.Conn
	asked bytes.Buffer
	done  chan struct{}
	rest  io.Reader
}

func newTape() *tape {
	return &tape{done: make(chan struct{}), rest: strings.NewReader("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")}
}

func (t *tape) Write(b []byte) (int, error) {
	defer func() {
		if bytes.HasSuffix(t.asked.Bytes(), []byte("\r\n\r\n")) {
			close(t.done)
		}
	}()
	return t.asked.Write(b)
}

func (t *tape) Read(b []byte) (int, error)  { <-t.done; return t.rest.Read(b) }
func (t *tape) Close() error                { return nil }
func (t *tape) SetDeadline(time.Time) error { return nil }

func (t *tape) dial(context.Context, string, string) (net.Conn, error) { return t, nil }

// request returns the recorded request in a canonical order.
func (t *tape) request() string {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(t.asked.Bytes())))
	if err == nil {
		slices.Sort(r.Header["Connection"])
	}
	return fmt.Sprintf("%v %+v", err, r)
}

// byNetHTTP sends the request of a probe like the kubelet, with a client of net/http, and
// returns the recorded request.
func byNetHTTP(get *corev1.HTTPGetAction, address string) (string, error) {
	u, err := url.Parse(get.Path)
	if err != nil {
		u = &url.URL{Path: get.Path}
	}
	u.Scheme, u.Host = strings.ToLower(string(get.Scheme)), address
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	request, err := http.NewRequest(http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return "", err
	}
	request.Header = http.Header{"Accept": {"*/*"}, "User-Agent": {"kube-probe/1.36"}}
	for _, h := range get.HTTPHeaders {
		if name := http.CanonicalHeaderKey(h.Name); name == "Accept" || name == "User-Agent" {
			request.Header[name] = []string{h.Value}
			if name == "Accept" && h.Value == "" {
				delete(request.Header, name)
			}
			continue
		}
		request.Header.Add(h.Name, h.Value)
	}
	if host := request.Header.Get("Host"); host != "" {
		request.Host = host
	}
	t := newTape()
	transport := &http.Transport{DialContext: t.dial, DisableCompression: true, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	return t.request(), response.Body.Close()
}

// For any spec, the prober sends the same request as a client of net/http, or both send
// no request, for the same reason.
func FuzzRequest(f *testing.F) {
	f.Add("", "/", "", "")
	f.Add("HTTP", "/a/b?c=d%20e#f", "x", "1")
	f.Add("/", "/", "", "")
	f.Add("http://evil.test/", "/", "", "")
	f.Add("ftp", "/", "", "")
	f.Add("http", "mailto:x", "", "")
	f.Add("http", "//evil.test/a", "Host", "example.com")
	f.Add("http", "//user:secret@evil.test/a", "", "")
	f.Add("http", "http://user@evil.test/a", "authorization", "Bearer x")
	f.Add("http", "a%zz", "User-Agent", "")
	f.Add("http", "*", "accept", "")
	f.Add("http", "", "Host", "a b")
	f.Add("http", "/\n", "X", "a\r\nEvil: b")
	f.Add("http", "?", "X Y", "a")
	f.Add("http", "/", "Connection", "keep-alive")
	f.Add("http", "/", "Content-Length", "5")
	f.Add("http", "/", "Transfer-Encoding", "chunked")
	f.Fuzz(func(t *testing.T, scheme, path, name, value string) {
		if strings.EqualFold(scheme, "https") {
			return // over TLS the request is the same
		}
		get := &corev1.HTTPGetAction{Scheme: corev1.URIScheme(scheme), Path: path, Port: intstr.FromInt32(80)}
		if name != "" {
			get.HTTPHeaders = []corev1.HTTPHeader{{Name: name, Value: value}}
		}
		want, wantErr := byNetHTTP(get, "127.0.0.1:80")
		n, asked := newTestNode(), newTape()
		m := manager(t, n, realClock(), func(cfg *prober.Config) { cfg.Dial = asked.dial })
		m.AddPod(podOf(corev1.Container{Name: "app", ReadinessProbe: probeOf(func(p *corev1.Probe) { p.ProbeHandler = corev1.ProbeHandler{HTTPGet: get} })}))
		n.runsAt("app", "a", time.Now())
		defer m.RemovePod("1234")
		r, err := m.Probe(t.Context(), key("app", prober.Readiness))
		require.NoError(t, err)
		switch {
		case strings.Contains(r.Output, "leads to another host than 127.0.0.1:80"):
			// The URL names another host. The kubelet would send the request to it.
			require.Equal(t, prober.Failed, r.Outcome)
		case wantErr == nil:
			require.Equal(t, prober.Succeeded, r.Outcome, r.Output)
			require.Equal(t, want, asked.request())
		case r.Err != nil:
			require.Equal(t, wantErr.Error(), r.Err.Error())
		default:
			require.Equal(t, prober.Failed, r.Outcome)
			require.Equal(t, wantErr.Error(), r.Output)
		}
	})
}
