package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"
)

// errNotIssued is why a client can't connect yet.
var errNotIssued = errors.New("the serving certificate of the node is not issued yet: its CertificateSigningRequest must be approved")

// ServerConfig configures a [Server].
type ServerConfig struct {
	// Client is the client of the API server. Required.
	Client kubernetes.Interface
	// NodeName is the name of the node. Required.
	NodeName string
	// Dir is the folder of the certificates. Required.
	Dir string
	// Addresses returns the addresses and host names of the node. While it returns no IP address,
	// the Server requests no certificate. Required.
	Addresses func() []corev1.NodeAddress
	// Clock is the time source. Default: the system clock.
	Clock clock.WithTicker
	// Logger receives structured logs, also those of client-go. Default: discard.
	Logger *slog.Logger
}

// Validate returns all problems with c as one error.
func (c ServerConfig) Validate() error {
	var errs []error
	for _, f := range []struct {
		name    string
		missing bool
	}{{"Client", c.Client == nil}, {"NodeName", c.NodeName == ""}, {"Dir", c.Dir == ""}, {"Addresses", c.Addresses == nil}} {
		if f.missing {
			errs = append(errs, fmt.Errorf("certificates: %s is required", f.name))
		}
	}
	return errors.Join(errs...)
}

// Server has the serving certificate of the node, which the API server has issued. Create it with
// [NewServer].
type Server struct {
	cfg     ServerConfig
	rotator atomic.Pointer[rotator] // nil before Run
}

// NewServer returns a Server. It opens no file and sends no request.
func NewServer(cfg ServerConfig) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Logger = orDiscard(cfg.Logger)
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Server{cfg: cfg}, nil
}

// GetCertificate returns the current certificate. It is for the field of the same name in
// [tls.Config]. It returns an error while there is no valid certificate.
func (s *Server) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if r := s.rotator.Load(); r != nil {
		if current := r.valid(); current != nil {
			return current, nil
		}
	}
	return nil, errNotIssued
}

// Run requests the certificate, and replaces it before it expires, until ctx is done. It also
// replaces a certificate that does not have all addresses of the node. If the certificate of an
// earlier Run is still valid, Run uses that certificate.
func (s *Server) Run(ctx context.Context) error {
	ctx = withLogger(ctx, s.cfg.Logger)
	store, err := certificate.NewFileStoreWithLogger(loggerOf(ctx), serverPair, s.cfg.Dir, s.cfg.Dir, "", "")
	if err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	r := &rotator{
		client:   func(*tls.Certificate) (kubernetes.Interface, error) { return s.cfg.Client, nil },
		template: s.template,
		signer:   certificatesv1.KubeletServingSignerName, usage: certificatesv1.UsageServerAuth,
		store: store, clock: s.cfg.Clock, log: s.cfg.Logger,
	}
	r.load()
	s.rotator.Store(r)
	r.run(ctx)
	return nil
}

// template returns the request, or nil while the addresses are unknown.
func (s *Server) template() *x509.CertificateRequest {
	var names []string
	var ips []net.IP
	for _, a := range s.cfg.Addresses() {
		switch ip := net.ParseIP(a.Address); {
		case a.Type == corev1.NodeHostName, a.Type == corev1.NodeInternalDNS, a.Type == corev1.NodeExternalDNS:
			if ip != nil { // a host name may be an address
				ips = append(ips, ip)
			} else if !slices.Contains(names, a.Address) {
				names = append(names, a.Address)
			}
		case ip != nil:
			ips = append(ips, ip)
		}
	}
	if len(ips) == 0 {
		return nil // as in the kubelet, a name alone is not enough
	}
	slices.Sort(names)
	slices.SortFunc(ips, func(a, b net.IP) int { return slices.Compare(a.To16(), b.To16()) })
	return &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + s.cfg.NodeName, Organization: []string{"system:nodes"}},
		DNSNames: names, IPAddresses: slices.CompactFunc(ips, net.IP.Equal),
	}
}

// SelfSigned returns the files of a self-signed serving certificate in dir. It creates them if they
// do not exist.
func SelfSigned(dir, nodeName string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")
	usable, err := certutil.CanReadCertAndKey(certFile, keyFile)
	if err != nil {
		return "", "", fmt.Errorf("self-signed serving certificate: %w", err)
	}
	if usable {
		return certFile, keyFile, nil
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey(nodeName, nil, nil)
	if err != nil {
		return "", "", fmt.Errorf("create a self-signed serving certificate: %w", err)
	}
	if err := errors.Join(certutil.WriteCert(certFile, cert), keyutil.WriteKey(keyFile, key)); err != nil {
		return "", "", fmt.Errorf("write the self-signed serving certificate: %w", err)
	}
	return certFile, keyFile, nil
}
