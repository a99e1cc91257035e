package lifecycle_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeparts/kubeparts/lifecycle"
)

// doer records a request and returns a response.
type doer struct {
	req  *http.Request
	resp *http.Response
	err  error
}

func (d *doer) Do(req *http.Request) (*http.Response, error) {
	d.req = req
	return d.resp, d.err
}

func ok() *http.Response { return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody} }

// serve starts a server and returns a hook that requests path.
func serve(t *testing.T, scheme corev1.URIScheme, server *httptest.Server, path string) lifecycle.Hook {
	t.Helper()
	t.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	h := hook(lifecycle.PreStop, corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
		Scheme: scheme, Port: intstr.FromString(port), Path: path,
		HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: "secret"}},
	}})
	h.PodIP = host
	return h
}

// Upstream's TestRunHTTPHandler, TestRunHandlerHttp, ...WithHeaders and ...Https.
func TestRunHTTPHandler(t *testing.T) {
	t.Parallel()
	header := func(kv ...string) (all []corev1.HTTPHeader) {
		for i := 0; i < len(kv); i += 2 {
			all = append(all, corev1.HTTPHeader{Name: kv[i], Value: kv[i+1]})
		}
		return all
	}
	for _, tt := range []struct {
		name string
		get  corev1.HTTPGetAction
		url  string
		want http.Header // in addition to the two headers of every request
		host string
	}{
		{name: "missing pod IP", get: corev1.HTTPGetAction{Path: "foo", Port: intstr.FromString("42"), Host: "example.test", Scheme: "http"}, url: "http://example.test:42/foo"},
		{name: "missing host", get: corev1.HTTPGetAction{Path: "foo", Port: intstr.FromString("42")}, url: "http://233.252.0.1:42/foo"},
		{name: "path with leading slash", get: corev1.HTTPGetAction{Path: "/foo", Port: intstr.FromInt32(42), Scheme: "http"}, url: "http://233.252.0.1:42/foo"},
		{name: "no path", get: corev1.HTTPGetAction{Port: intstr.FromInt32(42)}, url: "http://233.252.0.1:42"},
		{name: "port by name", get: corev1.HTTPGetAction{Path: "foo", Port: intstr.FromString("quux")}, url: "http://233.252.0.1:8080/foo"},
		{name: "https", get: corev1.HTTPGetAction{Path: "foo", Port: intstr.FromString("4430"), Scheme: "https"}, url: "https://233.252.0.1:4430/foo"},
		{name: "https on port 80 stays https", get: corev1.HTTPGetAction{Path: "foo", Port: intstr.FromInt32(80), Scheme: corev1.URISchemeHTTPS}, url: "https://233.252.0.1:80/foo"},
		{name: "unknown scheme", get: corev1.HTTPGetAction{Path: "foo", Port: intstr.FromInt32(80), Scheme: "baz"}, url: "baz://233.252.0.1:80/foo"},
		{name: "query", get: corev1.HTTPGetAction{Path: "foo?k=v", Port: intstr.FromInt32(80)}, url: "http://233.252.0.1:80/foo?k=v"},
		{name: "fragment", get: corev1.HTTPGetAction{Path: "foo#frag", Port: intstr.FromInt32(80)}, url: "http://233.252.0.1:80/foo#frag"},
		{name: "a path that is no URL", get: corev1.HTTPGetAction{Path: "%zz", Port: intstr.FromInt32(80)}, url: "http://233.252.0.1:80/%25zz"},
		{name: "a path that looks like another URL", get: corev1.HTTPGetAction{Path: "mailto:x", Port: intstr.FromInt32(80)}, url: "http://233.252.0.1:80/mailto:x"},
		{name: "IPv6", get: corev1.HTTPGetAction{Host: "fd00::1", Port: intstr.FromInt32(80)}, url: "http://[fd00::1]:80"},
		{
			name: "headers", get: corev1.HTTPGetAction{Path: "foo", Port: intstr.FromInt32(80), HTTPHeaders: header("Foo", "bar", "foo", "baz")},
			url: "http://233.252.0.1:80/foo", want: http.Header{"Foo": {"bar", "baz"}},
		},
		{
			name: "host header", get: corev1.HTTPGetAction{Path: "foo", Port: intstr.FromInt32(80), Host: "example.test", HTTPHeaders: header("Host", "from.header")},
			url: "http://example.test:80/foo", want: http.Header{"Host": {"from.header"}}, host: "from.header",
		},
		{
			name: "no defaults", get: corev1.HTTPGetAction{Port: intstr.FromInt32(80), HTTPHeaders: header("user-agent", "mine", "accept", "")},
			url: "http://233.252.0.1:80", want: http.Header{"User-Agent": {"mine"}, "Accept": nil},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := &doer{resp: ok()}
			h := hook(lifecycle.PostStart, corev1.LifecycleHandler{HTTPGet: &tt.get})
			require.NoError(t, hookRunner(t, lifecycle.HookConfig{HTTP: d}).Run(t.Context(), h).Err)
			want := http.Header{"Accept": {"*/*"}, "User-Agent": {"kube-lifecycle/kubeparts"}}
			for name, values := range tt.want {
				want[name] = values
				if values == nil {
					delete(want, name)
				}
			}
			require.Equal(t, tt.url, d.req.URL.String())
			require.Equal(t, want, d.req.Header)
			if tt.host != "" {
				require.Equal(t, tt.host, d.req.Host)
			}
		})
	}
}

// Upstream's TestRunHandlerHTTPPort.
func TestHTTPHook_InvalidRequests(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		get  corev1.HTTPGetAction
		ip   string
		want string
	}{
		{"no port", corev1.HTTPGetAction{Port: intstr.FromString("")}, "10.0.0.1", `strconv.Atoi: parsing "": invalid syntax`},
		{"an unknown name", corev1.HTTPGetAction{Port: intstr.FromString("nope")}, "10.0.0.1", `strconv.Atoi: parsing "nope": invalid syntax`},
		{"too high", corev1.HTTPGetAction{Port: intstr.FromInt32(65536)}, "10.0.0.1", "invalid port number: 65536"},
		{"too low", corev1.HTTPGetAction{Port: intstr.FromString("-1")}, "10.0.0.1", "invalid port number: -1"},
		{"no address", corev1.HTTPGetAction{Port: intstr.FromInt32(80)}, "", "failed to find networking container: the pod has no IP"},
		{"no URL", corev1.HTTPGetAction{Host: "a b", Port: intstr.FromInt32(80)}, "", `parse "http://a%20b:80": invalid URL escape "%20"`},
	} {
		d := &doer{resp: ok()}
		h := hook(lifecycle.PostStart, corev1.LifecycleHandler{HTTPGet: &tt.get})
		h.PodIP = tt.ip
		require.EqualError(t, hookRunner(t, lifecycle.HookConfig{HTTP: d}).Run(t.Context(), h).Err, tt.want, tt.name)
		require.Nil(t, d.req, tt.name)
	}
}

// Upstream's TestRunHandlerHttpFailure: a response together with an error, as
// clients may return.
func TestHook_FailedHTTPRequestIsReported(t *testing.T) {
	t.Parallel()
	failed := errors.New("fake http error")
	d := &doer{err: failed, resp: &http.Response{Body: io.NopCloser(strings.NewReader("body"))}}
	h := hook(lifecycle.PostStart, corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: "foo", Port: intstr.FromInt32(8080), Path: "bar"}})
	result := hookRunner(t, lifecycle.HookConfig{HTTP: d}).Run(t.Context(), h)
	require.ErrorIs(t, result.Err, failed)
	require.Equal(t, `HTTP lifecycle hook (bar) for Container "containerFoo" in Pod "podFoo_nsFoo(uid)" failed - error: fake http error`, result.Message)
	require.Equal(t, "http://foo:8080/bar", d.req.URL.String())
}

func TestHook_HTTPSWithASelfSignedCertificate(t *testing.T) {
	t.Parallel()
	var got *http.Request
	h := serve(t, corev1.URISchemeHTTPS, httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		fmt.Fprint(w, "drained")
	})), "/stop")
	r := hookRunner(t, lifecycle.HookConfig{})
	require.NoError(t, r.Run(t.Context(), h).Err)
	require.NotNil(t, got.TLS)
	require.Equal(t, "/stop", got.URL.Path)
	require.Equal(t, "secret", got.Header.Get("Authorization"))
	require.Equal(t, "drained", r.Outputs()[0].Output)
}

// Upstream's TestRunHandlerHttpsFailureFallback and TestIsHTTPResponseError.
func TestHook_HTTPSFallsBackToHTTP(t *testing.T) {
	t.Parallel()
	var headers http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { headers = r.Header.Clone() }))
	h := serve(t, corev1.URISchemeHTTPS, server, "bar")
	rec, fallbacks := &events{}, 0
	r := hookRunner(t, lifecycle.HookConfig{
		Events:   rec,
		Observer: lifecycle.HookObserver{HTTPFallback: func(lifecycle.HookInfo) { fallbacks++ }},
	})
	require.Equal(t, lifecycle.HookResult{}, r.Run(t.Context(), h))
	require.NotNil(t, headers)
	require.Empty(t, headers.Get("Authorization"))
	require.Equal(t, 1, fallbacks)
	require.Equal(t, []string{fmt.Sprintf("podFoo spec.containers{containerFoo} Warning LifecycleHTTPFallback request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded",
		server.Listener.Addr())}, rec.all)

	strict := hookRunner(t, lifecycle.HookConfig{FailOnStatus: true, Observer: lifecycle.HookObserver{HTTPFallback: func(lifecycle.HookInfo) { fallbacks++ }}})
	missing := serve(t, corev1.URISchemeHTTPS, httptest.NewServer(http.NotFoundHandler()), "bar")
	result := strict.Run(t.Context(), missing)
	require.ErrorIs(t, result.Err, http.ErrSchemeMismatch)
	require.ErrorContains(t, result.Err, "HTTP status 404")
	require.Equal(t, 1, fallbacks)
}

// kubernetes#56963: any response is a success, unless the caller configures FailOnStatus.
func TestHook_FailOnStatus(t *testing.T) {
	t.Parallel()
	status := http.StatusInternalServerError
	h := serve(t, "", httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, "no")
	})), "/")
	kubelet, strict := hookRunner(t, lifecycle.HookConfig{}), hookRunner(t, lifecycle.HookConfig{FailOnStatus: true})
	require.NoError(t, kubelet.Run(t.Context(), h).Err)
	result := strict.Run(t.Context(), h)
	require.EqualError(t, result.Err, "HTTP status 500")
	require.True(t, strings.HasSuffix(result.Message, `failed - error: HTTP status 500, message: "no"`), result.Message)
	for _, status = range []int{http.StatusOK, http.StatusAccepted, http.StatusNotModified, 399} {
		require.NoError(t, strict.Run(t.Context(), h).Err, "%d", status)
	}
	status = http.StatusBadRequest
	require.EqualError(t, strict.Run(t.Context(), h).Err, "HTTP status 400")
}

func TestHook_ConnectionsAreNotReused(t *testing.T) {
	t.Parallel()
	closes := false
	h := serve(t, "", httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { closes = r.Close })), "/")
	require.NoError(t, hookRunner(t, lifecycle.HookConfig{}).Run(t.Context(), h).Err)
	require.True(t, closes, "the request must have the header Connection: close")
}

func TestHook_RedirectToAnotherHostIsNotFollowed(t *testing.T) {
	t.Parallel()
	asked := 0
	target := "/again"
	h := serve(t, "", httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/end" {
			http.Redirect(w, r, target, http.StatusFound)
		}
	})), "/")
	r := hookRunner(t, lifecycle.HookConfig{})
	require.ErrorContains(t, r.Run(t.Context(), h).Err, "stopped after 10 redirects")
	asked, target = 0, "/end"
	require.NoError(t, r.Run(t.Context(), h).Err)
	require.Equal(t, 2, asked)
	asked, target = 0, "http://elsewhere.invalid/"
	require.NoError(t, r.Run(t.Context(), h).Err, "the redirect itself must be the response")
	require.Equal(t, 1, asked)
}

// impatient is a client that lets the deadline pass when a part of the response was read.
type impatient struct {
	http.Client
	deadline *lifecycle.Deadline
}

func (i impatient) Do(req *http.Request) (*http.Response, error) {
	resp, err := i.Client.Do(req)
	if err == nil {
		resp.Body = impatientBody{resp.Body, i.deadline}
	}
	return resp, err
}

type impatientBody struct {
	io.ReadCloser
	deadline *lifecycle.Deadline
}

func (b impatientBody) Read(p []byte) (int, error) {
	defer b.deadline.Shorten(time.Now())
	return b.ReadCloser.Read(p)
}

// kubernetes#103300: one server never responds, and the response of another never ends.
func TestHook_ServerHangs(t *testing.T) {
	t.Parallel()
	silent := serve(t, "", httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })), "/")
	endless := serve(t, "", httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "draining")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})), "/")
	r := hookRunner(t, lifecycle.HookConfig{})

	silent.Deadline = in(50 * time.Millisecond)
	require.ErrorIs(t, r.Run(t.Context(), silent).Err, lifecycle.ErrDeadline)

	exited := make(chan struct{})
	close(exited)
	silent.Deadline, silent.Exited = in(time.Hour), exited
	require.ErrorIs(t, r.Run(t.Context(), silent).Err, lifecycle.ErrContainerExited)

	silent.Exited = nil
	time.AfterFunc(50*time.Millisecond, func() { silent.Deadline.Shorten(time.Now()) })
	require.ErrorIs(t, r.Run(t.Context(), silent).Err, lifecycle.ErrDeadline, "the deadline was shortened during the request")

	r = hookRunner(t, lifecycle.HookConfig{HTTP: impatient{http.Client{}, endless.Deadline}})
	require.NoError(t, r.Run(t.Context(), endless).Err, "a response was received")
	require.Equal(t, "draining", r.Outputs()[0].Output)
}

func TestHook_LargeResponseIsNotRead(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 1<<20)
	h := serve(t, "", httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/told" {
			w.Header().Set("Content-Length", fmt.Sprint(len(large)))
		}
		_, _ = io.WriteString(w, large)
	})), "/")
	r := hookRunner(t, lifecycle.HookConfig{})
	require.NoError(t, r.Run(t.Context(), h).Err)
	h.Container.Lifecycle.PreStop.HTTPGet.Path = "/told"
	require.NoError(t, r.Run(t.Context(), h).Err)
	require.Len(t, r.Outputs()[0].Output, lifecycle.DefaultOutputBytes)
	require.Empty(t, r.Outputs()[1].Output)
}

// For any manifest, a request goes to the intended host and port.
func FuzzHTTPHook(f *testing.F) {
	f.Add("HTTPS", "", "80", "/a?b#c", "Host", "x")
	f.Add("http", "", "80", "mailto:x", "Foo", "bar")
	f.Add("", "fd00::1", "quux", "//evil.test/", "Accept", "")
	f.Add("/", "", "80", "/", "", "")
	f.Add("http://evil.test/", "", "80", "/", "", "")
	f.Add("http", "a", "8080", "http://user@evil.test:1/x", "\n", "\r\n")
	f.Fuzz(func(t *testing.T, scheme, host, port, path, name, value string) {
		d := &doer{resp: ok()}
		h := hook(lifecycle.PreStop, corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
			Scheme: corev1.URIScheme(scheme), Host: host, Port: intstr.FromString(port), Path: path,
			HTTPHeaders: []corev1.HTTPHeader{{Name: name, Value: value}},
		}})
		result := hookRunner(t, lifecycle.HookConfig{HTTP: d}).Run(t.Context(), h)
		require.Equal(t, d.req == nil, result.Err != nil)
		if d.req == nil || host != "" {
			return
		}
		require.Equal(t, "233.252.0.1", d.req.URL.Hostname())
		require.NotEmpty(t, d.req.URL.Port())
	})
}
