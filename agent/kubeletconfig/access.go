package kubeletconfig

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Authorization modes. If a program has no API server, it must refuse [Webhook], and also the
// authentication by a webhook.
const (
	// AlwaysAllow permits all requests of authenticated users.
	AlwaysAllow = "AlwaysAllow"
	// Webhook permits the requests that the API server permits, by a SubjectAccessReview.
	Webhook = "Webhook"
)

// KubeletAuthentication is how the server authenticates its clients.
type KubeletAuthentication struct {
	X509      KubeletX509Authentication      `json:"x509"`
	Webhook   KubeletWebhookAuthentication   `json:"webhook"`
	Anonymous KubeletAnonymousAuthentication `json:"anonymous"`
}

// KubeletX509Authentication authenticates client certificates.
type KubeletX509Authentication struct {
	// ClientCAFile is the PEM file of the CA certificates that sign client certificates. If
	// ClientCAFile is empty, client certificates are not accepted.
	ClientCAFile string `json:"clientCAFile,omitempty"`
}

// KubeletWebhookAuthentication authenticates bearer tokens by a TokenReview of the API server.
type KubeletWebhookAuthentication struct {
	Enabled bool `json:"enabled"`
	// CacheTTL is how long the result of a review is used.
	CacheTTL metav1.Duration `json:"cacheTTL"`
}

// KubeletAnonymousAuthentication accepts requests without credentials. The user of these requests
// is system:anonymous.
type KubeletAnonymousAuthentication struct {
	Enabled bool `json:"enabled"`
}

// KubeletAuthorization is how the server decides which requests a user may make.
type KubeletAuthorization struct {
	// Mode is [AlwaysAllow] or [Webhook].
	Mode    string                      `json:"mode"`
	Webhook KubeletWebhookAuthorization `json:"webhook"`
}

// KubeletWebhookAuthorization is how long decisions of the API server are used.
type KubeletWebhookAuthorization struct {
	CacheAuthorizedTTL   metav1.Duration `json:"cacheAuthorizedTTL"`
	CacheUnauthorizedTTL metav1.Duration `json:"cacheUnauthorizedTTL"`
}

func (a *KubeletAuthentication) members() members {
	return members{
		"x509":      members{"clientCAFile": &a.X509.ClientCAFile},
		"webhook":   members{"enabled": &a.Webhook.Enabled, "cacheTTL": &a.Webhook.CacheTTL},
		"anonymous": members{"enabled": &a.Anonymous.Enabled},
	}
}

func (a *KubeletAuthorization) members() members {
	return members{
		"mode":    &a.Mode,
		"webhook": members{"cacheAuthorizedTTL": &a.Webhook.CacheAuthorizedTTL, "cacheUnauthorizedTTL": &a.Webhook.CacheUnauthorizedTTL},
	}
}

// defaultAccess sets the defaults of nested fields that are 0 or empty, which the kubelet treats
// as not set.
func (s *Settings) defaultAccess(byDefault Settings) {
	replaceZero(&s.Authentication.Webhook.CacheTTL, &byDefault.Authentication.Webhook.CacheTTL)
	replaceZero(&s.Authorization.Mode, &byDefault.Authorization.Mode)
	replaceZero(&s.Authorization.Webhook.CacheAuthorizedTTL, &byDefault.Authorization.Webhook.CacheAuthorizedTTL)
	replaceZero(&s.Authorization.Webhook.CacheUnauthorizedTTL, &byDefault.Authorization.Webhook.CacheUnauthorizedTTL)
}

// TLS returns tlsMinVersion, tlsCipherSuites and tlsCurvePreferences in the types of [tls.Config].
// A field that is not set is zero. The error names every unknown name.
func (s Settings) TLS() (minVersion uint16, suites []uint16, curves []tls.CurveID, err error) {
	var c checker
	minVersion = s.tlsVersion(&c)
	suites, curves = s.tlsSuites(&c), s.tlsCurves(&c)
	return minVersion, suites, curves, join(c.problems)
}

func (s Settings) tlsVersion(c *checker) uint16 {
	versions := []uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13}
	var names []string
	for _, version := range versions {
		name := "Version" + strings.NewReplacer(" ", "", ".", "").Replace(tls.VersionName(version)) // such as VersionTLS12
		if name == s.TLSMinVersion {
			return version
		}
		names = append(names, name)
	}
	if s.TLSMinVersion != "" {
		c.oneOf("tlsMinVersion", s.TLSMinVersion, names...)
	}
	return 0
}

func (s Settings) tlsSuites(c *checker) (ids []uint16) {
	known := slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites())
	for _, name := range s.TLSCipherSuites {
		// The kubelet accepts these older names, too.
		full := name
		switch name {
		case "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305":
			full += "_SHA256"
		}
		i := slices.IndexFunc(known, func(suite *tls.CipherSuite) bool { return suite.Name == full })
		if i < 0 {
			c.refuse(true, "tlsCipherSuites", "%q: want a name of Go's package crypto/tls, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", name)
			continue
		}
		ids = append(ids, known[i].ID)
	}
	return ids
}

func (s Settings) tlsCurves(c *checker) (ids []tls.CurveID) {
	for i, n := range s.TLSCurvePreferences {
		id := tls.CurveID(n)
		switch {
		case n <= 0 || n > 1<<16-1 || strings.HasPrefix(id.String(), "CurveID("):
			c.refuse(true, "tlsCurvePreferences", "%d: want a CurveID of Go's package crypto/tls, such as %d for %v", n, tls.X25519MLKEM768, tls.X25519MLKEM768)
		case slices.Contains(s.TLSCurvePreferences[:i], n):
			c.refuse(true, "tlsCurvePreferences", "%d is listed twice", n)
		}
		ids = append(ids, id)
	}
	return ids
}

// tlsNotes returns notes about cipher suites that have no effect, or are insecure.
func (s Settings) tlsNotes() (notes []string) {
	if len(s.TLSCipherSuites) > 0 && s.TLSMinVersion == "VersionTLS13" {
		notes = append(notes, "the field has no effect: with tlsMinVersion VersionTLS13, Go chooses the cipher suites")
	}
	for _, suite := range tls.InsecureCipherSuites() {
		if slices.Contains(s.TLSCipherSuites, suite.Name) {
			notes = append(notes, fmt.Sprintf("%s is insecure", suite.Name))
		}
	}
	return notes
}

func (s Settings) checkAccess(c *checker) {
	c.between("readOnlyPort", int64(s.ReadOnlyPort), 0, 1<<16-1)
	c.between("healthzPort", int64(s.HealthzPort), 0, 1<<16-1)
	c.refuse(net.ParseIP(s.HealthzBindAddress) == nil, "healthzBindAddress", "%q: want an IP address", s.HealthzBindAddress)
	s.tlsVersion(c)
	s.tlsSuites(c)
	s.tlsCurves(c)
	ttl := s.Authentication.Webhook.CacheTTL.Duration
	c.refuse(ttl < 0, "authentication", "webhook.cacheTTL %s: want at least 0s", ttl)
	c.refuse(s.Authorization.Mode != AlwaysAllow && s.Authorization.Mode != Webhook, "authorization", "mode %q: want %s or %s", s.Authorization.Mode, AlwaysAllow, Webhook)
	for _, cached := range []struct {
		name string
		ttl  metav1.Duration
	}{
		{"cacheAuthorizedTTL", s.Authorization.Webhook.CacheAuthorizedTTL},
		{"cacheUnauthorizedTTL", s.Authorization.Webhook.CacheUnauthorizedTTL},
	} {
		c.refuse(cached.ttl.Duration < 0, "authorization", "webhook.%s %s: want at least 0s", cached.name, cached.ttl.Duration)
	}
}
