package kubeletconfig_test

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
)

func TestTLS_NamesAreThoseOfGo(t *testing.T) {
	t.Parallel()
	s := kubeletconfig.Default()
	version, suites, curves, err := s.TLS()
	require.NoError(t, err)
	require.Zero(t, version)
	require.Empty(t, suites)
	require.Empty(t, curves)

	for name, want := range map[string]uint16{
		"VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11, "VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
	} {
		s.TLSMinVersion = name
		version, _, _, err := s.TLS()
		require.NoError(t, err)
		require.Equal(t, want, version)
	}
	var ids []uint16
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		s.TLSCipherSuites = append(s.TLSCipherSuites, suite.Name)
		ids = append(ids, suite.ID)
	}
	s.TLSCipherSuites = append(s.TLSCipherSuites, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305")
	ids = append(ids, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256)
	s.TLSCurvePreferences = []int32{int32(tls.X25519), int32(tls.CurveP521), int32(tls.X25519MLKEM768)}
	_, suites, curves, err = s.TLS()
	require.NoError(t, err)
	require.Equal(t, ids, suites)
	require.Equal(t, []tls.CurveID{tls.X25519, tls.CurveP521, tls.X25519MLKEM768}, curves)
}

func TestTLS_ReportsEveryUnknownName(t *testing.T) {
	t.Parallel()
	s := kubeletconfig.Default()
	s.TLSMinVersion, s.TLSCipherSuites, s.TLSCurvePreferences = "VersionSSL30", []string{"A", "B"}, []int32{29, 29, -29}
	_, _, _, err := s.TLS()
	for _, want := range []string{
		`tlsMinVersion: "VersionSSL30": want VersionTLS10 or VersionTLS11 or VersionTLS12 or VersionTLS13`,
		`tlsCipherSuites: "A": want a name`, `tlsCipherSuites: "B": want a name`, "tlsCurvePreferences: 29 is listed twice", "tlsCurvePreferences: -29: want a CurveID",
	} {
		require.ErrorContains(t, err, want)
	}
}

// TestParse_FileOfKubeadm parses the fields of users in the file that kubeadm writes for a kubelet.
func TestParse_FileOfKubeadm(t *testing.T) {
	t.Parallel()
	f, err := kubeletconfig.Parse([]byte(header + `
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
`))
	require.NoError(t, err)
	require.Empty(t, f.Notes)
	s := f.Settings
	require.False(t, s.Authentication.Anonymous.Enabled)
	require.True(t, s.Authentication.Webhook.Enabled)
	require.Equal(t, 2*time.Minute, s.Authentication.Webhook.CacheTTL.Duration)
	require.Equal(t, "/etc/kubernetes/pki/ca.crt", s.Authentication.X509.ClientCAFile)
	require.Equal(t, kubeletconfig.Webhook, s.Authorization.Mode)
	require.Equal(t, 5*time.Minute, s.Authorization.Webhook.CacheAuthorizedTTL.Duration)
	require.Equal(t, 30*time.Second, s.Authorization.Webhook.CacheUnauthorizedTTL.Duration)
	require.EqualValues(t, 10248, s.HealthzPort)
	require.Empty(t, s.Check())
}

func TestCheck_ReportsEveryProblemOfAccess(t *testing.T) {
	t.Parallel()
	s := kubeletconfig.Default()
	s.HealthzPort, s.ReadOnlyPort, s.HealthzBindAddress = 1<<16, -1, "localhost"
	s.TLSMinVersion, s.TLSCipherSuites, s.TLSCurvePreferences = "x", []string{"x"}, []int32{-1}
	s.Authentication.Webhook.CacheTTL.Duration = -1
	s.Authorization.Mode = "RBAC"
	s.Authorization.Webhook.CacheAuthorizedTTL.Duration, s.Authorization.Webhook.CacheUnauthorizedTTL.Duration = -1, -1
	fields := map[string]int{}
	for _, problem := range s.Check() {
		fields[problem.Field]++
		require.Zero(t, problem.Line)
	}
	require.Equal(t, map[string]int{
		"healthzPort": 1, "readOnlyPort": 1, "healthzBindAddress": 1, "tlsMinVersion": 1, "tlsCipherSuites": 1, "tlsCurvePreferences": 1,
		"authentication": 1, "authorization": 3,
	}, fields)
}

func TestParse_NestedFieldsReportTheirLines(t *testing.T) {
	t.Parallel()
	_, err := kubeletconfig.Parse([]byte(header + `
authentication:
  anonymous:
    enabled: perhaps
  x509:
    clientCAFile: 5
  x509: {}
  webhook: [1]
  oidc: {}
authorization:
  mode: {}
  webhook:
    cacheAuthorizedTTL: 5
    cacheTTL: 5m
`))
	for _, want := range []string{
		"line 6: authentication.anonymous.enabled: want true or false", "line 8: authentication.x509.clientCAFile: want a string",
		"line 9: authentication.x509: is already set in line 7", "line 10: authentication.webhook: want fields with values",
		"line 11: authentication.oidc: unknown field", "line 13: authorization.mode: want a string",
		"line 15: authorization.webhook.cacheAuthorizedTTL: want a duration", "line 16: authorization.webhook.cacheTTL: unknown field",
	} {
		require.ErrorContains(t, err, want)
	}
}
