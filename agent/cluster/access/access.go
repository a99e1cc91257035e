package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// The kubelet's defaults of [Config].
const (
	// DefaultAllowedTTL is the default of Config.AllowedTTL.
	DefaultAllowedTTL = 5 * time.Minute
	// DefaultDeniedTTL is the default of Config.DeniedTTL.
	DefaultDeniedTTL = 30 * time.Second
)

// maxDecisions is the maximum number of stored decisions.
const maxDecisions = 8192

// Config configures a [Reviewer].
type Config struct {
	// Client is the client of the API server. Required.
	Client kubernetes.Interface
	// AllowedTTL is how long the decision to allow a request is used. Default [DefaultAllowedTTL].
	AllowedTTL time.Duration
	// DeniedTTL is how long the decision to deny a request is used. Default [DefaultDeniedTTL].
	DeniedTTL time.Duration
	// Clock is the time source. Default: the system clock.
	Clock clock.PassiveClock
}

// Validate returns all problems with c as one error. It sends no request.
func (c Config) Validate() error {
	var errs []error
	if c.Client == nil {
		errs = append(errs, errors.New("access: Client is required"))
	}
	if c.AllowedTTL < 0 || c.DeniedTTL < 0 {
		errs = append(errs, errors.New("access: AllowedTTL and DeniedTTL must not be negative"))
	}
	return errors.Join(errs...)
}

// Reviewer lets the API server decide about users and requests. Create it with [New].
type Reviewer struct {
	cfg       Config
	decisions *cache.LRUExpireCache // of type decision; the key is a hash of the review, because names may be long
}

// decision is the decision of the API server about a request.
type decision struct {
	allowed bool
	reason  string
}

// New returns a Reviewer. It sends no request.
func New(cfg Config) (*Reviewer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.AllowedTTL, cfg.DeniedTTL = cmp.Or(cfg.AllowedTTL, DefaultAllowedTTL), cmp.Or(cfg.DeniedTTL, DefaultDeniedTTL)
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Reviewer{cfg: cfg, decisions: cache.NewLRUExpireCacheWithClock(maxDecisions, cfg.Clock)}, nil
}

// ReviewToken implements [kubeletapi.TokenReviewer].
func (r *Reviewer) ReviewToken(ctx context.Context, token string) (kubeletapi.User, bool, error) {
	review, err := r.cfg.Client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return kubeletapi.User{}, false, fmt.Errorf("create a TokenReview: %w", err)
	case review.Status.Authenticated:
		u := review.Status.User
		return kubeletapi.User{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra[[]string](u.Extra)}, true, nil
	case review.Status.Error != "" && !isInvalidToken(review.Status.Error):
		return kubeletapi.User{}, false, fmt.Errorf("TokenReview: %s", review.Status.Error)
	default:
		return kubeletapi.User{}, false, nil
	}
}

// isInvalidToken reports whether the error of a TokenReview means that the token is not valid. Only
// the text of the error shows this, because a TokenReview has no field for this case.
func isInvalidToken(message string) bool {
	return strings.Contains(message, "invalid bearer token")
}

// Authorize implements [kubeletapi.Authorizer].
func (r *Reviewer) Authorize(ctx context.Context, a kubeletapi.Attributes) (allowed bool, reason string, err error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: a.User.Name, UID: a.User.UID, Groups: a.User.Groups, Extra: extra[authorizationv1.ExtraValue](a.User.Extra),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: a.Verb, Version: a.APIVersion, Resource: a.Resource, Subresource: a.Subresource, Name: a.Name,
		},
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return false, "", fmt.Errorf("marshal a SubjectAccessReview: %w", err)
	}
	key := sha256.Sum256(text)
	if stored, ok := r.decisions.Get(key); ok {
		d := stored.(decision)
		return d.allowed, d.reason, nil
	}
	review, err := r.cfg.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, "", fmt.Errorf("create a SubjectAccessReview: %w", err)
	}
	if review.Status.Allowed && review.Status.Denied {
		return false, "", errors.New("SubjectAccessReview: the API server both allowed and denied the request")
	}
	d := decision{review.Status.Allowed, review.Status.Reason}
	if e := review.Status.EvaluationError; e != "" {
		d.reason = strings.TrimPrefix(d.reason+": "+e, ": ")
	}
	ttl := r.cfg.DeniedTTL
	if d.allowed {
		ttl = r.cfg.AllowedTTL
	}
	r.decisions.Add(key, d, ttl)
	return d.allowed, d.reason, nil
}

// extra converts the extra values of a user.
func extra[To, From ~[]string](from map[string]From) map[string]To {
	if from == nil {
		return nil
	}
	to := make(map[string]To, len(from))
	for name, values := range from {
		to[name] = To(values)
	}
	return to
}
