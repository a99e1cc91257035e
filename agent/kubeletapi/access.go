package kubeletapi

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// Access decides which clients are allowed, and how connections are encrypted.
//
// If TokenFile, ClientCAFile or TokenReviewer is set, the server authenticates and authorizes each
// request, except for /livez and the page. Otherwise the server only listens on loopback addresses,
// and allows every request whose Host header is a name of this machine.
type Access struct {
	// CertFile and KeyFile are the PEM files of the serving certificate and its key. If both
	// are empty, connections are not encrypted. Set both or neither. The server reads the files
	// again when they change.
	CertFile, KeyFile string
	// GetCertificate returns the serving certificate for a connection, as in [tls.Config]. While
	// GetCertificate returns an error, no client can connect. CertFile and GetCertificate must not
	// both be set.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// MinTLSVersion, CipherSuites and CurvePreferences are as in [tls.Config]. Default of
	// MinTLSVersion: TLS 1.2. CipherSuites and CurvePreferences have the defaults of [tls.Config].
	MinTLSVersion    uint16
	CipherSuites     []uint16
	CurvePreferences []tls.CurveID

	// ClientCAFile is the PEM file of the CA certificates that sign client certificates. The common
	// name of a client certificate is the name of its user, and the organizations of the
	// certificate are the groups of the user. The server reads the file again when it changes.
	// ClientCAFile requires a serving certificate. Default: the server does not ask for client
	// certificates.
	ClientCAFile string
	// TokenFile is the file with a bearer token. The user of this token is the administrator: its
	// name is [AdminUser], and its group is system:masters. An API server permits every request of
	// this group. The server reads the file again when it changes. While the file can't be read or
	// has no token, the server refuses the token that the file had before. Default: no such token.
	TokenFile string
	// TokenReviewer authenticates all other bearer tokens. The server stores each result for
	// TokenCacheTTL. Without a TokenReviewer, the server refuses all other tokens. Default of
	// TokenCacheTTL: 2 minutes, as in the kubelet.
	TokenReviewer TokenReviewer
	TokenCacheTTL time.Duration
	// Anonymous allows requests without credentials. Their user is [AnonymousUser]. The server
	// still refuses requests with invalid credentials.
	Anonymous bool

	// Authorizer decides which requests a user may make. Default: the anonymous user may only read
	// the paths of the read-only port (see [Server.RunReadOnly]). All other users may make all
	// requests, as with the kubelet's authorization mode AlwaysAllow.
	Authorizer Authorizer
}

// Authenticates reports whether the server authenticates requests.
func (a Access) Authenticates() bool {
	return a.TokenFile != "" || a.ClientCAFile != "" || a.TokenReviewer != nil
}

// encrypts reports whether connections are encrypted.
func (a Access) encrypts() bool { return a.CertFile != "" || a.GetCertificate != nil }

// URL returns the URL of a Server with this access that listens on addr.
func (a Access) URL(addr net.Addr) string {
	if a.encrypts() {
		return "https://" + addr.String()
	}
	return "http://" + addr.String()
}

// Validate reports every problem with the Access, joined. It opens no file.
func (a Access) Validate() error {
	var errs []error
	if (a.CertFile == "") != (a.KeyFile == "") {
		errs = append(errs, errors.New("fields Access.CertFile and KeyFile: must both be set, or neither"))
	}
	if a.CertFile != "" && a.GetCertificate != nil {
		errs = append(errs, errors.New("fields Access.CertFile and GetCertificate: must not both be set"))
	}
	if a.ClientCAFile != "" && !a.encrypts() {
		errs = append(errs, errors.New("field Access.ClientCAFile: requires CertFile or GetCertificate, because clients only send certificates over TLS"))
	}
	if a.TokenCacheTTL < 0 {
		errs = append(errs, fmt.Errorf("field Access.TokenCacheTTL: %v must not be negative", a.TokenCacheTTL))
	}
	if (a.Anonymous || a.Authorizer != nil) && !a.Authenticates() {
		errs = append(errs, errors.New("fields Access.Anonymous and Authorizer: require TokenFile, ClientCAFile or TokenReviewer, because no request has a user without them"))
	}
	return errors.Join(errs...)
}

// tlsConfig returns the configuration of TLS connections.
func (a Access) tlsConfig() *tls.Config {
	cfg := &tls.Config{
		MinVersion:       cmp.Or(a.MinTLSVersion, tls.VersionTLS12),
		CipherSuites:     a.CipherSuites,
		CurvePreferences: a.CurvePreferences,
		GetCertificate:   a.GetCertificate,
	}
	if a.ClientCAFile != "" {
		// The authenticator verifies the certificate for each request. So the server can respond to
		// a client with an invalid certificate, and a changed ClientCAFile applies to open
		// connections.
		cfg.ClientAuth = tls.RequestClientCert
	}
	return cfg
}
