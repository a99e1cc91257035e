package images

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/imageref"
)

// A Keyring returns the credentials for an image. Create it with [NewKeyring];
// the zero value is empty. A Keyring is immutable. If it is printed, its
// credentials are not visible.
type Keyring struct {
	locations []string // in descending order: a longer path comes before its prefix
	byPlace   map[string][]Credential
}

// NewKeyring parses the credentials of Secrets of the types
// kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg. Like the kubelet,
// it ignores Secrets of other types. It also ignores nil. The error names every
// malformed Secret and does not contain the contents of a Secret.
func NewKeyring(secrets ...*corev1.Secret) (*Keyring, error) {
	k := &Keyring{byPlace: map[string][]Credential{}}
	var errs []error
	for _, s := range secrets {
		entries, err := entriesOf(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("secret %s/%s: %w", s.Namespace, s.Name, err))
			continue
		}
		for _, location := range slices.Sorted(maps.Keys(entries)) {
			place, ok := placeOf(location)
			if !ok {
				continue
			}
			source := objectRef{UID: s.UID, Namespace: s.Namespace, Name: s.Name}
			k.byPlace[place] = append(k.byPlace[place], newCredential(entries[location].auth(), source))
		}
	}
	k.locations = slices.Sorted(maps.Keys(k.byPlace))
	slices.Reverse(k.locations)
	return k, errors.Join(errs...)
}

// Lookup returns the credentials for a full repository name, such as
// docker.io/library/busybox, in the order in which they should be tried. This
// is the reverse alphabetical order of the locations, so that a longer path
// comes before its prefix. Credentials of the same location are in the order of
// the Secrets.
// A location matches a repository if the host matches, the port is the same,
// and the location's path is a prefix of the repository's path. Each label of
// the location's host may contain * as a wildcard. Prefixes are compared by
// characters, not by path components. The location index.docker.io applies to
// repositories on docker.io that match no other location.
func (k *Keyring) Lookup(repository string) (found []Credential) {
	if k == nil {
		return nil
	}
	for _, location := range k.locations {
		if fits(location, repository) {
			found = append(found, k.byPlace[location]...)
		}
	}
	if host, _, _ := strings.Cut(repository, "/"); len(found) == 0 && host == imageref.DefaultDomain {
		return k.byPlace[imageref.LegacyDomain]
	}
	return found
}

// fits reports whether a location of a keyring applies to a repository.
func fits(location, repository string) bool {
	wantHost, wantPath, _ := strings.Cut(location, "/")
	host, rest, _ := strings.Cut(repository, "/")
	if !strings.HasPrefix(rest, wantPath) {
		return false
	}
	wantHost, wantPort := cutPort(wantHost)
	host, port := cutPort(host)
	want, have := strings.Split(wantHost, "."), strings.Split(host, ".")
	if wantPort != port || len(want) != len(have) {
		return false
	}
	for i := range want {
		// Equal labels match even if path.Match finds no match, as for an IPv6
		// address in brackets.
		if ok, err := path.Match(want[i], have[i]); (err != nil || !ok) && want[i] != have[i] {
			return false
		}
	}
	return true
}

func cutPort(host string) (name, port string) {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		return host[:i], host[i+1:]
	}
	return host, ""
}

// placeOf reduces a location, which may be a URL, to host and path. A registry
// API version at the beginning of the path is removed.
func placeOf(location string) (string, bool) {
	if !strings.HasPrefix(location, "https://") && !strings.HasPrefix(location, "http://") {
		location = "https://" + location
	}
	u, err := url.Parse(location)
	if err != nil || u.Host == "" {
		return "", false
	}
	p := u.Path
	if strings.HasPrefix(p, "/v1/") || strings.HasPrefix(p, "/v2/") {
		p = p[len("/v1"):]
	}
	if p == "/" {
		p = ""
	}
	return u.Host + p, true
}

// An entry is the entry of a config file for one location.
type entry struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

func (e entry) auth() *runtimeapi.AuthConfig {
	return &runtimeapi.AuthConfig{Username: e.Username, Password: e.Password, IdentityToken: e.IdentityToken, RegistryToken: e.RegistryToken}
}

// entriesOf returns the entries of a Secret by location.
func entriesOf(s *corev1.Secret) (map[string]entry, error) {
	if s == nil {
		return nil, nil
	}
	if data := s.Data[corev1.DockerConfigJsonKey]; s.Type == corev1.SecretTypeDockerConfigJson && len(data) > 0 {
		return parseConfigJSON(data)
	}
	if data := s.Data[corev1.DockerConfigKey]; s.Type == corev1.SecretTypeDockercfg && len(data) > 0 {
		return parseConfig(data)
	}
	return nil, nil
}

// parseConfigJSON parses a .dockerconfigjson: a .dockercfg below "auths".
func parseConfigJSON(data []byte) (map[string]entry, error) {
	var file struct {
		Auths map[string]entry `json:"auths"`
	}
	if err := decode(data, &file); err != nil {
		return nil, err
	}
	return file.Auths, complete(file.Auths)
}

// parseConfig parses a .dockercfg: entries by location.
func parseConfig(data []byte) (map[string]entry, error) {
	var entries map[string]entry
	if err := decode(data, &entries); err != nil {
		return nil, err
	}
	return entries, complete(entries)
}

// decode is json.Unmarshal with errors that do not quote the input: the
// original errors may show a password that was written as a number.
func decode(data []byte, into any) error {
	err := json.Unmarshal(data, into)
	if err == nil {
		return nil
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("invalid JSON at byte %d", syntax.Offset)
	}
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("invalid type of a value before byte %d", mistyped.Offset)
	}
	return errors.New("not a registry configuration")
}

// complete sets user and password from the auth field, which takes precedence
// over both.
func complete(entries map[string]entry) error {
	for i, location := range slices.Sorted(maps.Keys(entries)) {
		e := entries[location]
		if e.Auth == "" {
			continue
		}
		plain, err := base64.StdEncoding.DecodeString(e.Auth)
		if err != nil {
			plain, err = base64.RawStdEncoding.DecodeString(e.Auth)
		}
		user, password, found := strings.Cut(string(plain), ":")
		if err != nil || !found {
			// Do not name the location: it may itself contain user and
			// password.
			return fmt.Errorf("entry %d in the order of registry names: the auth field is not user:password in base64", i+1)
		}
		e.Username, e.Password, e.Auth = user, password, ""
		entries[location] = e
	}
	return nil
}
