package page_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/page"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noPods is an agent without pods.
type noPods struct{ kubeletapi.Agent }

func (noPods) Pods() []agent.Pod                                  { return nil }
func (noPods) Node() *corev1.Node                                 { return nil }
func (noPods) Health() []agent.Check                              { return nil }
func (noPods) Summary(context.Context) (*statsapi.Summary, error) { return nil, nil }
func (noPods) PlanEviction(context.Context) (eviction.Decision, error) {
	return eviction.Decision{}, nil
}

// ask sends a request to a handler. headers alternates names and values.
func ask(t *testing.T, h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	h.ServeHTTP(w, r)
	return w
}

func TestPage_IsOneDocument(t *testing.T) {
	w := ask(t, page.Handler(), http.MethodGet, "/")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	require.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"))
	require.Equal(t, "no-cache", w.Header().Get("Cache-Control"))
	body := w.Body.String()
	require.True(t, strings.HasPrefix(body, "<!doctype html>"))
	require.Less(t, len(body), 40<<10)
	for name, outside := range map[string]string{
		"addresses":       `(?i)(?:src|href|action)="(?:https?:)?//`,
		"sources":         `(?i)<(?:script|img|iframe|link)[^>]* src=`,
		"imports":         `(?i)@import|url\(`,
		"handlers":        `(?i)<[^>]* on\w+=`,
		"styles":          `(?i)<[^>]* style=`,
		"markup of text":  `innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function`,
		"absolute routes": `get\(["` + "`" + `]/`,
	} {
		require.NotRegexp(t, outside, body, name)
	}
}

func TestPolicy_HasTheHashesOfStyleAndScript(t *testing.T) {
	w := ask(t, page.Handler(), http.MethodGet, "/")
	directives := map[string]string{}
	for d := range strings.SplitSeq(w.Header().Get("Content-Security-Policy"), "; ") {
		name, value, _ := strings.Cut(d, " ")
		directives[name] = value
	}
	want := map[string]string{
		"default-src": "'none'", "connect-src": "'self'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'",
		"frame-ancestors": "'none'", "trusted-types": "'none'", "require-trusted-types-for": "'script'",
	}
	for tag, directive := range map[string]string{"style": "style-src", "script": "script-src"} {
		found := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(w.Body.String(), -1)
		require.Len(t, found, 1, "exactly one element must contain the page's data, and the data must not end the element")
		sum := sha256.Sum256([]byte(found[0][1]))
		want[directive] = "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	require.Equal(t, want, directives)
}

func TestPage_IsRevalidated(t *testing.T) {
	h := page.Handler()
	etag := ask(t, h, http.MethodGet, "/").Header().Get("ETag")
	require.Regexp(t, `^"[^"]+"$`, etag)
	require.Equal(t, etag, ask(t, page.Handler(), http.MethodGet, "/").Header().Get("ETag"))

	w := ask(t, h, http.MethodGet, "/", "If-None-Match", etag)
	require.Equal(t, http.StatusNotModified, w.Code)
	require.Zero(t, w.Body.Len())
	require.Equal(t, http.StatusOK, ask(t, h, http.MethodGet, "/", "If-None-Match", `"another"`).Code)
}

func TestPage_Head(t *testing.T) {
	h := page.Handler()
	get, head := ask(t, h, http.MethodGet, "/"), ask(t, h, http.MethodHead, "/")
	require.Equal(t, http.StatusOK, head.Code)
	require.Zero(t, head.Body.Len())
	require.Equal(t, get.Header(), head.Header())
}

func TestPage_ServesNoOtherPath(t *testing.T) {
	served := mounted(t, kubeletapi.Config{Agent: noPods{}, Page: page.Handler()})
	for _, path := range []string{"/page.js", "/page.css", "/index.html", "/favicon.ico", "/agent/page.js", "/agent/x", "/x/", "/configz"} {
		require.Equal(t, http.StatusNotFound, ask(t, served, http.MethodGet, path).Code, path)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		w := ask(t, page.Handler(), method, "/")
		require.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
		require.Equal(t, "GET, HEAD", w.Header().Get("Allow"), method)
	}
	require.Equal(t, http.StatusOK, ask(t, served, http.MethodGet, "/agent/").Code)
	require.Equal(t, http.StatusOK, ask(t, served, http.MethodHead, "/agent/").Code)
	redirect := ask(t, served, http.MethodGet, "/")
	require.Equal(t, http.StatusFound, redirect.Code)
	require.Equal(t, "/agent/", redirect.Header().Get("Location"))
}

func mounted(t *testing.T, cfg kubeletapi.Config) http.Handler {
	t.Helper()
	s, err := kubeletapi.New(cfg)
	require.NoError(t, err)
	return s.Handler()
}

// TestPage_Access requests the page with and without a token, and with another host name.
func TestPage_Access(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	for name, test := range map[string]struct {
		access             kubeletapi.Access
		host, path, bearer string
		want               int
	}{
		"no token is needed":        {path: "/agent/", want: http.StatusOK},
		"another host's name":       {host: "rebound.example", path: "/agent/", want: http.StatusForbidden},
		"without the token":         {access: kubeletapi.Access{TokenFile: token}, path: "/agent/", want: http.StatusOK},
		"with the token":            {access: kubeletapi.Access{TokenFile: token}, path: "/agent/", bearer: "secret", want: http.StatusOK},
		"redirected to the page":    {access: kubeletapi.Access{TokenFile: token}, path: "/", want: http.StatusOK},
		"state without the token":   {access: kubeletapi.Access{TokenFile: token}, path: "/agent/status", want: http.StatusUnauthorized},
		"state with the token":      {access: kubeletapi.Access{TokenFile: token}, path: "/agent/status", bearer: "secret", want: http.StatusOK},
		"not quite the page's path": {access: kubeletapi.Access{TokenFile: token}, path: "/agent//", want: http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := kubeletapi.New(kubeletapi.Config{Agent: noPods{}, Page: page.Handler(), Access: test.access})
			require.NoError(t, err)
			listener, err := s.Listen(t.Context(), "127.0.0.1:0")
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- s.Run(ctx, listener) }()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, test.access.URL(listener.Addr())+test.path, nil)
			require.NoError(t, err)
			r.Host = test.host
			if test.bearer != "" {
				r.Header.Set("Authorization", "Bearer "+test.bearer)
			}
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			answer, err := client.Do(r)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, test.want, answer.StatusCode)
			policy := "default-src 'none'; frame-ancestors 'none'"
			if test.path != "/agent/status" && test.want == http.StatusOK {
				policy = ask(t, page.Handler(), http.MethodGet, "/").Header().Get("Content-Security-Policy")
			}
			require.Equal(t, policy, answer.Header.Get("Content-Security-Policy"))
			stop()
			require.NoError(t, <-served)
		})
	}
}

// TestPage_SourcesAreShort keeps the page readable without tools.
func TestPage_SourcesAreShort(t *testing.T) {
	total := 0
	for _, name := range []string{"page.html", "page.css", "page.js"} {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		total += strings.Count(string(data), "\n")
	}
	require.Less(t, total, 500)
}
