package kubeletauth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/server"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// recorder is an Authorizer of both sides that records each request.
type recorder struct {
	decide func(subresource string) (authorizer.Decision, error)
	mu     sync.Mutex
	seen   []authorizer.AttributesRecord
}

func (r *recorder) record(a authorizer.AttributesRecord) (authorizer.Decision, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, a)
	return r.decide(a.Subresource)
}

func (r *recorder) take() []authorizer.AttributesRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.seen = nil }()
	return r.seen
}

// Authorize implements authorizer.Authorizer for [Authorizer].
func (r *recorder) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, err := r.record(a.(authorizer.AttributesRecord))
	return decision, "", err
}

// goodToken authenticates the token good on both sides.
type goodToken struct{}

func (goodToken) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.Header.Get("Authorization") != "Bearer good" {
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: "jane", Groups: []string{"people", "system:authenticated"}}}, true, nil
}

// paths returns the paths of the kubelet, our paths, and similar ones.
func paths() []string {
	return []string{
		"/pods", "/pods/", "/pods/x", "/podsx", "/runningpods", "/runningpods/", "/runningPods/", "/healthz", "/healthz/ping", "/healthz/log", "/healthz/syncloop", "/healthzx",
		"/configz", "/configz/", "/flagz", "/flagz/x", "/statusz", "/stats", "/stats/", "/stats/summary", "/statsx", "/metrics", "/metrics/", "/metrics/cadvisor", "/metrics/probes",
		"/metrics/resource", "/metrics/slis", "/logs", "/logs/", "/logs/a/b", "/checkpoint", "/checkpoint/ns/p/c", "/containerLogs/ns/p/c", "/exec/ns/p/c", "/exec/ns/p/u/c",
		"/attach/ns/p/c", "/portForward/ns/p", "/run/ns/p/c", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v", "/agent/status", "/agent/", "/readyz", "/unknown", "/%70ods", "/stats%2fsummary",
	}
}

func TestAttributes_AreTheKubelets(t *testing.T) {
	t.Parallel()
	seen := &recorder{decide: func(string) (authorizer.Decision, error) { return authorizer.DecisionNoOpinion, nil }}
	url := serve(t, kubeletapi.Access{TokenReviewer: Tokens{goodToken{}}, Authorizer: Authorizer{seen}})
	getter := server.NewNodeAuthorizerAttributesGetter("node1")
	jane := &user.DefaultInfo{Name: "jane", Groups: []string{"people", "system:authenticated"}}
	for _, path := range paths() {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get"} {
			r, err := http.NewRequestWithContext(t.Context(), method, url+path, http.NoBody)
			require.NoError(t, err)
			want := getter.GetRequestAttributes(t.Context(), jane, r)
			code, _ := ask(t, method, url+path, nil, "Bearer good")
			require.Equal(t, http.StatusForbidden, code, "%s %s", method, path)
			var got []authorizer.Attributes
			for _, a := range seen.take() {
				got = append(got, a)
			}
			require.Equal(t, want, got, "%s %s", method, path)
		}
	}
}

// host is a kubelet none of whose methods is called, because each request is rejected.
type host struct{ server.HostInterface }

func TestRefusals_AreTheKubelets(t *testing.T) {
	t.Parallel()
	for name, decide := range map[string]func(string) (authorizer.Decision, error){
		"no opinion": func(string) (authorizer.Decision, error) { return authorizer.DecisionNoOpinion, nil },
		"deny":       func(string) (authorizer.Decision, error) { return authorizer.DecisionDeny, nil },
		"authorizer error": func(string) (authorizer.Decision, error) {
			return authorizer.DecisionNoOpinion, errors.New("no API server")
		},
		"authorizer error for nodes/proxy": func(s string) (authorizer.Decision, error) {
			if s == "proxy" {
				return authorizer.DecisionNoOpinion, errors.New("no API server")
			}
			return authorizer.DecisionNoOpinion, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			theirs, ours := &recorder{decide: decide}, &recorder{decide: decide}
			auth := server.NewKubeletAuth(goodToken{}, server.NewNodeAuthorizerAttributesGetter("node1"), theirs, nil)
			kubelet := server.NewServer(t.Context(), host{}, nil, nil, nil, auth, &kubeletconfig.KubeletConfiguration{
				EnableServer: true, EnableDebuggingHandlers: true, EnableProfilingHandler: true,
			})
			url := serve(t, kubeletapi.Access{TokenReviewer: Tokens{goodToken{}}, Authorizer: Authorizer{ours}})
			for _, path := range []string{
				"/pods/", "/runningpods/", "/healthz", "/configz", "/stats/summary", "/metrics", "/metrics/resource", "/containerLogs/ns/p/c",
				"/exec/ns/p/c", "/attach/ns/p/c", "/portForward/ns/p", "/debug/pprof/heap",
			} {
				for _, authorization := range []string{"Bearer good", "Bearer bad", ""} {
					r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
					r.Header.Set("Authorization", authorization)
					want := httptest.NewRecorder()
					kubelet.ServeHTTP(want, r)
					code, text := ask(t, http.MethodGet, url+path, nil, authorization)
					require.Equal(t, want.Code, code, "%s %q", path, authorization)
					require.Equal(t, strings.TrimSpace(want.Body.String()), text, "%s %q", path, authorization)
					require.Equal(t, theirs.take(), ours.take(), "%s %q", path, authorization)
				}
			}
		})
	}
}

// TestUsers_AreTheKubelets compares the users of all combinations of credentials.
func TestUsers_AreTheKubelets(t *testing.T) {
	t.Parallel()
	ca, other, api := newAuthority(t), newAuthority(t), newAPIServer(t)
	none := func(*x509.Certificate) {}
	certs := map[string]*tls.Certificate{
		"none": nil, "valid": ca.issue(t, "john", none), "no common name": ca.issue(t, "", none), "wrong CA": other.issue(t, "john", none),
		"expired":                ca.issue(t, "john", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
		"not yet valid":          ca.issue(t, "john", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }),
		"server usage":           ca.issue(t, "john", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }),
		"any usage":              ca.issue(t, "john", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }),
		"no usage":               ca.issue(t, "john", func(c *x509.Certificate) { c.ExtKeyUsage = nil }),
		"no groups":              ca.issue(t, "john", func(c *x509.Certificate) { c.Subject.Organization = nil }),
		"system:authenticated":   ca.issue(t, "john", func(c *x509.Certificate) { c.Subject.Organization = []string{"system:authenticated"} }),
		"system:unauthenticated": ca.issue(t, "john", func(c *x509.Certificate) { c.Subject.Organization = []string{"system:unauthenticated"} }),
	}
	for _, anonymous := range []bool{false, true} {
		seen := &recorder{decide: func(string) (authorizer.Decision, error) { return authorizer.DecisionAllow, nil }}
		access := ca.access(t)
		access.TokenReviewer, access.Authorizer, access.Anonymous = Tokens{api.delegating(t, "", false)}, Authorizer{seen}, anonymous
		url := serve(t, access)
		kubelet := api.delegating(t, access.ClientCAFile, anonymous)
		for name, cert := range certs {
			for _, authorization := range []string{"", "Bearer good", "bearer good", "Bearer good x", "Bearer bad", "Bearer", "Basic good", "good"} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
				r.Header.Set("Authorization", authorization)
				r.TLS = &tls.ConnectionState{}
				if cert != nil {
					r.TLS.PeerCertificates = []*x509.Certificate{cert.Leaf}
				}
				answer, ok, err := kubelet.AuthenticateRequest(r)
				code, _ := ask(t, http.MethodGet, url+"/metrics", cert, authorization)
				got := seen.take()
				if err != nil || !ok {
					require.Equal(t, http.StatusUnauthorized, code, "%s %q", name, authorization)
					require.Empty(t, got, "%s %q", name, authorization)
					continue
				}
				require.Equal(t, http.StatusOK, code, "%s %q", name, authorization)
				require.Len(t, got, 1)
				u, want := got[0].User, answer.User
				require.Equal(t, want.GetName(), u.GetName(), "%s %q", name, authorization)
				require.Equal(t, want.GetUID(), u.GetUID(), "%s %q", name, authorization)
				require.Equal(t, want.GetGroups(), u.GetGroups(), "%s %q", name, authorization)
				require.Equal(t, want.GetExtra(), u.GetExtra(), "%s %q", name, authorization)
			}
		}
	}
}

// TestAdapters_DelegateToAnAPIServer authorizes with SubjectAccessReviews.
func TestAdapters_DelegateToAnAPIServer(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	api.allows = func(s authorizationv1.SubjectAccessReviewSpec) bool {
		return s.User == "jane" && slices.Contains([]string{"metrics", "pods"}, s.ResourceAttributes.Subresource) && s.ResourceAttributes.Verb == "get"
	}
	url := serve(t, kubeletapi.Access{TokenReviewer: Tokens{api.delegating(t, "", false)}, Authorizer: Authorizer{api.authorizer(t)}})
	for path, want := range map[string]int{
		"/metrics": http.StatusOK, "/pods": http.StatusOK, "/configz": http.StatusForbidden, "/exec/ns/p/c": http.StatusForbidden, "/agent/status": http.StatusForbidden,
	} {
		code, text := ask(t, http.MethodGet, url+path, nil, "Bearer good")
		require.Equal(t, want, code, "%s: %s", path, text)
		review := api.taken()[0]
		require.Equal(t, "jane", review.User)
		require.Equal(t, "7", review.UID)
		require.Equal(t, []string{"people", "system:authenticated"}, review.Groups)
		require.Equal(t, map[string]authorizationv1.ExtraValue{"k": {"v"}}, review.Extra)
		require.Equal(t, "nodes", review.ResourceAttributes.Resource)
		require.Equal(t, "node1", review.ResourceAttributes.Name)
	}
	code, _ := ask(t, http.MethodGet, url+"/metrics", nil, "Bearer bad")
	require.Equal(t, http.StatusUnauthorized, code)
	require.Empty(t, api.taken())
}
