package images_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// A runtime that repeats credentials in its error must not make the Manager
// print them.
func TestPull_CredentialsAreRemovedFromErrors(t *testing.T) {
	for name, answer := range map[string]func(text string) error{
		"plain":  errors.New,
		"status": func(text string) error { return grpcstatus.Error(codes.PermissionDenied, text) },
		"vague":  func(text string) error { return grpcstatus.Error(codes.Unknown, text) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			s := newSet(t, func(c *images.Config) {
				c.Objects = store{"default/one": secret("one", "r.io", "me", "hunter-two"), "default/two": secret("two", "r.io", "me", "swordfish")}
				c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
				c.Observer.Pulled = func(info images.PullInfo) { fmt.Fprintf(&log, "%+v %v", info, info.Err) }
			})
			s.node.registry = func(_ context.Context, _ string, auth *runtimeapi.AuthConfig) error {
				both := auth.GetUsername() + ":" + auth.GetPassword()
				return answer("denied for " + both + " = " + base64.StdEncoding.EncodeToString([]byte(both)))
			}
			req := images.Request{Pod: pod("a", "one", "two"), Image: "r.io/web:1"}
			for range 2 { // the first call fails, the second is in back-off
				_, err := s.Ensure(t.Context(), req)
				require.Error(t, err)
				for e := err; e != nil; e = errors.Unwrap(e) {
					fmt.Fprintf(&log, "%v %+v %#v\n", e, e, e)
				}
			}
			fmt.Fprint(&log, s.events.take())
			require.Contains(t, log.String(), "denied for me:[credential]")
			for _, word := range []string{"hunter-two", "swordfish", base64.StdEncoding.EncodeToString([]byte("me:swordfish"))} {
				require.NotContains(t, log.String(), word)
			}
		})
	}
}

// Neither the credentials of a provider nor the token that the provider got are
// visible anywhere, even if the provider or the runtime repeats them in an
// error.
func TestProviders_SecretsAreRemovedFromErrors(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	dir := t.TempDir()
	basic := base64.StdEncoding.EncodeToString([]byte("me:open-sesame"))
	s := newSet(t, func(c *images.Config) {
		c.Tokens, c.State = tokensOf("uid-1"), state.Files(dir)
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Credentials = []images.CredentialProvider{
			provider{"acme", func(ctx context.Context, r images.CredentialRequest) ([]*runtimeapi.AuthConfig, error) {
				answer, err := r.Tokens(ctx, nil, &authenticationv1.TokenRequest{})
				if err != nil {
					return nil, err
				}
				return []*runtimeapi.AuthConfig{{Password: "beside-an-error"}}, errors.New("no luck with " + answer.Status.Token + " and beside-an-error and hunter-two")
			}},
			provider{"other", func(context.Context, images.CredentialRequest) ([]*runtimeapi.AuthConfig, error) {
				return []*runtimeapi.AuthConfig{{Username: "me", Password: "hunter-two"}, {Auth: basic}}, nil
			}},
		}
	})
	s.node.registry = func(_ context.Context, image string, auth *runtimeapi.AuthConfig) error {
		if image == "r.io/web:2" {
			return nil
		}
		return errors.New("denied: " + auth.GetPassword() + auth.GetAuth() + " open-sesame " + jwt("uid-1"))
	}
	for _, image := range []string{"r.io/web:1", "r.io/web:1", "r.io/web:2"} {
		_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: image})
		require.Equal(t, image == "r.io/web:2", err == nil)
		for e := err; e != nil; e = errors.Unwrap(e) {
			fmt.Fprintf(&log, "%v %+v %#v\n", e, e, e)
		}
	}
	fmt.Fprint(&log, s.events.take())
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		log.Write(text)
		return err
	}))
	require.Contains(t, log.String(), "credential provider acme: no luck with [credential] and [credential] and [credential]")
	require.Contains(t, log.String(), "denied: [credential]")
	for _, word := range []string{"hunter-two", "beside-an-error", "open-sesame", basic, jwt("uid-1")} {
		require.NotContains(t, log.String(), word)
	}
}

// Credentials are repeated in URLs, headers and quotes, and one credential may be part of
// another.
func TestPull_EncodedCredentialsAreRemovedFromErrors(t *testing.T) {
	t.Parallel()
	const user, password, longer = "me", `p@ss/"wörd"+1`, `p@ss/"wörd"+1 and more`
	for name, spell := range map[string]func(string) string{
		"unchanged": func(p string) string { return p },
		"query":     url.QueryEscape,
		"path":      url.PathEscape,
		"userinfo": func(p string) string {
			return (&url.URL{Scheme: "https", User: url.UserPassword(user, p), Host: "r.io"}).String()
		},
		"quoted": strconv.Quote,
		"header": func(p string) string { return base64.URLEncoding.EncodeToString([]byte(user + ":" + p)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSet(t, func(c *images.Config) {
				c.Objects = store{"default/one": secret("one", "r.io", user, password), "default/two": secret("two", "r.io", user, longer)}
			})
			s.node.registry = func(_ context.Context, _ string, auth *runtimeapi.AuthConfig) error {
				return errors.New("denied: " + spell(longer) + " for " + auth.GetUsername())
			}
			_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a", "one", "two"), Image: "r.io/web:1"})
			require.Regexp(t, `^ErrImagePull: denied: \S*\[credential\]\S* for me$`, err.Error())
			for _, word := range []string{"more", "w%C3%B6rd", "wörd", spell(longer)} {
				require.NotContains(t, err.Error()+fmt.Sprint(s.events.take()), word)
			}
		})
	}
}

func TestCredentials_AreTriedInOrder(t *testing.T) {
	t.Parallel()
	s := newSet(t, func(c *images.Config) {
		c.Objects = store{"default/one": secret("one", "r.io", "first", "1111"), "default/two": secret("two", "r.io/team", "longer", "2222")}
	})
	s.node.registry = func(_ context.Context, _ string, auth *runtimeapi.AuthConfig) error {
		if auth.GetUsername() != "given" {
			return errors.New("denied for " + auth.GetUsername())
		}
		return nil
	}
	given := secret("three", "r.io", "given", "3333")
	_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a", "one", "", "two"), Image: "r.io/team/web:1", Secrets: []*corev1.Secret{nil, given}})
	require.NoError(t, err)
	require.Equal(t, []string{"r.io/team/web:1 as longer", "r.io/team/web:1 as first", "r.io/team/web:1 as given"}, s.node.pulled())

	_, err = s.Ensure(t.Context(), images.Request{Pod: pod("a", "one", "two"), Image: "r.io/team/web:2"})
	require.Equal(t, "ErrImagePull: [denied for longer, denied for first]", refusal(t, err).Error())
}

// As in the kubelet, a pull may succeed although its Secrets are missing.
func TestEnsure_MissingSecretsCauseAnEvent(t *testing.T) {
	for name, secrets := range map[string]podspec.Objects{"not there": store{}, "no Secrets at all": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSet(t, func(c *images.Config) { c.Objects = secrets })
			_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a", "one", "two"), Image: "r.io/web:1"})
			require.NoError(t, err)
			require.Equal(t, "a: Warning FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (one, two); attempting to pull the image may not succeed.", s.events.take()[0])
			require.Equal(t, []string{"r.io/web:1 as "}, s.node.pulled())
		})
	}
}

func TestMalformedSecret(t *testing.T) {
	t.Parallel()
	bad := secret("bad", "r.io", "me", "pass")
	bad.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths": hunter2}`)
	s := newSet(t, func(c *images.Config) { c.Objects = store{"default/bad": bad} })
	req := images.Request{Pod: pod("a", "bad"), Image: "r.io/web:1"}
	_, err := s.Ensure(t.Context(), req)
	require.Equal(t, "ErrImagePull: Failed to read the image pull secrets: secret default/bad: invalid JSON at byte 11", refusal(t, err).Error())
	require.Empty(t, s.node.pulled())
	s.node.preload("r.io/web:1")
	_, err = s.Ensure(t.Context(), req)
	require.NoError(t, err, "a present image must need no Secret")
}
