package images_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/internal/imageref"
	"github.com/kubeparts/kubeparts/lifecycle/images"
)

// TestKeyring creates Secrets, one for each list of locations, and looks up repositories. The
// results are the users of the matching locations, in the order of the attempts.
func TestKeyring(t *testing.T) {
	var k *images.Keyring
	datadriven.RunTest(t, "testdata/keyring", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		switch d.Cmd {
		case "secrets":
			var secrets []*corev1.Secret
			for line := range strings.Lines(d.Input) {
				auths := map[string]map[string]string{}
				for location := range strings.FieldsSeq(line) {
					auths[location] = map[string]string{"username": fmt.Sprintf("%s#%d", location, len(secrets)), "password": "pass"}
				}
				data, err := json.Marshal(map[string]any{"auths": auths})
				require.NoError(t, err)
				secrets = append(secrets, &corev1.Secret{
					Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: data},
				})
			}
			var err error
			k, err = images.NewKeyring(secrets...)
			require.NoError(t, err)
			return ""
		case "lookup":
			var b strings.Builder
			for line := range strings.Lines(d.Input) {
				name, err := imageref.Parse(strings.TrimSpace(line))
				require.NoError(t, err)
				var users []string
				for _, c := range k.Lookup(name.Repository) {
					users = append(users, c.Auth().GetUsername())
				}
				fmt.Fprintf(&b, "%s: %s\n", strings.TrimSpace(line), strings.Join(users, " "))
			}
			return b.String()
		}
		d.Fatalf(t, "no such command")
		return ""
	})
}

func configJSON(kind corev1.SecretType, key, data string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "key", UID: "u"}, Type: kind, Data: map[string][]byte{key: []byte(data)},
	}
}

func TestNewKeyring_FormsOfSecrets(t *testing.T) {
	basic := base64.StdEncoding.EncodeToString([]byte("me:pa:ss"))
	raw := base64.RawStdEncoding.EncodeToString([]byte("me:pass"))
	for _, tc := range []struct {
		name, data string
		old        bool
		user, pass string
		identity   string
		err        string
	}{
		{name: "user and password", data: `{"auths":{"r.io":{"username":"me","password":"pass"}}}`, user: "me", pass: "pass"},
		{name: "auth, and a password with a colon", data: `{"auths":{"r.io":{"auth":"` + basic + `"}}}`, user: "me", pass: "pa:ss"},
		{name: "auth without padding", data: `{"auths":{"r.io":{"auth":"` + raw + `"}}}`, user: "me", pass: "pass"},
		{name: "auth wins", data: `{"auths":{"r.io":{"username":"you","password":"x","auth":"` + basic + `"}}}`, user: "me", pass: "pa:ss"},
		{name: "what we don't know is passed over", data: `{"credsStore":"x","auths":{"r.io":{"email":"e","username":"me","password":"pass"}}}`, user: "me", pass: "pass"},
		{name: "an identity token", data: `{"auths":{"r.io":{"identitytoken":"tok"}}}`, identity: "tok"},
		{name: "the old form", old: true, data: `{"r.io":{"username":"me","password":"pass"}}`, user: "me", pass: "pass"},
		{name: "not JSON", data: `{"auths": secret}`, err: "secret default/key: invalid JSON at byte 11"},
		{name: "a number for a password", data: `{"auths":{"r.io":{"password":12345678}}}`, err: "secret default/key: invalid type of a value before byte 37"},
		{name: "not base64", data: `{"auths":{"r.io":{"auth":"s3cret!"}}}`, err: "secret default/key: entry 1 in the order of registry names: the auth field is not user:password in base64"},
		{name: "base64 of something else", data: `{"auths":{"r.io":{"auth":"czNjcmV0"}}}`, err: "secret default/key: entry 1 in the order of registry names: the auth field is not user:password in base64"},
		{name: "the old form, spoiled", old: true, data: `[]`, err: "secret default/key: invalid type of a value before byte 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := configJSON(corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, tc.data)
			if tc.old {
				s = configJSON(corev1.SecretTypeDockercfg, corev1.DockerConfigKey, tc.data)
			}
			k, err := images.NewKeyring(s)
			if tc.err != "" {
				require.EqualError(t, err, tc.err)
				require.Empty(t, k.Lookup("r.io/app"))
				return
			}
			require.NoError(t, err)
			found := k.Lookup("r.io/app")
			require.Len(t, found, 1)
			require.Equal(t, tc.user, found[0].Auth().GetUsername())
			require.Equal(t, tc.pass, found[0].Auth().GetPassword())
			require.Equal(t, tc.identity, found[0].Auth().GetIdentityToken())
			require.Equal(t, "default/key u", images.SourceOf(found[0]))
		})
	}
}

func TestNewKeyring_OtherSecretsAreIgnored(t *testing.T) {
	k, err := images.NewKeyring(nil, &corev1.Secret{}, configJSON(corev1.SecretTypeOpaque, corev1.DockerConfigJsonKey, "{"),
		configJSON(corev1.SecretTypeDockerConfigJson, "other", "{"), configJSON(corev1.SecretTypeDockercfg, "other", "{"))
	require.NoError(t, err)
	require.Empty(t, k.Lookup("r.io/app"))
	require.Empty(t, (*images.Keyring)(nil).Lookup("r.io/app"))
	require.Nil(t, images.Credential{}.Auth())
}

// A damaged Secret does not affect lookups in the other Secrets.
func TestNewKeyring_DamagedSecretAmongOthers(t *testing.T) {
	k, err := images.NewKeyring(configJSON(corev1.SecretTypeDockercfg, corev1.DockerConfigKey, "{"), secret("good", "r.io", "me", "pass"))
	require.Error(t, err)
	require.Len(t, k.Lookup("r.io/app"), 1)
}

// A credential that is printed in any way, alone or inside of another value, does not show
// its contents.
func TestCredential_ContentsAreNeverPrinted(t *testing.T) {
	k, err := images.NewKeyring(secret("key", "r.io", "the-user", "the-password"))
	require.NoError(t, err)
	c := k.Lookup("r.io/app")[0]
	type inside struct {
		Public images.Credential
		list   []images.Credential
		ring   *images.Keyring
		value  images.Keyring
		many   map[string]images.Credential
	}
	in := inside{c, []images.Credential{c}, k, *k, map[string]images.Credential{"k": c}}
	var out bytes.Buffer
	for _, v := range []any{c, &c, in, &in, in.list, k, *k, in.many} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		data, err := json.Marshal(v)
		require.NoError(t, err)
		out.Write(data)
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(h).Info("x", "v", v, slog.Group("g", "v", v))
		}
	}
	for _, clear := range []string{"the-user", "the-password"} {
		require.NotContains(t, out.String(), clear)
		require.NotContains(t, out.String(), fmt.Sprintf("%x", clear))
		require.NotContains(t, out.String(), base64.StdEncoding.EncodeToString([]byte(clear)))
	}
	require.Contains(t, out.String(), "[credential]")
}

func FuzzKeyring(f *testing.F) {
	for _, data := range []string{
		`{"auths":{"r.io":{"auth":"bWU6cGFzcw=="}}}`, `{"auths":{"*.r.io:5000/a":{"username":"u","password":"p"}}}`,
		`{"r.io":{"username":"u"}}`, `{"auths":{"[":{"auth":1}}}`, `{"auths":null}`, `null`, `{"auths":{"https://u:p@r.io/v1/":{}}}`,
	} {
		f.Add([]byte(data), "r.io/app")
	}
	f.Fuzz(func(t *testing.T, data []byte, repository string) {
		for _, s := range []*corev1.Secret{
			configJSON(corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, string(data)),
			configJSON(corev1.SecretTypeDockercfg, corev1.DockerConfigKey, string(data)),
		} {
			k, err := images.NewKeyring(s)
			for _, c := range k.Lookup(repository) {
				require.NotNil(t, c.Auth())
			}
			if err != nil {
				require.Regexp(t, `^secret default/key: (invalid JSON at byte \d+|invalid type of a value before byte \d+|not a registry configuration|entry \d+ \(sorted by location\): the auth field is not user:password in base64)$`, err.Error())
			}
		}
	})
}
