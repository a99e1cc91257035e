package kubeletapi_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// clientWith returns an HTTP client with client certificates.
func clientWith(t *testing.T, certs ...tls.Certificate) *http.Client {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certs}}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func TestClientCertificate_DecidesAboutTheUser(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t, "ca"), newAuthority(t, "ca")
	var log lines
	authorizer := &judge{}
	access := tlsAccess(t, ca)
	access.Authorizer = authorizer
	url, _ := run(t, kubeletapi.Config{Access: access, Metrics: page("hello"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for name, tc := range map[string]struct {
		cert tls.Certificate
		want string // cause in the log; empty if the certificate is valid
	}{
		"valid":         {ca.issue(t, "jane"), ""},
		"intermediate":  {ca.issueCA(t, "below").issue(t, "jane"), ""},
		"wrong CA":      {other.issue(t, "jane"), "certificate signed by unknown authority"},
		"expired":       {ca.issue(t, "jane", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), "certificate has expired"},
		"not yet valid": {ca.issue(t, "jane", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), "is not yet valid"},
		"of a server": {ca.issue(t, "jane", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), "incompatible key usage"},
		"without a name": {ca.issue(t, ""), "the request has no credentials"},
		"none":           {tls.Certificate{}, "the request has no credentials"},
	} {
		var certs []tls.Certificate
		if tc.cert.PrivateKey != nil {
			certs = append(certs, tc.cert)
		}
		before := log.String()
		code, header, body := get(t, clientWith(t, certs...), url+"/metrics")
		told := strings.TrimPrefix(log.String(), before)
		seen := authorizer.take()
		if tc.want != "" {
			require.Equal(t, http.StatusUnauthorized, code, name)
			require.Equal(t, "Unauthorized\n", body, name)
			require.Equal(t, "Bearer", header.Get("WWW-Authenticate"), name)
			require.Equal(t, 1, strings.Count(told, "\n"), told)
			require.Contains(t, told, tc.want, name)
			require.Contains(t, told, "path=/metrics", name)
			require.Empty(t, seen, name)
			continue
		}
		require.Equal(t, http.StatusOK, code, name)
		require.Equal(t, "hello", body, name)
		require.Empty(t, told, name)
		require.Len(t, seen, 1, name)
		require.Equal(t, "jane", seen[0].User.Name, name)
		require.Equal(t, []string{"admins", "people", "system:authenticated"}, seen[0].User.Groups, name)
		require.Regexp(t, "^X509SHA256=[0-9a-f]{64}$", seen[0].User.Extra["authentication.kubernetes.io/credential-id"][0], name)
	}
}

func TestClientCertificate_ChangedCAAppliesToOpenConnections(t *testing.T) {
	t.Parallel()
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	access := tlsAccess(t, first)
	var log lines
	url, _ := run(t, kubeletapi.Config{Access: access, Metrics: page("hello"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	old, fresh := clientWith(t, first.issue(t, "old")), clientWith(t, second.issue(t, "fresh"))
	allowed := func(c *http.Client) bool {
		code, _, _ := get(t, c, url+"/metrics")
		return code == http.StatusOK
	}
	require.True(t, allowed(old))
	require.False(t, allowed(fresh))
	writeFile(t, access.ClientCAFile, append(first.pem(), second.pem()...))
	await(t, "the server accepts certificates of both CAs", func() bool { return allowed(old) && allowed(fresh) })
	writeFile(t, access.ClientCAFile, second.pem())
	await(t, "the server accepts only certificates of the new CA", func() bool { return !allowed(old) && allowed(fresh) })
	writeFile(t, access.ClientCAFile, []byte("half a certificate"))
	await(t, "the problem is logged", func() bool {
		require.True(t, allowed(fresh), "the previous CA must stay in use")
		return strings.Contains(log.String(), "must contain at least one PEM block CERTIFICATE")
	})
	require.NoError(t, os.Remove(access.ClientCAFile))
	require.True(t, allowed(fresh))
	require.False(t, allowed(old))
}

func TestNew_RefusesInvalidClientCAs(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	access := tlsAccess(t, ca)
	for text, want := range map[string]string{
		"":  "must contain at least one PEM block CERTIFICATE",
		"x": "must contain at least one PEM block CERTIFICATE",
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n":                    "x509",
		string(ca.pem()) + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n": "x509",
	} {
		writeFile(t, access.ClientCAFile, []byte(text))
		_, err := kubeletapi.New(kubeletapi.Config{Agent: &fake{}, Access: access})
		require.ErrorContains(t, err, "load client CA certificates")
		require.ErrorContains(t, err, want)
	}
	key, err := os.ReadFile(access.KeyFile)
	require.NoError(t, err)
	writeFile(t, access.ClientCAFile, append(key, ca.pem()...)) // a bundle may contain other PEM blocks
	_, err = kubeletapi.New(kubeletapi.Config{Agent: &fake{}, Access: access})
	require.NoError(t, err)
}

func TestTokenReviewer_AuthenticatesTokens(t *testing.T) {
	t.Parallel()
	var log lines
	authorizer := &judge{}
	reviewer := &tokens{users: map[string]kubeletapi.User{
		"jane": {Name: "jane", UID: "5", Groups: []string{"people"}, Extra: map[string][]string{"k": {"v"}}},
		"anna": {Name: "anna", Groups: []string{"system:authenticated"}},
	}}
	url, _ := run(t, kubeletapi.Config{
		Access:  kubeletapi.Access{TokenReviewer: reviewer, Authorizer: authorizer},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%q", r.Header.Get("Authorization")) }),
		Logger:  slog.New(slog.NewTextHandler(&log, nil)),
	})
	for range 3 {
		code, _, body := get(t, http.DefaultClient, url+"/metrics", "Authorization", "Bearer jane")
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, `""`, body, "the handler must not receive the token")
		require.Equal(t, kubeletapi.User{
			Name: "jane", UID: "5", Groups: []string{"people", "system:authenticated"}, Extra: map[string][]string{"k": {"v"}},
		}, authorizer.take()[0].User)
	}
	require.Equal(t, 1, reviewer.count("jane"))
	code, _, _ := get(t, http.DefaultClient, url+"/metrics", "Authorization", "bearer anna")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, []string{"system:authenticated"}, authorizer.take()[0].User.Groups)
	require.Empty(t, log.String())
	for header, cause := range map[string]string{
		"Bearer nobody": "the bearer token is not valid", "Bearer broken": "review the bearer token: use of closed network connection",
		"Bearer": "the request has no credentials", "Basic jane": "the request has no credentials", "jane": "the request has no credentials",
	} {
		for range 2 {
			before := log.String()
			code, _, body := get(t, http.DefaultClient, url+"/metrics", "Authorization", header)
			require.Equal(t, http.StatusUnauthorized, code, header)
			require.Equal(t, "Unauthorized\n", body, header)
			told := strings.TrimPrefix(log.String(), before)
			require.Equal(t, 1, strings.Count(told, "\n"), header)
			require.Contains(t, told, cause, header)
		}
	}
	require.Equal(t, 1, reviewer.count("nobody"), "the result must be cached")
	require.Equal(t, 2, reviewer.count("broken"), "an error must not be cached")
	require.Empty(t, authorizer.take())
	for _, secret := range []string{"jane", "nobody", "broken"} {
		require.NotContains(t, log.String(), secret)
	}
}

func TestTokenReviewer_ResultsExpire(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{0: 2 * time.Minute, time.Second: time.Second} {
		clock := testingclock.NewFakeClock(at)
		reviewer := &tokens{users: map[string]kubeletapi.User{"good": {Name: "jane"}}}
		url, _ := run(t, kubeletapi.Config{
			Access: kubeletapi.Access{TokenReviewer: reviewer, TokenCacheTTL: ttl}, Metrics: page("hello"), Clock: clock,
		})
		ask := func(token string) int {
			code, _, _ := get(t, http.DefaultClient, url+"/metrics", "Authorization", "Bearer "+token)
			return code
		}
		for i := range 3 {
			require.Equal(t, http.StatusOK, ask("good"))
			require.Equal(t, http.StatusUnauthorized, ask("bad"))
			clock.Step(want)
			require.Equal(t, http.StatusOK, ask("good"))
			require.Equal(t, http.StatusUnauthorized, ask("bad"))
			require.Equal(t, i+1, reviewer.count("good"), "the result must be cached until it expires")
			require.Equal(t, i+1, reviewer.count("bad"))
			clock.Step(time.Nanosecond)
		}
		reviewer.mu.Lock()
		delete(reviewer.users, "good")
		reviewer.mu.Unlock()
		require.Equal(t, http.StatusUnauthorized, ask("good"), "a revoked token must be rejected")
	}
}

func TestTokenReviewer_InvalidTokensDisplaceNoValidOne(t *testing.T) {
	t.Parallel()
	reviewer := &tokens{users: map[string]kubeletapi.User{"good": {Name: "jane"}}}
	url, _ := run(t, kubeletapi.Config{Access: kubeletapi.Access{TokenReviewer: reviewer}, Metrics: page("hello")})
	ask := func(token string) int {
		code, _, _ := get(t, http.DefaultClient, url+"/metrics", "Authorization", "Bearer "+token)
		return code
	}
	require.Equal(t, http.StatusOK, ask("good"))
	for i := range 1100 {
		require.Equal(t, http.StatusUnauthorized, ask(fmt.Sprint(i)))
	}
	require.Equal(t, http.StatusOK, ask("good"))
	require.Equal(t, 1, reviewer.count("good"))
	require.Equal(t, http.StatusUnauthorized, ask("0"))
	require.Equal(t, 2, reviewer.count("0"), "the number of cached results must be limited")
	require.Equal(t, http.StatusUnauthorized, ask("1099"))
	require.Equal(t, 1, reviewer.count("1099"))
}

func TestAuthentication_OneValidCredentialIsEnough(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	access, authorizer := tlsAccess(t, ca), &judge{}
	access.TokenFile = access.CertFile + ".token"
	writeFile(t, access.TokenFile, []byte("s3cret"))
	access.TokenReviewer = &tokens{users: map[string]kubeletapi.User{"good": {Name: "john"}}}
	access.Authorizer = authorizer
	var log lines
	url, _ := run(t, kubeletapi.Config{Access: access, Metrics: page("hello"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	jane, stranger := clientWith(t, ca.issue(t, "jane")), clientWith(t, other.issue(t, "jane"))
	for _, tc := range []struct {
		client      *http.Client
		token, want string
	}{
		{jane, "", "jane"},
		{jane, "bad", "jane"},
		{jane, "s3cret", "jane"},
		{stranger, "good", "john"},
		{stranger, "s3cret", kubeletapi.AdminUser},
		{stranger, "bad", ""},
		{stranger, "", ""},
	} {
		header := []string{}
		if tc.token != "" {
			header = []string{"Authorization", "Bearer " + tc.token}
		}
		code, _, _ := get(t, tc.client, url+"/metrics", header...)
		if tc.want == "" {
			require.Equal(t, http.StatusUnauthorized, code)
			continue
		}
		require.Equal(t, http.StatusOK, code)
		user := authorizer.take()[0].User
		require.Equal(t, tc.want, user.Name)
		if tc.want == kubeletapi.AdminUser {
			require.Equal(t, []string{"system:masters", "system:authenticated"}, user.Groups)
		}
	}
	require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "unknown authority", "the log must contain both causes")
	require.Contains(t, log.String(), "the bearer token is not valid")
}

func TestAnonymous_ReadsTheReadOnlyPathsOnly(t *testing.T) {
	t.Parallel()
	cfg := everything()
	cfg.Streams = &streamRuntime{}
	for _, allowed := range []bool{false, true} {
		cfg.Access = kubeletapi.Access{TokenReviewer: &tokens{}, Anonymous: allowed}
		url, _ := run(t, cfg)
		for path, readable := range map[string]bool{
			"/healthz": true, "/healthz/ping": true, "/readyz": true, "/pods": true, "/pods/": true, "/metrics": true, "/metrics/probes": true,
			"/runningpods/": false, "/configz": false, "/containerLogs/ns/p/c": false, "/debug/pprof/cmdline": false, "/agent/status": false, "/agent/events": false,
			"/exec/ns/p/c": false, "/attach/ns/p/c": false, "/portForward/ns/p": false, "/unknown": false,
		} {
			code, _, body := get(t, http.DefaultClient, url+path)
			switch {
			case !allowed:
				require.Equal(t, http.StatusUnauthorized, code, path)
			case readable:
				require.Equal(t, http.StatusOK, code, path)
			default:
				require.Equal(t, http.StatusForbidden, code, path)
				require.Contains(t, body, "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[", path)
			}
		}
		code, _, _ := get(t, http.DefaultClient, url+"/pods", "Authorization", "Bearer bad")
		require.Equal(t, http.StatusUnauthorized, code, "invalid credentials must not be treated as anonymous")
		answer, err := http.DefaultClient.Post(url+"/run/ns/p/c?cmd=true", "", http.NoBody)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, map[bool]int{true: http.StatusForbidden, false: http.StatusUnauthorized}[allowed], answer.StatusCode)
	}
}

func TestAccess_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	err := kubeletapi.Access{KeyFile: "k", ClientCAFile: "c", TokenCacheTTL: -1}.Validate()
	require.ErrorContains(t, err, "CertFile and KeyFile: must both be set")
	require.ErrorContains(t, err, "ClientCAFile: requires CertFile")
	require.ErrorContains(t, err, "TokenCacheTTL: -1ns must not be negative")
	for _, access := range []kubeletapi.Access{{Anonymous: true}, {Authorizer: &judge{}}} {
		require.False(t, access.Authenticates())
		require.ErrorContains(t, access.Validate(), "require TokenFile, ClientCAFile or TokenReviewer")
		access.TokenReviewer = &tokens{}
		require.True(t, access.Authenticates())
		require.NoError(t, access.Validate())
	}
	require.NoError(t, kubeletapi.Access{}.Validate())
}

func TestTLS_VersionCiphersAndCurvesAreTheConfigured(t *testing.T) {
	t.Parallel()
	access := tlsAccess(t, newAuthority(t, "ca"))
	access.ClientCAFile = ""
	handshake := func(access kubeletapi.Access, c *tls.Config) (tls.ConnectionState, error) {
		url, _ := run(t, kubeletapi.Config{Access: access})
		c.InsecureSkipVerify = true
		conn, err := (&tls.Dialer{Config: c}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "https://"))
		if err != nil {
			return tls.ConnectionState{}, err
		}
		defer conn.Close()
		return conn.(*tls.Conn).ConnectionState(), nil
	}
	_, err := handshake(access, &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	require.ErrorContains(t, err, "protocol version", "the default minimum TLS version must be enforced")
	_, err = handshake(access, &tls.Config{MaxVersion: tls.VersionTLS12})
	require.NoError(t, err)

	newer := access
	newer.MinTLSVersion = tls.VersionTLS13
	_, err = handshake(newer, &tls.Config{MaxVersion: tls.VersionTLS12})
	require.ErrorContains(t, err, "protocol version")
	_, err = handshake(newer, &tls.Config{})
	require.NoError(t, err)

	ciphers := access
	ciphers.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}
	state, err := handshake(ciphers, &tls.Config{MaxVersion: tls.VersionTLS12})
	require.NoError(t, err)
	require.Equal(t, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, state.CipherSuite)
	_, err = handshake(ciphers, &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}})
	require.ErrorContains(t, err, "handshake failure")

	curves := access
	curves.CurvePreferences = []tls.CurveID{tls.CurveP384}
	state, err = handshake(curves, &tls.Config{})
	require.NoError(t, err)
	require.Equal(t, tls.CurveP384, state.CurveID)
	_, err = handshake(curves, &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519}})
	require.Error(t, err)
}
