package kubeletapi_test

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// send sends a request with the token "good".
func send(t *testing.T, method, url string) (code int, body string) {
	t.Helper()
	var b strings.Builder
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer good")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Write(&b))
	require.NoError(t, answer.Body.Close())
	_, body, _ = strings.Cut(b.String(), "\r\n\r\n")
	return answer.StatusCode, body
}

// authorized serves all endpoints for the user jane, whose token is "good".
func authorized(t *testing.T, authorizer kubeletapi.Authorizer, change ...func(*kubeletapi.Config)) (url string) {
	t.Helper()
	cfg := everything()
	cfg.Agent = &fake{node: nodeNamed("node1", corev1.ConditionTrue)}
	cfg.Access = kubeletapi.Access{TokenReviewer: &tokens{users: map[string]kubeletapi.User{"good": {Name: "jane"}}}, Authorizer: authorizer}
	for _, c := range change {
		c(&cfg)
	}
	url, _ = run(t, cfg)
	return url
}

// test/peer/kubeletauth compares the same attributes with the kubelet's.
func TestAuthorizer_GetsTheKubeletsAttributes(t *testing.T) {
	t.Parallel()
	seen := &judge{decide: func(kubeletapi.Attributes) (bool, string, error) { return false, "no rule", nil }}
	url := authorized(t, seen)
	for path, subresources := range map[string]string{
		"/pods": "pods proxy", "/pods/": "pods proxy", "/pods/x": "pods proxy", "/podsx": "proxy",
		"/runningpods": "pods proxy", "/runningpods/": "pods proxy", "/healthz": "healthz proxy", "/healthz/ping": "healthz proxy",
		"/configz": "configz proxy", "/flagz": "configz", "/stats": "stats", "/stats/summary": "stats",
		"/metrics": "metrics", "/metrics/cadvisor": "metrics", "/logs": "log", "/logs/x/y": "log", "/checkpoint/ns/p/c": "checkpoint", "/statusz": "statusz",
		"/containerLogs/ns/p/c": "proxy", "/exec/ns/p/c": "proxy", "/attach/ns/p/c": "proxy", "/portForward/ns/p": "proxy", "/run/ns/p/c": "proxy",
		"/debug/pprof/": "proxy", "/agent/status": "proxy", "/agent/restart/ns/p": "proxy", "/readyz": "proxy", "/livez/": "proxy", "/unknown": "proxy",
	} {
		for method, verb := range map[string]string{
			"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "HEAD": "", "OPTIONS": "", "get": "",
		} {
			code, body := send(t, method, url+path)
			require.Equal(t, http.StatusForbidden, code, "%s %s", method, path)
			if method != http.MethodHead {
				require.Equal(t, "Forbidden (user=jane, verb="+verb+", resource=nodes, subresource(s)=["+subresources+"])\n\n", body)
			}
			var want []kubeletapi.Attributes
			for subresource := range strings.FieldsSeq(subresources) {
				want = append(want, kubeletapi.Attributes{
					User: kubeletapi.User{Name: "jane", Groups: []string{"system:authenticated"}},
					Verb: verb, APIVersion: "v1", Resource: "nodes", Subresource: subresource, Name: "node1", Path: path,
				})
			}
			require.Equal(t, want, seen.take(), "%s %s", method, path)
		}
	}
}

func TestAuthorizer_OneAllowedSubresourceIsEnough(t *testing.T) {
	t.Parallel()
	for subresource, allowed := range map[string][]string{
		"pods": {"/pods", "/runningpods/"}, "proxy": {"/pods", "/healthz", "/configz", "/agent/status", "/debug/pprof/cmdline"},
		"healthz": {"/healthz", "/healthz/ping"}, "configz": {"/configz"}, "metrics": {"/metrics", "/metrics/probes"}, "none": {"/livez", "/agent/"},
	} {
		url := authorized(t, &judge{decide: func(a kubeletapi.Attributes) (bool, string, error) { return a.Subresource == subresource, "", nil }})
		for _, path := range allowed {
			code, _ := send(t, http.MethodGet, url+path)
			require.Equal(t, http.StatusOK, code, "%s %s", subresource, path)
		}
		code, _ := send(t, http.MethodGet, url+"/stats/summary")
		require.Equal(t, http.StatusForbidden, code, subresource)
	}
}

func TestAuthorizer_DecidesAboutTheAnonymousUser(t *testing.T) {
	t.Parallel()
	url := authorized(t, &judge{}, func(c *kubeletapi.Config) { c.Access.Anonymous = true })
	code, _, _ := get(t, http.DefaultClient, url+"/configz")
	require.Equal(t, http.StatusOK, code)
	code, _, body := get(t, http.DefaultClient, url+"/exec/ns/p/c?command=x&output=1")
	require.Equal(t, http.StatusMethodNotAllowed, code)
	require.Equal(t, "Debug endpoints are disabled.\n", body)
}

func TestAuthorizer_ErrorsAndRefusalsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	var log lines
	url := authorized(t, &judge{decide: func(a kubeletapi.Attributes) (bool, string, error) {
		if a.Subresource == "configz" {
			return false, "", errors.New("the API server does not respond")
		}
		return false, "no rule matches", nil
	}}, func(c *kubeletapi.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	code, body := send(t, http.MethodGet, url+"/configz?secret=1")
	require.Equal(t, http.StatusInternalServerError, code)
	require.Equal(t, "Authorization error (user=jane, verb=get, resource=nodes, subresource=configz)\n", body)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), `code=500 method=GET path=/configz`)
	require.Contains(t, log.String(), `user=jane err="authorize verb \"get\" of nodes/configz: the API server does not respond"`)
	code, _ = send(t, http.MethodDelete, url+"/pods/"+strings.Repeat("x", 1000))
	require.Equal(t, http.StatusForbidden, code)
	require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "no rule matches")
	require.Contains(t, log.String(), "path=/pods/"+strings.Repeat("x", 194)+"... ", "a long path must be truncated in the log")
	require.NotContains(t, log.String(), "secret")
}

func TestAuthorizer_HostileUserNameStartsNoLine(t *testing.T) {
	t.Parallel()
	var log lines
	url := authorized(t, &judge{decide: func(kubeletapi.Attributes) (bool, string, error) { return false, "", nil }}, func(c *kubeletapi.Config) {
		c.Access.TokenReviewer = &tokens{users: map[string]kubeletapi.User{"good": {Name: "x\nforged"}}}
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	code, body := send(t, http.MethodGet, url+"/metrics")
	require.Equal(t, http.StatusForbidden, code)
	require.Equal(t, "Forbidden (user=x forged, verb=get, resource=nodes, subresource(s)=[metrics])\n\n", body)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
}
