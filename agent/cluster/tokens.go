package cluster

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxTokenAge is the age at which a token is refreshed even if it is valid for much longer.
	maxTokenAge = 24 * time.Hour
	// maxTokenJitter is the maximum random time by which a token is refreshed earlier.
	maxTokenJitter = 10 * time.Second
	// firstTokenWait is the time before the first repetition of a forbidden request. The time
	// doubles with each repetition.
	firstTokenWait = 50 * time.Millisecond
)

// tokens requests and caches tokens of service accounts, and refreshes them: see refreshAt.
type tokens struct {
	cfg Config

	mu     sync.Mutex
	cached map[tokenKey]*authenticationv1.TokenRequest
}

// tokenKey identifies a token. All fields are part of the request.
type tokenKey struct {
	pod                       types.UID
	namespace, serviceAccount string
	audiences                 string
	seconds                   int64
}

func newTokens(cfg Config) *tokens {
	return &tokens{cfg: cfg, cached: map[tokenKey]*authenticationv1.TokenRequest{}}
}

// token is a podspec.TokenFunc. If a token can't be refreshed, it returns the cached token while
// the cached token is valid.
func (t *tokens) token(ctx context.Context, pod *corev1.Pod, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	k := tokenKey{
		pod: pod.UID, namespace: pod.Namespace, serviceAccount: pod.Spec.ServiceAccountName,
		audiences: strings.Join(request.Spec.Audiences, "\n"),
	}
	if request.Spec.ExpirationSeconds != nil {
		k.seconds = *request.Spec.ExpirationSeconds
	}
	t.mu.Lock()
	old := t.cached[k]
	t.mu.Unlock()
	if old != nil && t.cfg.Clock.Now().Before(t.refreshAt(old)) {
		return old, nil
	}
	var patience time.Duration
	if old == nil {
		patience = objectTimeout
	}
	next, err := t.request(ctx, k, request, patience)
	switch {
	case err == nil:
		t.mu.Lock()
		t.cached[k] = next
		t.mu.Unlock()
		return next, nil
	case old != nil && t.cfg.Clock.Now().Before(old.Status.ExpirationTimestamp.Time):
		t.cfg.Logger.WarnContext(ctx, "could not refresh a service account token, the pod keeps its token and the request will be repeated",
			"pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "serviceAccount", k.serviceAccount, "expires", old.Status.ExpirationTimestamp, "err", err)
		return old, nil
	default:
		return nil, fmt.Errorf("request a token of service account %s/%s: %w", k.namespace, k.serviceAccount, err)
	}
}

// request requests a token. The Node authorizer permits the request only some time after the pod
// was bound to the node. So a forbidden request is repeated; patience is the time limit.
func (t *tokens) request(ctx context.Context, k tokenKey, request *authenticationv1.TokenRequest, patience time.Duration) (*authenticationv1.TokenRequest, error) {
	end := t.cfg.Clock.Now().Add(patience)
	for wait := firstTokenWait; ; wait *= 2 {
		token, err := t.cfg.Client.CoreV1().ServiceAccounts(k.namespace).CreateToken(ctx, k.serviceAccount, request, metav1.CreateOptions{})
		next := t.cfg.Clock.Now().Add(wait)
		if !apierrors.IsForbidden(err) || next.After(end) {
			return token, err
		}
		sleepUntil(ctx, t.cfg.Clock, next)
	}
}

// refreshAt returns the time from which a token is refreshed: when 80 % of its life or 24 hours
// are over. Because of a random part, tokens that were requested at the same time are refreshed at
// different times.
func (t *tokens) refreshAt(token *authenticationv1.TokenRequest) time.Time {
	var life time.Duration
	if seconds := token.Spec.ExpirationSeconds; seconds != nil {
		life = time.Duration(*seconds) * time.Second
	}
	issued := token.Status.ExpirationTimestamp.Add(-life)
	jitter := time.Duration(t.cfg.Random() * float64(maxTokenJitter))
	return issued.Add(min(life*8/10, maxTokenAge)).Add(-jitter)
}

// release deletes the tokens of a pod.
func (t *tokens) release(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.cached, func(k tokenKey, _ *authenticationv1.TokenRequest) bool { return k.pod == pod })
}
