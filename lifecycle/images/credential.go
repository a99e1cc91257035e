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

// hidden is what a credential looks like wherever it is printed.
const hidden = "[credential]"

// shortestHidden is how long a secret must be to be looked for in other people's
// texts: shorter ones are parts of too many words.
const shortestHidden = 4

// A Credential is one way to authenticate at a registry. However it is printed,
// logged or encoded, alone or within something else, its contents do not show:
// only [Credential.Auth] gives them away. The zero value is an anonymous one.
type Credential struct {
	// reveal keeps the contents where no printer that walks fields gets to.
	reveal func() contents
	source objectRef // the Secret, zero if it is from a provider

	provider string    // its name, empty if it is from a Secret
	account  objectRef // the service account that it belongs to, zero if it is the node's
}

// contents are what does not show. The hash is among them: passwords can be
// guessed from it.
type contents struct {
	auth *runtimeapi.AuthConfig
	hash string
}

// An objectRef names the Secret or the service account that a credential came from.
type objectRef struct {
	// UID tells an object from a later one of the same name. It may be empty for
	// objects that come from files.
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
}

func newCredential(auth *runtimeapi.AuthConfig, source objectRef) Credential {
	// Quotes keep two fields from being taken for one.
	text := fmt.Appendf(nil, "%q %q %q %q", auth.Username, auth.Password, auth.IdentityToken, auth.RegistryToken)
	if auth.Auth != "" { // no Secret has it
		text = fmt.Appendf(text, " %q", auth.Auth)
	}
	sum := sha256.Sum256(text)
	c := contents{auth: auth, hash: hex.EncodeToString(sum[:])}
	return Credential{reveal: func() contents { return c }, source: source}
}

// Auth returns what the runtime needs, nil for the zero value. The message is
// shared and must not be modified.
func (c Credential) Auth() *runtimeapi.AuthConfig { return c.contents().auth }

func (c Credential) contents() contents {
	if c.reveal == nil {
		return contents{}
	}
	return c.reveal()
}

// identity tells credentials apart. Those of a provider change with each answer, so that
// their contents don't count.
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

// isNodes reports whether all pods of the node may use what the credential brings.
func (c Credential) isNodes() bool {
	return c.reveal == nil || c.provider != "" && c.account == objectRef{}
}

// Format prints a placeholder, whatever the verb.
func (Credential) Format(s fmt.State, _ rune) { fmt.Fprint(s, hidden) }

// LogValue logs a placeholder.
func (Credential) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalJSON encodes a placeholder.
func (Credential) MarshalJSON() ([]byte, error) { return json.Marshal(hidden) }

// spellings are the forms in which the credential may be in a text that somebody
// else wrote: as it is, as in a header, a URL, and between quotes.
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

// decoded returns what is in a text in base64, empty if it is not.
func decoded(text string) string {
	plain, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return ""
	}
	return string(plain)
}

// scrub takes credentials out of a text that somebody else wrote. The longest go
// first: one that is part of another must not leave the rest of it.
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

// compare orders references, for records that do not change without a reason.
func (r objectRef) compare(other objectRef) int {
	return cmp.Or(
		cmp.Compare(r.Namespace, other.Namespace), cmp.Compare(r.Name, other.Name), cmp.Compare(r.UID, other.UID))
}
