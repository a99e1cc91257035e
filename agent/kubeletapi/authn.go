package kubeletapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// Names of users and groups. All are the kubelet's, except for AdminUser.
const (
	// AdminUser is the name of the user of [Access].TokenFile.
	AdminUser = "kubeparts:admin"
	// AnonymousUser is the name of the user of requests without credentials.
	AnonymousUser = "system:anonymous"

	authenticatedGroup   = "system:authenticated"
	unauthenticatedGroup = "system:unauthenticated"
	adminGroup           = "system:masters"
	// credentialID is the key of a certificate's hash in the extra values of its user.
	credentialID = "authentication.kubernetes.io/credential-id"
)

// User is an authenticated user, with the fields of UserInfo in Kubernetes' TokenReview.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// TokenReviewer authenticates bearer tokens, as a TokenReview does in Kubernetes. Requests call it
// concurrently.
type TokenReviewer interface {
	// ReviewToken returns the user of a token. It returns false if the token is not valid. An error
	// means that the token could not be checked. The server then refuses the request, and calls
	// ReviewToken again for the next request with this token. The server doesn't modify the user.
	ReviewToken(ctx context.Context, token string) (user User, authenticated bool, err error)
}

const (
	// maxReviews is the maximum number of stored results for valid tokens. The same maximum applies
	// to the results for invalid tokens.
	maxReviews      = 1024
	defaultTokenTTL = 2 * time.Minute
	// accessTimeout is the time limit for all calls of TokenReviewer and Authorizer for one
	// request.
	accessTimeout = 10 * time.Second
)

var (
	errNoCredentials = errors.New("the request has no credentials")
	errInvalidToken  = errors.New("the bearer token is not valid")
	errAnonymous     = errors.New("without an Authorizer, the anonymous user may only read the paths of the read-only port")
)

// authenticator finds the users of requests.
type authenticator struct {
	clientCAs *watched[*x509.CertPool] // nil: no client certificates
	token     *fileToken               // nil: no token file
	reviews   *tokenReviews            // nil: no reviewer
	anonymous bool
	clock     clock.PassiveClock
}

// newAuthenticator reads the files of access.
func newAuthenticator(access Access, c clock.PassiveClock, log *slog.Logger) (*authenticator, error) {
	a := &authenticator{anonymous: access.Anonymous, clock: c}
	var errs []error
	if access.TokenFile != "" {
		token, err := newFileToken(access.TokenFile, log)
		errs, a.token = append(errs, err), token
	}
	if access.ClientCAFile != "" {
		cas, err := watch(log, parseCAs, access.ClientCAFile)
		if err != nil {
			errs = append(errs, fmt.Errorf("load client CA certificates: %w", err))
		}
		a.clientCAs = cas
	}
	if access.TokenReviewer != nil {
		a.reviews = newTokenReviews(access, c)
	}
	return a, errors.Join(errs...)
}

// user returns the user of a request. An error is the reason to refuse the request. If a request
// has several credentials, one valid credential is enough.
func (a *authenticator) user(ctx context.Context, r *http.Request) (User, error) {
	var errs []error
	for _, method := range []func(context.Context, *http.Request) (*User, error){a.byCertificate, a.byToken} {
		switch user, err := method(ctx, r); {
		case user != nil:
			return *user, nil
		case err != nil:
			errs = append(errs, err)
		}
	}
	switch {
	case len(errs) > 0:
		return User{}, errors.Join(errs...)
	case a.anonymous:
		return User{Name: AnonymousUser, Groups: []string{unauthenticatedGroup}}, nil
	default:
		return User{}, errNoCredentials
	}
}

// byCertificate returns the user of the client certificate. It returns nil for a request without
// a client certificate, and for a certificate without a common name.
func (a *authenticator) byCertificate(_ context.Context, r *http.Request) (*User, error) {
	if a.clientCAs == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	roots, _ := a.clientCAs.get() // never deleted: see deleteOnError
	leaf, intermediates := r.TLS.PeerCertificates[0], x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: a.clock.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	name := leaf.Subject.CommonName
	switch {
	case err != nil:
		return nil, fmt.Errorf("verify client certificate %q with serial number %d: %w", name, leaf.SerialNumber, err)
	case name == "":
		return nil, nil
	}
	sum := sha256.Sum256(leaf.Raw)
	return &User{
		Name: name, Groups: withAuthenticated(leaf.Subject.Organization),
		Extra: map[string][]string{credentialID: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}, nil
}

// byToken returns the user of the bearer token. It returns nil for a request without a bearer
// token.
func (a *authenticator) byToken(ctx context.Context, r *http.Request) (*User, error) {
	token := bearerToken(r.Header.Get("Authorization"))
	switch {
	case token == "":
		return nil, nil
	case a.token != nil && a.token.allows(token):
		return &User{Name: AdminUser, Groups: []string{adminGroup, authenticatedGroup}}, nil
	case a.reviews == nil:
		return nil, errInvalidToken
	default:
		return a.reviews.user(ctx, token)
	}
}

// bearerToken returns the bearer token of an Authorization header. It returns "" if the header has
// no token or another scheme.
func bearerToken(header string) string {
	fields := strings.Fields(header)
	if len(fields) < 2 || !strings.EqualFold(fields[0], "Bearer") {
		return ""
	}
	return fields[1]
}

// tokenReviews stores the results of a TokenReviewer by the hashes of the tokens. Valid and invalid
// tokens have separate caches, so that a client that tries many invalid tokens does not displace
// the valid tokens.
type tokenReviews struct {
	reviewer       TokenReviewer
	ttl            time.Duration
	valid, invalid *cache.LRUExpireCache
}

func newTokenReviews(a Access, c clock.PassiveClock) *tokenReviews {
	return &tokenReviews{
		reviewer: a.TokenReviewer, ttl: cmp.Or(a.TokenCacheTTL, defaultTokenTTL),
		valid: cache.NewLRUExpireCacheWithClock(maxReviews, c), invalid: cache.NewLRUExpireCacheWithClock(maxReviews, c),
	}
}

// user returns the user of a token, or an error if the token is invalid or could not be checked.
func (t *tokenReviews) user(ctx context.Context, token string) (*User, error) {
	key := sha256.Sum256([]byte(token))
	if user, ok := t.valid.Get(key); ok {
		return user.(*User), nil
	}
	if _, ok := t.invalid.Get(key); ok {
		return nil, errInvalidToken
	}
	user, ok, err := t.reviewer.ReviewToken(ctx, token)
	switch {
	case err != nil:
		return nil, fmt.Errorf("review the bearer token: %w", err)
	case !ok:
		t.invalid.Add(key, nil, t.ttl)
		return nil, errInvalidToken
	}
	user.Groups = withAuthenticated(user.Groups)
	t.valid.Add(key, &user, t.ttl)
	return &user, nil
}

// withAuthenticated returns the groups of a user with the group of all authenticated users added.
// It adds nothing if groups already contains this group or the group of unauthenticated users.
func withAuthenticated(groups []string) []string {
	if slices.Contains(groups, authenticatedGroup) || slices.Contains(groups, unauthenticatedGroup) {
		return groups
	}
	return append(slices.Clip(groups), authenticatedGroup)
}

// parseCAs parses PEM certificates.
func parseCAs(data ...[]byte) (*x509.CertPool, error) {
	pool, found := x509.NewCertPool(), false
	for block, rest := pem.Decode(data[0]); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(cert)
		found = true
	}
	if !found {
		return nil, errors.New("must contain at least one PEM block CERTIFICATE")
	}
	return pool, nil
}
