package kubeletapi

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent"
)

// silent is an agent without pods.
type silent struct{ Agent }

func (silent) Pods() []agent.Pod     { return nil }
func (silent) Node() *corev1.Node    { return nil }
func (silent) Health() []agent.Check { return nil }

// oneToken is a TokenReviewer that accepts only the token "good", and an Authorizer that
// records the requested subresources and allows only the last one.
type oneToken struct{ asked []string }

func (*oneToken) ReviewToken(_ context.Context, token string) (User, bool, error) {
	return User{Name: "jane"}, token == "good", nil
}

func (o *oneToken) Authorize(_ context.Context, a Attributes) (bool, string, error) {
	o.asked = append(o.asked, a.Subresource)
	all := subresources(a.Path)
	return a.Subresource == all[len(all)-1], "", nil
}

// FuzzGuard sends any request to a server that authenticates and authorizes. A request
// reaches an endpoint only with the token, and only after the Authorizer was called with the
// subresource of that endpoint.
func FuzzGuard(f *testing.F) {
	for _, seed := range [][3]string{
		{"GET", "/pods", "Bearer good"},
		{"GET", "/pods", "bearer bad"},
		{"GET", "/pods", ""},
		{"GET", "/livez", ""},
		{"GET", "/", ""},
		{"GET", "/agent/", ""},
		{"POST", "/exec/ns/p/c?command=x", "Bearer good"},
		{"GET", "/livez/../exec/ns/p/c", "Bearer good"},
		{"GET", "/metrics/%2e%2e/exec/ns/p/c", "Bearer good"},
		{"GET", "//exec/ns/p/c", "Bearer good"},
		{"GET", "/%65xec/ns/p/c", "Bearer good"},
		{"GET", "/exec%2fns/p/c", "Bearer good"},
		{"GET", "http://x/pods", "Bearer good"},
		{"OPTIONS", "*", "Bearer good"},
		{"CONNECT", "x:1", "Bearer good"},
		{"CONNECT", "/metrics/../exec/ns/p/c", "Bearer good"},
		{"GET", "/healthz/x", "Bearer good x"},
		{"GET", "/agent/?x", "Basic good"},
		{"HEAD", "/stats/summary", "Bearer  good "},
		{"get", "/logs/x", "BEARER good"},
		{"GET", "/logs;x", "Bearer good"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, method, target, authorization string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: node1\r\nAuthorization: " + authorization + "\r\n\r\n")))
		if err != nil {
			return // net/http responds with 400
		}
		page := http.NotFoundHandler()
		access := &oneToken{}
		s, err := New(Config{Agent: silent{}, Page: page, Metrics: page, Pprof: true, PodLogs: "logs", Access: Access{TokenReviewer: access, Authorizer: access}})
		require.NoError(t, err)
		fields := strings.Fields(r.Header.Get("Authorization"))
		hasToken := len(fields) > 1 && fields[1] == "good"
		path, reached := r.URL.Path, ""
		mux := http.NewServeMux()
		for _, e := range s.endpoints() {
			for _, method := range e.methods {
				mux.HandleFunc(method+" "+e.pattern, func(http.ResponseWriter, *http.Request) { reached = e.pattern })
			}
		}
		w := httptest.NewRecorder()
		s.guard(mux, s.admitUsers).ServeHTTP(w, r)
		public := path == "/livez" || path == "/" || path == "/agent/"
		switch {
		case reached != "" && !public:
			require.True(t, hasToken)
			require.Empty(t, r.Header.Get("Authorization"))
			require.Equal(t, subresources(reached), access.asked)
			require.Equal(t, http.StatusOK, w.Code)
		case !public && !slices.Contains(access.asked, subresources(path)[len(subresources(path))-1]):
			require.Equal(t, http.StatusUnauthorized, w.Code)
			require.Equal(t, "Unauthorized\n", w.Body.String())
		}
	})
}

// FuzzParseCAs parses bundles of CA certificates.
func FuzzParseCAs(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN X-----\n-----END X-----\n-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"))
	f.Fuzz(func(t *testing.T, data []byte) {
		pool, err := parseCAs(data)
		require.Equal(t, err == nil, pool != nil)
	})
}
