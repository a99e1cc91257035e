package images

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// CredentialProvider returns credentials for images that the pod's
// imagePullSecrets may not cover, such as images in the registry of a cloud
// provider. The Manager may call a provider concurrently for several pods. It
// calls each provider before each pull. It also calls each provider before a
// pod uses an image that must be verified, if the record of the image's pull
// and the pod's Secrets give no access. So a CredentialProvider must cache
// expensive results.
type CredentialProvider interface {
	// Name returns the provider's name for messages and logs.
	Name() string
	// Credentials returns the credentials to try, in order. It returns no
	// credentials if the provider is not responsible for the image. The result
	// is shared and must not be modified afterwards. An error does not stop the
	// pull: other credentials are tried. The error is shown to everyone who can
	// see the pod, so it must not contain secrets.
	//
	// The credentials belong to the node: a pull with them gives all pods of
	// the node access to the image. If the provider has called r.Tokens, the
	// credentials belong to the pod's service account instead. A provider that
	// returns credentials of a service account from a cache must call r.Tokens
	// too.
	Credentials(ctx context.Context, r CredentialRequest) ([]*runtimeapi.AuthConfig, error)
}

// CredentialRequest is the request for the credentials of one image for one
// pod.
type CredentialRequest struct {
	// Pod is the pod that uses the image. It must not be modified.
	Pod *corev1.Pod
	// Image is the full reference, such as docker.io/library/web:1, and
	// Repository is the same without tag and digest.
	Image, Repository string
	// Tokens requests a token of the pod's service account; its pod argument is
	// ignored. Tokens is nil if [Config.Tokens] is nil.
	Tokens podspec.TokenFunc
}

// askProviders adds the credentials of the providers to w, and records the
// errors of the providers in w. It returns an error only if ctx is done.
func (m *Manager) askProviders(ctx context.Context, w *wanted) error {
	type failure struct {
		provider string
		err      error
	}
	var failed []failure
	for _, p := range m.cfg.Credentials {
		r := CredentialRequest{Pod: w.Pod, Image: w.name.String(), Repository: w.name.Repository}
		tokens := &accountTokens{pod: w.Pod, request: m.cfg.Tokens}
		if m.cfg.Tokens != nil {
			r.Tokens = tokens.get
		}
		found, err := p.Credentials(ctx, r)
		if ctx.Err() != nil {
			return fmt.Errorf("images: ask credential provider %s for credentials of %s: %w", p.Name(), w.Image, ctx.Err())
		}
		account, secrets := tokens.used()
		w.hidden = append(w.hidden, secrets...)
		for _, auth := range found {
			if auth == nil {
				continue
			}
			c := newCredential(auth, objectRef{})
			c.provider, c.account = p.Name(), account
			w.hidden = append(w.hidden, c)
			if err == nil {
				w.keys = append(w.keys, c)
			}
		}
		if err != nil {
			failed = append(failed, failure{p.Name(), err})
		}
	}
	for _, f := range failed { // after the loop, when all secrets are known
		w.failed = append(w.failed, fmt.Errorf("credential provider %s: %w", f.provider, scrubbed(f.err, w.secrets())))
	}
	return nil
}

// logProviders logs the errors of providers. It is called if the errors are not
// in a message about a failed pull.
func (m *Manager) logProviders(ctx context.Context, w *wanted) {
	for _, err := range w.failed {
		m.cfg.Logger.WarnContext(ctx, "a credential provider failed for an image",
			"pod", w.Pod.Namespace+"/"+w.Pod.Name, "podUID", w.Pod.UID, "image", w.Image, "err", err)
	}
}

// providerText returns the errors of providers for the message about a failed
// pull.
func (w *wanted) providerText() string {
	var b strings.Builder
	for _, err := range w.failed {
		b.WriteString("; " + err.Error())
	}
	return b.String()
}

// secrets returns the credentials that must be removed from the errors of
// runtimes and providers.
func (w *wanted) secrets() []Credential {
	return slices.Concat(w.hidden, w.keys)
}

// accountTokens requests tokens of a pod's service account, and records them.
type accountTokens struct {
	pod     *corev1.Pod
	request podspec.TokenFunc

	mu      sync.Mutex
	account objectRef // zero before the first request
	tokens  []Credential
}

func (t *accountTokens) get(ctx context.Context, _ *corev1.Pod, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	answer, err := t.request(ctx, t.pod, request)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.account.Namespace, t.account.Name = t.pod.Namespace, cmp.Or(t.pod.Spec.ServiceAccountName, "default")
	if err == nil && answer != nil {
		t.account.UID = accountOf(answer.Status.Token)
		t.tokens = append(t.tokens, newCredential(&runtimeapi.AuthConfig{RegistryToken: answer.Status.Token}, objectRef{}))
	}
	return answer, err
}

func (t *accountTokens) used() (account objectRef, tokens []Credential) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.account, t.tokens
}

// accountOf returns the UID of the service account of a token, or "" if the
// token does not contain this UID. The token comes from the API server, so its
// signature is not verified.
func accountOf(token string) types.UID {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Kubernetes struct {
			ServiceAccount struct {
				UID types.UID `json:"uid"`
			} `json:"serviceaccount"`
		} `json:"kubernetes.io"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Kubernetes.ServiceAccount.UID
}
