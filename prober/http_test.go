package prober_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/prober"
)

// site is a manager with a readiness probe of a server on this machine.
type site struct {
	*prober.Manager
	*node
	t     testing.TB
	conns atomic.Int32 // number of connections that were opened
}

// probeSite probes the address with the given spec. The timeout of its probe is long, for a busy machine.
func probeSite(tb testing.TB, address string, change ...func(*corev1.Container)) *site {
	tb.Helper()
	_, port, err := net.SplitHostPort(address)
	require.NoError(tb, err)
	number, err := strconv.Atoi(port)
	require.NoError(tb, err)
	c := corev1.Container{Name: "app", ReadinessProbe: probeOf(httpGet(number, "/"))}
	c.ReadinessProbe.TimeoutSeconds = 30
	c.Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: int32(number)}}
	for _, f := range change {
		f(&c)
	}
	s := &site{node: newTestNode(), t: tb}
	s.Manager = manager(tb, s.node, clock.RealClock{}, func(cfg *prober.Config) {
		var d net.Dialer
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			s.conns.Add(1)
			return d.DialContext(ctx, network, address)
		}
	})
	s.AddPod(podOf(c))
	s.runsAt("app", "a", time.Now())
	tb.Cleanup(func() { s.RemovePod("1234") })
	return s
}

func (s *site) probe() (prober.Outcome, string) {
	s.t.Helper()
	r, err := s.Probe(s.t.Context(), key("app", prober.Readiness))
	require.NoError(s.t, err)
	require.NoError(s.t, r.Err)
	return r.Outcome, r.Output
}

func (s *site) want(o prober.Outcome, output string) {
	s.t.Helper()
	outcome, got := s.probe()
	require.Equal(s.t, o, outcome, got)
	require.Contains(s.t, got, output)
}

func get(f func(*corev1.HTTPGetAction)) func(*corev1.Container) {
	return func(c *corev1.Container) { f(c.ReadinessProbe.HTTPGet) }
}

// impatient sets a timeout of one second.
func impatient(c *corev1.Container) { c.ReadinessProbe.TimeoutSeconds = 1 }

// within checks that run takes less than a limit. A busy machine can only make it slower, so one of five
// attempts must be fast enough. within returns the number of attempts.
func within(t *testing.T, limit time.Duration, run func()) (attempts int) {
	t.Helper()
	var took []time.Duration
	for range 5 {
		began := time.Now()
		run()
		took = append(took, time.Since(began))
		if slices.Min(took) < limit {
			return len(took)
		}
	}
	require.Fail(t, "each attempt was too slow", "%v; the limit is %v", took, limit)
	return len(took)
}

func serve(tb testing.TB, h http.HandlerFunc) string {
	tb.Helper()
	s := httptest.NewServer(h)
	tb.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestHTTP_StatusCodes(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		outcome prober.Outcome
		output  string
	}{
		200: {prober.Succeeded, "body"}, 201: {prober.Succeeded, "body"}, 204: {prober.Succeeded, ""}, 299: {prober.Succeeded, "body"},
		300: {prober.Warned, "Probe terminated redirects, Response body: body"},
		304: {prober.Warned, "Probe terminated redirects, Response body: "},
		399: {prober.Warned, "Probe terminated redirects, Response body: body"},
		400: {prober.Failed, "HTTP probe failed with statuscode: 400"},
		401: {prober.Failed, "HTTP probe failed with statuscode: 401"},
		500: {prober.Failed, "HTTP probe failed with statuscode: 500"},
		503: {prober.Failed, "HTTP probe failed with statuscode: 503"},
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			s := probeSite(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "body")
			}))
			for range 3 {
				outcome, output := s.probe()
				require.Equal(t, want.outcome, outcome)
				require.Equal(t, want.output, output)
			}
		})
	}
}

func TestHTTP_Requests(t *testing.T) {
	t.Parallel()
	headers := func(pairs ...string) func(*corev1.HTTPGetAction) {
		return func(h *corev1.HTTPGetAction) {
			for i := 0; i < len(pairs); i += 2 {
				h.HTTPHeaders = append(h.HTTPHeaders, corev1.HTTPHeader{Name: pairs[i], Value: pairs[i+1]})
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*corev1.HTTPGetAction)
		want   string
	}{
		"plain":             {func(*corev1.HTTPGetAction) {}, "GET / UA=[kube-probe/1.36] Accept=[*/*] X=[]"},
		"query":             {func(h *corev1.HTTPGetAction) { h.Path = "/a/b?c=d%20e" }, "GET /a/b?c=d%20e UA=[kube-probe/1.36] Accept=[*/*] X=[]"},
		"without a slash":   {func(h *corev1.HTTPGetAction) { h.Path = "healthz" }, "GET /healthz UA=[kube-probe/1.36] Accept=[*/*] X=[]"},
		"unparsable path":   {func(h *corev1.HTTPGetAction) { h.Path = "/a%zz" }, "GET /a%25zz UA=[kube-probe/1.36] Accept=[*/*] X=[]"},
		"named port":        {func(h *corev1.HTTPGetAction) { h.Port = intstr.FromString("web") }, "GET / UA=[kube-probe/1.36] Accept=[*/*] X=[]"},
		"own headers":       {headers("x", "1", "X", "2"), "GET / UA=[kube-probe/1.36] Accept=[*/*] X=[1 2]"},
		"own agent":         {headers("user-agent", "me", "accept", "text/html"), "GET / UA=[me] Accept=[text/html] X=[]"},
		"no agent":          {headers("User-Agent", "", "Accept", ""), "GET / UA=[] Accept=[] X=[]"},
		"host":              {headers("Host", "example.com"), "GET / UA=[kube-probe/1.36] Accept=[*/*] X=[] Host=example.com"},
		"upper-case scheme": {func(h *corev1.HTTPGetAction) { h.Scheme = "HTTP" }, "GET / UA=[kube-probe/1.36] Accept=[*/*] X=[]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := probeSite(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, "%s %s UA=%v Accept=%v X=%v", r.Method, r.RequestURI, r.Header["User-Agent"], r.Header["Accept"], r.Header["X"])
				if !strings.HasPrefix(r.Host, "127.") {
					fmt.Fprint(w, " Host=", r.Host)
				}
			}), get(c.change))
			for range 2 {
				outcome, output := s.probe()
				require.Equal(t, prober.Succeeded, outcome, output)
				require.Equal(t, c.want, output)
			}
		})
	}
}

func TestHTTP_IPv6(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	require.NoError(t, err, "this machine has no IPv6 loopback address")
	server := &http.Server{Handler: http.NotFoundHandler()}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	s := probeSite(t, l.Addr().String(), get(func(h *corev1.HTTPGetAction) { h.Host = "::1" }))
	s.want(prober.Failed, "HTTP probe failed with statuscode: 404")
}

func TestHTTP_Redirects(t *testing.T) {
	t.Parallel()
	other := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "other ", r.Host) })
	for path, want := range map[string]struct {
		outcome prober.Outcome
		output  string
	}{
		"/local":   {prober.Succeeded, "arrived at example.com"}, // a relative URL keeps the Host header
		"/port":    {prober.Succeeded, "other " + other},
		"/foreign": {prober.Warned, "Probe terminated redirects, Response body: go away"},
		"/loop":    {prober.Failed, "stopped after 10 redirects"},
		"/odd":     {prober.Failed, "failed to parse Location header"},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			s := probeSite(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				to := map[string]string{"/local": "/there", "/port": "http://" + other + "/", "/foreign": "http://example.invalid/", "/loop": "/loop", "/odd": "%zz"}
				if r.URL.Path == "/there" {
					fmt.Fprint(w, "arrived at ", r.Host)
					return
				}
				asked.Add(1)
				w.Header().Set("Location", to[r.URL.Path])
				w.WriteHeader(http.StatusFound)
				fmt.Fprint(w, "go away")
			}), get(func(h *corev1.HTTPGetAction) {
				h.Path, h.HTTPHeaders = path, []corev1.HTTPHeader{{Name: "Host", Value: "example.com"}}
			}))
			for i := range 2 {
				s.want(want.outcome, want.output)
				if want.outcome == prober.Succeeded {
					require.EqualValues(t, i+1, asked.Load()) // each run sends one request
				}
			}
		})
	}
}

// Credentials in a URL are sent to that URL only.
func TestHTTP_CredentialsAreNotForwarded(t *testing.T) {
	t.Parallel()
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if r.URL.Path == "/a" && user == "me" && password == "secret" {
			http.Redirect(w, r, "http://"+r.Host+"/b", http.StatusFound) // a relative redirect also has the credentials
			return
		}
		fmt.Fprintf(w, "%s %q", r.URL.Path, r.Header["Authorization"])
	})
	s := probeSite(t, address, get(func(h *corev1.HTTPGetAction) { h.Path = "//me:secret@there/a" }))
	s.want(prober.Succeeded, "/b []")
	given := probeSite(t, address, get(func(h *corev1.HTTPGetAction) {
		h.Path, h.HTTPHeaders = "//me:secret@there/b", []corev1.HTTPHeader{{Name: "authorization", Value: "Bearer x"}}
	}))
	given.want(prober.Succeeded, `/b ["Bearer x"]`)
}

// Probes and their redirects do not use the node's proxy.
func TestHTTP_UsesNoProxy(t *testing.T) {
	for _, name := range []string{"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	n := newTestNode()
	var dialed []string
	m := manager(t, n, clock.RealClock{}, func(cfg *prober.Config) {
		cfg.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
			dialed = append(dialed, address)
			c := newTape()
			if len(dialed) == 1 {
				c.rest = strings.NewReader("HTTP/1.1 302 Found\r\nLocation: http://pod.example:81/\r\nContent-Length: 0\r\n\r\n")
			}
			return c, nil
		}
	})
	m.AddPod(podOf(corev1.Container{Name: "app", ReadinessProbe: probeOf(httpGet(80, "/"), func(p *corev1.Probe) { p.HTTPGet.Host = "pod.example" })}))
	n.runsAt("app", "a", time.Now())
	defer m.RemovePod("1234")
	r, err := m.Probe(t.Context(), key("app", prober.Readiness))
	require.NoError(t, err)
	require.Equal(t, prober.Succeeded, r.Outcome, r.Output)
	require.Equal(t, []string{"pod.example:80", "pod.example:81"}, dialed)
}

// The prober reads no more than the first 10 KiB of a response of any size.
func TestHTTP_LargeBody(t *testing.T) {
	t.Parallel()
	for name, length := range map[string]bool{"with its length": true, "chunked": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := probeSite(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if length {
					w.Header().Set("Content-Length", strconv.Itoa(1<<30))
				}
				chunk := make([]byte, 1<<20)
				for range 1 << 10 {
					if _, err := w.Write(chunk); err != nil {
						return
					}
				}
			}))
			began := time.Now()
			outcome, output := s.probe()
			require.Equal(t, prober.Succeeded, outcome)
			require.Len(t, output, 10<<10)
			require.Less(t, time.Since(began), 10*time.Second)
		})
	}
}

// Regression test: a response with headers above 4 KiB, and more than 14 KiB in total, made
// each run fail, so that a healthy container was killed.
func TestHTTP_HeadAbove4KiBAndLargeBody(t *testing.T) {
	t.Parallel()
	for _, head := range []int{4000, 4096, 5000, 40_000} {
		for _, body := range []int{2, 10<<10 - 1, 10 << 10, 20 << 10} {
			for _, chunked := range []bool{false, true} {
				s := probeSite(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Security-Policy", strings.Repeat("x", head))
					if chunked {
						_ = http.NewResponseController(w).Flush()
					} else {
						w.Header().Set("Content-Length", strconv.Itoa(body))
					}
					_, _ = io.WriteString(w, strings.Repeat("y", body))
				}))
				for range 2 {
					outcome, output := s.probe()
					require.Equal(t, prober.Succeeded, outcome, output)
					require.Len(t, output, min(body, 10<<10))
				}
			}
		}
	}
}

// The limit for headers is net/http's 10 MiB, as in the kubelet.
func TestHTTP_LargeHeader(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]prober.Outcome{2 << 20: prober.Succeeded, 11 << 20: prober.Failed} {
		s := probeSite(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
			line := strings.Repeat("x", 1<<10)
			for range size >> 10 {
				w.Header().Add("X", line)
			}
		}))
		outcome, output := s.probe()
		require.Equal(t, want, outcome, output)
	}
}

func TestHTTP_TLS(t *testing.T) {
	t.Parallel()
	for name, protocols := range map[string][]string{"both": {"h2", "http/1.1"}, "only 1.1": {"http/1.1"}, "only 2": {"h2"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
			server.EnableHTTP2 = true
			server.Config.ErrorLog = discard()
			server.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				c := server.TLS.Clone()
				c.NextProtos, c.GetConfigForClient = protocols, nil
				if !slices.ContainsFunc(protocols, func(p string) bool { return slices.Contains(hello.SupportedProtos, p) }) {
					c.NextProtos = []string{"none"} // with HTTP/1.1 in the list, Go would accept the connection
				}
				return c, nil
			}}
			server.StartTLS()
			defer server.Close()
			s := probeSite(t, server.Listener.Addr().String(), get(func(h *corev1.HTTPGetAction) { h.Scheme = corev1.URISchemeHTTPS }))
			want := "HTTP/1.1"
			if slices.Contains(protocols, "h2") { // the prober prefers HTTP/2, like the kubelet
				want = "HTTP/2.0"
			}
			for range 3 {
				s.want(prober.Succeeded, want)
			}
		})
	}
	plain := probeSite(t, serve(t, http.NotFound), get(func(h *corev1.HTTPGetAction) { h.Scheme = "HTTPS" }))
	plain.want(prober.Failed, "http: server gave HTTP response to HTTPS client")
}

// script serves connections by hand: each function is one connection.
func script(tb testing.TB, conns ...func(c net.Conn, r *bufio.Reader)) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, serve := range conns {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c, bufio.NewReader(c))
			_ = c.Close()
		}
	}()
	tb.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// request reads a request and reports whether it was complete.
func request(r *bufio.Reader) bool {
	q, err := http.ReadRequest(r)
	return err == nil && q != nil
}

func say(text string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, r *bufio.Reader) {
		if request(r) {
			_, _ = io.WriteString(c, text)
		}
	}
}

const okay = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestHTTP_OddServers(t *testing.T) {
	t.Parallel()
	reset := func(c net.Conn, r *bufio.Reader) {
		request(r)
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	for name, c := range map[string]struct {
		conns   []func(net.Conn, *bufio.Reader)
		outcome prober.Outcome
		output  string
	}{
		"chunked":       {[]func(net.Conn, *bufio.Reader){say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")}, prober.Succeeded, "ok"},
		"informational": {[]func(net.Conn, *bufio.Reader){say("HTTP/1.1 103 Early Hints\r\n\r\n" + okay)}, prober.Succeeded, "ok"},
		"many informational": {
			[]func(net.Conn, *bufio.Reader){say(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", 100) + okay)}, prober.Succeeded, "ok",
		},
		"redirect with half a body": {
			[]func(net.Conn, *bufio.Reader){say("HTTP/1.1 302 Found\r\nLocation: /a\r\nContent-Length: 9\r\n\r\nno"), say(okay)}, prober.Succeeded, "ok",
		},
		"half a head": {
			[]func(net.Conn, *bufio.Reader){say("HTTP/1.1 200 OK\r\n")},
			prober.Failed, "net/http: HTTP/1.x transport connection broken: unexpected EOF",
		},
		"until the end": {[]func(net.Conn, *bufio.Reader){say("HTTP/1.0 200 OK\r\n\r\nall")}, prober.Succeeded, "all"},
		"no HTTP":       {[]func(net.Conn, *bufio.Reader){say("SSH-2.0-OpenSSH\r\n")}, prober.Failed, `": net/http: HTTP/1.x transport connection broken: malformed HTTP response "SSH-2.0-OpenSSH"`},
		"nothing":       {[]func(net.Conn, *bufio.Reader){say("")}, prober.Failed, "EOF"},
		"reset":         {[]func(net.Conn, *bufio.Reader){reset}, prober.Failed, "connection reset by peer"},
		"half a body (#122591)": {
			[]func(net.Conn, *bufio.Reader){say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")}, prober.Failed, "unexpected EOF",
		},
		"half a chunk": {
			[]func(net.Conn, *bufio.Reader){say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok")}, prober.Failed, "unexpected EOF",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			probeSite(t, script(t, c.conns...)).want(c.outcome, c.output)
		})
	}
}

// If the connection, the headers or the body are slow, the run ends at its timeout, with one
// failure for one request.
func TestHTTP_SlowServers(t *testing.T) {
	t.Parallel()
	stall := func(text string) func(net.Conn, *bufio.Reader) {
		return func(c net.Conn, r *bufio.Reader) {
			request(r)
			_, _ = io.WriteString(c, text)
			_, _ = r.ReadByte() // until the prober closes the connection
		}
	}
	for name, text := range map[string]string{
		"no answer": "", "half a header": "HTTP/1.1 200 OK\r\nContent-", "half a body": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
		"half a chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := probeSite(t, script(t, slices.Repeat([]func(net.Conn, *bufio.Reader){stall(text)}, 5)...), impatient)
			runs := within(t, 1500*time.Millisecond, func() {
				began := time.Now()
				s.want(prober.Failed, timedOut)
				require.GreaterOrEqual(t, time.Since(began), time.Second)
			})
			require.LessOrEqual(t, s.conns.Load(), int32(runs), "one request per run")
		})
	}
}

// As in the kubelet, each run tests whether a new client can connect.
func TestHTTP_EachRunOpensANewConnection(t *testing.T) {
	t.Parallel()
	s := probeSite(t, serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("Connection")) }))
	for i := range 3 {
		s.want(prober.Succeeded, "close")
		require.EqualValues(t, i+1, s.conns.Load())
	}
}

// A dial that does not complete ends with its run. A shared transport of net/http would
// continue the dial until the operating system's timeout.
func TestHTTP_DialEndsWithTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newTestNode()
		var ended atomic.Int32
		m := manager(t, n, clock.RealClock{}, func(cfg *prober.Config) {
			cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				ended.Add(1)
				return nil, ctx.Err()
			}
		})
		m.AddPod(podOf(corev1.Container{Name: "app", ReadinessProbe: probeOf(httpGet(80, "/"))}))
		n.runsAt("app", "a", time.Now())
		began := time.Now()
		r, err := m.Probe(t.Context(), key("app", prober.Readiness))
		require.NoError(t, err)
		require.Equal(t, prober.Failed, r.Outcome)
		require.Contains(t, r.Output, "context deadline exceeded")
		require.Equal(t, time.Second, time.Since(began))
		synctest.Wait()
		require.EqualValues(t, 1, ended.Load())
	})
}

func TestProbe_RefusedConnections(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	tcp := func(c *corev1.Container) {
		port := c.ReadinessProbe.HTTPGet.Port
		c.ReadinessProbe.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}
	}
	probeSite(t, address, tcp).want(prober.Succeeded, "")
	require.NoError(t, l.Close())
	probeSite(t, address, tcp).want(prober.Failed, "connection refused")
	probeSite(t, address).want(prober.Failed, "connect: connection refused")
}
