package images_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// provider is a CredentialProvider with a name and a function.
type provider struct {
	name string
	find func(context.Context, images.CredentialRequest) ([]*runtimeapi.AuthConfig, error)
}

func (p provider) Name() string { return p.name }

func (p provider) Credentials(ctx context.Context, r images.CredentialRequest) ([]*runtimeapi.AuthConfig, error) {
	return p.find(ctx, r)
}

// returning returns a provider that returns one credential for each of these passwords.
func returning(name string, passwords ...string) provider {
	return provider{name, func(context.Context, images.CredentialRequest) (found []*runtimeapi.AuthConfig, err error) {
		for _, p := range passwords {
			found = append(found, nil, &runtimeapi.AuthConfig{Username: name, Password: p})
		}
		return found, nil
	}}
}

func failing(name, text string) provider {
	return provider{name, func(context.Context, images.CredentialRequest) ([]*runtimeapi.AuthConfig, error) {
		return nil, errors.New(text)
	}}
}

// jwt returns a token of a service account in the API server's format.
func jwt(uid string) string {
	claims := fmt.Appendf(nil, `{"kubernetes.io":{"serviceaccount":{"name":"builder","uid":%q}}}`, uid)
	return "header." + base64.RawURLEncoding.EncodeToString(claims) + ".signature"
}

// tokensOf returns tokens of a service account with this UID.
func tokensOf(uid string) podspec.TokenFunc {
	return func(_ context.Context, _ *corev1.Pod, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
		answer := request.DeepCopy()
		answer.Status.Token = jwt(uid)
		return answer, nil
	}
}

func TestProviders_AreAskedAfterTheSecretsInOrder(t *testing.T) {
	t.Parallel()
	var asked []string
	s := newSet(t, func(c *images.Config) {
		c.Objects = store{"default/key": secret("key", "r.io", "secret", "1111")}
		c.Credentials = []images.CredentialProvider{
			provider{"silent", func(_ context.Context, r images.CredentialRequest) ([]*runtimeapi.AuthConfig, error) {
				asked = append(asked, r.Pod.Name+" "+r.Image+" "+r.Repository)
				require.Nil(t, r.Tokens)
				return nil, nil
			}},
			returning("acme", "wrong", "right"), returning("last", "right"),
		}
	})
	s.node.registry = private
	_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a", "key"), Image: "r.io/web"})
	require.NoError(t, err)
	require.Equal(t, []string{"r.io/web:latest as secret", "r.io/web:latest as acme", "r.io/web:latest as acme"}, s.node.pulled())
	require.Equal(t, []string{"a r.io/web:latest r.io/web"}, asked)
}

// An error of a provider does not affect other providers. It is part of the message of a
// failed pull. If the pull succeeds, it is logged.
func TestProviders_ThatFail(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	password := "wrong"
	s := newSet(t, func(c *images.Config) {
		c.Credentials = []images.CredentialProvider{
			failing("first", "out of order"),
			provider{"acme", func(context.Context, images.CredentialRequest) ([]*runtimeapi.AuthConfig, error) {
				return []*runtimeapi.AuthConfig{{Username: "acme", Password: password}}, nil
			}},
			failing("third", "no network"),
		}
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	s.node.registry = private
	req := images.Request{Pod: pod("a"), Image: "r.io/web:1"}
	const text = "denied; credential provider first: out of order; credential provider third: no network"
	_, err := s.Ensure(t.Context(), req)
	require.Equal(t, "ErrImagePull: "+text, refusal(t, err).Error())
	require.Equal(t, `a: Warning Failed: Failed to pull image "r.io/web:1": `+text, s.events.take()[1])
	require.Empty(t, log.String(), "a returned error must not be logged")

	password = "right"
	_, err = s.Ensure(t.Context(), req)
	require.Equal(t, `ImagePullBackOff: Back-off pulling image "r.io/web:1": ErrImagePull: `+text, refusal(t, err).Error(),
		"a provider's credentials may differ each time, so they must not end a back-off")
	s.clock.Step(time.Minute)
	_, err = s.Ensure(t.Context(), req)
	require.NoError(t, err)
	require.Contains(t, log.String(), `pod=default/a podUID=a image=r.io/web:1 err="credential provider first: out of order"`)
	require.Contains(t, log.String(), "no network")

	s.node.registry = nil
	_, err = newSet(t, func(c *images.Config) { c.Credentials = []images.CredentialProvider{failing("only", "no")} }).Ensure(t.Context(), req)
	require.NoError(t, err, "the image must be pulled without credentials")
}

func TestProviders_EndWithTheirContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := newSet(t, func(c *images.Config) {
		c.Credentials = []images.CredentialProvider{provider{"slow", func(ctx context.Context, _ images.CredentialRequest) ([]*runtimeapi.AuthConfig, error) {
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}}}
	})
	_, err := s.Ensure(ctx, images.Request{Pod: pod("a"), Image: "r.io/web:1"})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "ask credential provider slow for credentials of r.io/web:1")
	require.False(t, isRefusal(err))
	require.Empty(t, s.node.pulled())
}

// As in the kubelet, credentials that do not depend on a service account belong to the node.
func TestProviders_CredentialsOfTheNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asked := 0
	s := newSet(t, func(c *images.Config) {
		c.State = state.Files(dir)
		c.Credentials = []images.CredentialProvider{provider{"acme", func(context.Context, images.CredentialRequest) ([]*runtimeapi.AuthConfig, error) {
			asked++
			return []*runtimeapi.AuthConfig{{Username: "acme", Password: "right"}}, nil
		}}}
	})
	s.node.registry = private
	for _, name := range []string{"a", "b"} {
		_, err := s.Ensure(t.Context(), images.Request{Pod: pod(name), Image: "r.io/web:1"})
		require.NoError(t, err)
	}
	require.Len(t, s.node.pulled(), 1)
	require.Equal(t, 1, asked, "with a record that gives access, the provider must not be called")
	require.Regexp(t, `"credentialMapping":\{"r.io/web":\{"nodePodsAccessible":true\}\}\}$`, recordIn(t, dir))
}

// recordIn returns the only pull record in a directory.
func recordIn(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(dir + "/image_manager/pulled/*")
	require.NoError(t, err)
	require.Len(t, files, 1)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	return string(text)
}

// Credentials for which the provider requested a token belong only to that
// service account.
func TestProviders_CredentialsOfAServiceAccount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	account := func(name, account string) *corev1.Pod {
		p := pod(name)
		p.Spec.ServiceAccountName = account
		return p
	}
	uids := map[string]string{"builder": "uid-1", "": "uid-2"}
	n := 0
	s := newSet(t, func(c *images.Config) {
		c.State = state.Files(dir)
		c.Tokens = func(ctx context.Context, pod *corev1.Pod, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
			return tokensOf(uids[pod.Spec.ServiceAccountName])(ctx, pod, request)
		}
		c.Credentials = []images.CredentialProvider{provider{"acme", func(ctx context.Context, r images.CredentialRequest) ([]*runtimeapi.AuthConfig, error) {
			answer, err := r.Tokens(ctx, nil, &authenticationv1.TokenRequest{})
			if err != nil || answer.Status.Token != jwt("uid-1") {
				return []*runtimeapi.AuthConfig{{Username: "acme", Password: "other"}}, err
			}
			n++
			return []*runtimeapi.AuthConfig{{Username: fmt.Sprint("acme", n), Password: "right"}}, nil
		}}}
	})
	s.node.registry = private
	ask := func(p *corev1.Pod, policy corev1.PullPolicy) error {
		_, err := s.Ensure(t.Context(), images.Request{Pod: p, Image: "r.io/web:1", PullPolicy: policy})
		return err
	}
	require.NoError(t, ask(account("a", "builder"), ""))
	require.NoError(t, ask(account("b", "builder"), corev1.PullNever), "another token of the same account must give access")
	require.Equal(t, images.ErrImageNeverPull, refusal(t, ask(account("c", ""), corev1.PullNever)).Reason)
	require.Equal(t, images.ErrImagePull, refusal(t, ask(account("c", ""), "")).Reason)
	require.Regexp(t, `"r.io/web":\{"kubernetesServiceAccounts":\[\{"uid":"uid-1","namespace":"default","name":"builder"\}\]\}\}\}$`, recordIn(t, dir))

	uids["builder"] = "uid-3" // the service account is deleted and created again
	require.Equal(t, images.ErrImageNeverPull, refusal(t, ask(account("a", "builder"), corev1.PullNever)).Reason)
}

// A token without a UID gives no access to a present image.
func TestProviders_AccountWithoutUID(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"opaque", "a.b.c", "a.!.c", jwt("")} {
		s := newSet(t, func(c *images.Config) {
			c.Tokens = func(context.Context, *corev1.Pod, *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
				return &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: token}}, nil
			}
			c.Credentials = []images.CredentialProvider{provider{"acme", func(ctx context.Context, r images.CredentialRequest) ([]*runtimeapi.AuthConfig, error) {
				_, err := r.Tokens(ctx, nil, nil)
				return []*runtimeapi.AuthConfig{{Password: "right"}}, err
			}}}
		})
		s.node.registry = private
		for range 2 {
			_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "r.io/web:1"})
			require.NoError(t, err)
		}
		require.Len(t, s.node.pulled(), 2, token)
	}
}
