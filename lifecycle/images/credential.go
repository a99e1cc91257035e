package images

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hidden is the placeholder for a printed credential.
const hidden = "[credential]"

// shortestHidden is the minimum length of a secret that is removed from the
// errors of runtimes and providers. Shorter secrets would match parts of too
// many words.
const shortestHidden = 4

// A Credential is one way to authenticate at a registry. If a Credential is
// printed, logged or encoded, alone or within another value, its contents are
// not visible. Only [Credential.Auth] returns the contents. The zero value is
// anonymous.
type Credential struct {
	// reveal returns the contents. They are in a function because packages such
	// as fmt print the fields of a struct.
	reveal func() contents
	source objectRef // the Secret with the credential, zero if a provider returned the credential

	provider string    // name of the provider that returned the credential, empty if it is from a Secret
	account  objectRef // the service account that the credential belongs to, zero if it belongs to the node
}

// contents are the hidden parts of a Credential. The hash is hidden too,
// because passwords can be guessed from it.
type contents struct {
	auth *runtimeapi.AuthConfig
	hash string
}

// An objectRef identifies the Secret or service account that a credential came
// from.
type objectRef struct {
	// UID distinguishes an object from a later object of the same name. It may
	// be empty for objects that come from files.
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
}

func newCredential(auth *runtimeapi.AuthConfig, source objectRef) Credential {
	// Quotes separate the fields unambiguously.
	text := fmt.Appendf(nil, "%q %q %q %q", auth.Username, auth.Password, auth.IdentityToken, auth.RegistryToken)
	if auth.Auth != "" { // credentials of Secrets do not have this field
		text = fmt.Appendf(text, " %q", auth.Auth)
	}
	sum := sha256.Sum256(text)
	c := contents{auth: auth, hash: hex.EncodeToString(sum[:])}
	return Credential{reveal: func() contents { return c }, source: source}
}

// Auth returns the credential as a message for the runtime. It returns nil for
// the zero value. The message is shared and must not be modified.
func (c Credential) Auth() *runtimeapi.AuthConfig { return c.contents().auth }

func (c Credential) contents() contents {
	if c.reveal == nil {
		return contents{}
	}
	return c.reveal()
}

// identity returns a key that distinguishes credentials. For a credential of a
// provider, the key does not depend on the contents, because the contents may
// change with each call of the provider.
func (c Credential) identity() string {
	switch {
	case c.provider == "":
		return c.contents().hash
	case c.account == objectRef{}:
		return fmt.Sprintf("%q", c.provider)
	default:
		return fmt.Sprintf("%q %q %q %q", c.provider, c.account.Namespace, c.account.Name, c.account.UID)
	}
}

// belongsToNode reports whether all pods of the node may use images that were
// pulled with the credential.
func (c Credential) belongsToNode() bool {
	return c.reveal == nil || c.provider != "" && c.account == objectRef{}
}

// Format prints a placeholder, whatever the verb.
func (Credential) Format(s fmt.State, _ rune) { fmt.Fprint(s, hidden) }

// LogValue logs a placeholder.
func (Credential) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalJSON encodes a placeholder.
func (Credential) MarshalJSON() ([]byte, error) { return json.Marshal(hidden) }

// spellings returns the forms in which the credential may appear in the errors
// of runtimes and providers: plain, as in a header, as in a URL, and quoted.
func (c Credential) spellings() (all []string) {
	auth := c.Auth()
	basic := []byte(auth.GetUsername() + ":" + auth.GetPassword())
	all = append(all, base64.StdEncoding.EncodeToString(basic), base64.URLEncoding.EncodeToString(basic))
	_, inAuth, _ := strings.Cut(decoded(auth.GetAuth()), ":")
	for _, secret := range []string{auth.GetPassword(), auth.GetIdentityToken(), auth.GetRegistryToken(), auth.GetAuth(), inAuth} {
		quoted, inURL := strconv.Quote(secret), url.UserPassword("", secret).String()
		all = append(all, secret, url.QueryEscape(secret), url.PathEscape(secret), inURL[1:], quoted[1:len(quoted)-1])
	}
	return slices.DeleteFunc(all, func(s string) bool { return len(s) < shortestHidden })
}

// decoded returns the decoded base64 text, or "" if text is not valid base64.
func decoded(text string) string {
	plain, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return ""
	}
	return string(plain)
}

// scrub replaces credentials in a text of a runtime or provider by the
// placeholder. It replaces longer secrets first: if a secret is part of a
// longer secret, the rest of the longer secret must not remain.
func scrub(text string, keys []Credential) string {
	var all []string
	for _, c := range keys {
		all = append(all, c.spellings()...)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, secret := range all {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	return text
}

// compare orders references, so that records are deterministic.
func (r objectRef) compare(other objectRef) int {
	return cmp.Or(
		cmp.Compare(r.Namespace, other.Namespace), cmp.Compare(r.Name, other.Name), cmp.Compare(r.UID, other.UID))
}
