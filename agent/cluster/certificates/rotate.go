package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"
)

const (
	// checkPeriod is the longest time between two checks whether a certificate is due.
	checkPeriod = 5 * time.Second
	// issueTimeout is how long a request may wait until its certificate is issued. After that, the
	// rotator sends another request.
	issueTimeout = 15 * time.Minute
	// minRetry and maxRetry are the shortest and the longest time between two failed requests. The
	// time doubles with each failure. Up to a tenth is added, so that nodes retry at different times.
	minRetry = 2 * time.Second
	maxRetry = 32 * time.Second
)

// rotator requests a certificate from the API server if the store has no certificate, if the stored
// certificate is due to be replaced, or if it does not have all names of the template.
type rotator struct {
	// client returns the client for a request. current is nil if there is no valid certificate.
	client func(current *tls.Certificate) (kubernetes.Interface, error)
	// template returns what to request. It returns nil while that is unknown.
	template func() *x509.CertificateRequest
	signer   string
	usage    certificatesv1.KeyUsage
	store    certificate.FileStore
	clock    clock.WithTicker
	log      *slog.Logger

	current atomic.Pointer[tls.Certificate] // nil: none
	// due is the time at which run replaces current. Only the goroutine that calls load, issue and
	// run uses due.
	due time.Time
}

// load reads the current certificate from the store.
func (r *rotator) load() {
	current, err := r.store.Current()
	if err != nil {
		if _, missing := errors.AsType[*certificate.NoCertKeyError](err); !missing {
			r.log.Warn("could not read the current certificate, ignoring it", "file", r.store.CurrentPath(), "err", err)
		}
		return
	}
	r.use(current)
}

// use makes a certificate the current one. It is replaced when 70 to 90 % of its life are over.
func (r *rotator) use(current *tls.Certificate) {
	life := current.Leaf.NotAfter.Sub(current.Leaf.NotBefore)
	r.due = current.Leaf.NotBefore.Add(time.Duration(float64(life) * (0.7 + 0.2*mathrand.Float64())))
	r.current.Store(current)
}

// valid returns the current certificate, or nil if it is not valid.
func (r *rotator) valid() *tls.Certificate {
	current := r.current.Load()
	if current == nil || r.clock.Now().After(current.Leaf.NotAfter) {
		return nil
	}
	return current
}

// issue requests a certificate until one is issued. It returns an error only if ctx is done.
func (r *rotator) issue(ctx context.Context) error {
	for retry := minRetry; ; retry = min(2*retry, maxRetry) {
		err := r.request(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		pause := wait.Jitter(retry, 0.1)
		r.log.ErrorContext(ctx, "could not get a certificate from the API server, will retry", "signer", r.signer, "retryIn", pause.Round(time.Second/10), "err", err)
		r.sleep(ctx, pause)
	}
}

// run requests a certificate each time that one is needed, until ctx is done.
func (r *rotator) run(ctx context.Context) {
	for ctx.Err() == nil {
		template := r.template()
		current := r.current.Load()
		now := r.clock.Now()
		switch {
		case template == nil:
			r.sleep(ctx, time.Second)
		case current == nil || !now.Before(r.due) || !covers(current.Leaf, template):
			_ = r.issue(ctx) // the only error is that of ctx
		default:
			r.sleep(ctx, min(checkPeriod, r.due.Sub(now)))
		}
	}
}

func (r *rotator) sleep(ctx context.Context, d time.Duration) {
	timer := r.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}

// request requests a certificate and waits until it is issued.
func (r *rotator) request(ctx context.Context) error {
	template := r.template()
	if template == nil {
		return errors.New("the addresses of the node are not known yet")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("create a key: %w", err)
	}
	der, errRequest := x509.CreateCertificateRequest(rand.Reader, template, key)
	keyPEM, errKey := keyutil.MarshalPrivateKeyToPEM(key)
	client, errClient := r.client(r.valid())
	if err := errors.Join(errRequest, errKey, errClient); err != nil {
		return fmt.Errorf("create a request: %w", err)
	}
	name, uid, err := csr.RequestCertificateWithContext(ctx, client, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		"", r.signer, nil, []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, r.usage}, key)
	if err != nil {
		return err
	}
	r.log.InfoContext(ctx, "requested a certificate", "signer", r.signer, "certificateSigningRequest", name)
	cert, err := r.await(ctx, client, name, uid, template)
	if err != nil {
		return fmt.Errorf("CertificateSigningRequest %s: %w", name, err)
	}
	if err := r.save(cert, keyPEM); err != nil {
		return err
	}
	// Without these checks, the next request would follow at once.
	leaf := r.current.Load().Leaf
	if !covers(leaf, template) {
		return fmt.Errorf("CertificateSigningRequest %s: the issued certificate does not have all requested names", name)
	}
	if !r.clock.Now().Before(r.due) {
		return fmt.Errorf("CertificateSigningRequest %s: the issued certificate expires too early, at %s", name, leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// await waits until a certificate is issued. It returns an error after issueTimeout, and when the
// template has changed.
func (r *rotator) await(ctx context.Context, client kubernetes.Interface, name string, uid types.UID, template *x509.CertificateRequest) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { cancel(r.outdated(ctx, template)) })
	defer watcher.Wait()
	defer cancel(nil)
	cert, err := csr.WaitForCertificate(ctx, client, name, uid)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return cert, err
}

// outdated waits until a pending request is outdated or ctx is done, and returns the reason.
func (r *rotator) outdated(ctx context.Context, template *x509.CertificateRequest) error {
	end := r.clock.Now().Add(issueTimeout)
	for {
		r.sleep(ctx, checkPeriod)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !r.clock.Now().Before(end):
			return fmt.Errorf("the certificate was not issued within %.0f minutes", issueTimeout.Minutes())
		case !sameRequest(template, r.template()):
			return errors.New("the addresses of the node have changed while the request was pending")
		}
	}
}

// save stores a certificate and makes it the current one.
func (r *rotator) save(cert, key []byte) error {
	current, err := r.store.Update(cert, key)
	if err != nil {
		return fmt.Errorf("store the certificate: %w", err)
	}
	r.use(current)
	r.log.Info("got a certificate", "signer", r.signer, "file", r.store.CurrentPath(), "expires", current.Leaf.NotAfter)
	return nil
}

// covers reports whether a certificate has all names of a request.
func covers(leaf *x509.Certificate, request *x509.CertificateRequest) bool {
	return leaf.Subject.CommonName == request.Subject.CommonName &&
		!slices.ContainsFunc(request.Subject.Organization, func(name string) bool { return !slices.Contains(leaf.Subject.Organization, name) }) &&
		!slices.ContainsFunc(request.DNSNames, func(name string) bool { return !slices.Contains(leaf.DNSNames, name) }) &&
		!slices.ContainsFunc(request.IPAddresses, func(ip net.IP) bool { return !slices.ContainsFunc(leaf.IPAddresses, ip.Equal) })
}

// sameRequest reports whether two requests have the same names.
func sameRequest(a, b *x509.CertificateRequest) bool {
	return b != nil && slices.Equal(a.DNSNames, b.DNSNames) && slices.EqualFunc(a.IPAddresses, b.IPAddresses, net.IP.Equal)
}
