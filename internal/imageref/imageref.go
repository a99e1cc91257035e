// Package imageref reads image references, such as nginx:1.29, by the grammar of the
// distribution project. It is the one place that knows what a short reference stands for.
package imageref

import (
	"errors"
	"fmt"
	"strings"
)

const (
	// DefaultDomain is the registry of references without a host.
	DefaultDomain = "docker.io"
	// LegacyDomain is another name of DefaultDomain.
	LegacyDomain = "index.docker.io"
	// DefaultTag is the tag of references that have neither tag nor digest.
	DefaultTag     = "latest"
	officialPrefix = "library/"
	maxRepository  = 255
	maxTag         = 128
)

// Ref is an image reference split into its parts. The zero value refers to no image.
type Ref struct {
	// Repository is domain and path in full: docker.io/library/busybox for busybox.
	Repository string
	// Tag is what follows the colon, empty if the reference has no tag.
	Tag string
	// Digest is what follows the @, with its algorithm; empty if the reference has no digest.
	Digest string
}

// String returns the full reference, the same for all spellings of it. A tag beside a
// digest has no meaning and is left out.
func (r Ref) String() string {
	if r.Digest != "" {
		return r.Repository + "@" + r.Digest
	}
	return r.Repository + ":" + r.Tag
}

// WithDefaultTag returns r with the tag latest if it has neither tag nor digest.
func (r Ref) WithDefaultTag() Ref {
	if r.Tag == "" && r.Digest == "" {
		r.Tag = DefaultTag
	}
	return r
}

// Parse splits an image reference. A host differs from a path component by a dot, a
// colon, an upper-case letter or the word localhost; a reference without a host belongs
// to docker.io. Parse adds no tag; see [Ref.WithDefaultTag].
func Parse(image string) (Ref, error) {
	const invalid = "invalid reference format"
	rest, digest, hasDigest := strings.Cut(image, "@")
	domain, path := splitDomain(rest)
	if name, _, _ := strings.Cut(path, ":"); strings.ToLower(name) != name {
		return Ref{}, fmt.Errorf(invalid+": repository name (%s) must be lowercase", name)
	}
	if hasDigest && !isDigest(digest) {
		return Ref{}, errors.New(invalid)
	}
	tag := ""
	if i := strings.LastIndexByte(path, ':'); i >= 0 {
		path, tag = path[:i], path[i+1:]
		if !isTag(tag) {
			return Ref{}, errors.New(invalid)
		}
	}
	switch {
	case isHex(image, 64):
		return Ref{}, fmt.Errorf("invalid repository name (%s), cannot specify 64-byte hexadecimal strings", image)
	case !isDomain(domain) && !isPath(domain) || !isPath(path): // a host with an underscore is a path that has no host
		return Ref{}, errors.New(invalid)
	}
	if len(path) > maxRepository {
		return Ref{}, fmt.Errorf("repository name must not be more than %d characters", maxRepository)
	}
	return Ref{Repository: domain + "/" + path, Tag: tag, Digest: digest}, nil
}

// splitDomain separates a host from the path, and completes both.
func splitDomain(s string) (domain, path string) {
	first, rest, found := strings.Cut(s, "/")
	if !found || first != "localhost" && !strings.ContainsAny(first, ".:") && strings.ToLower(first) == first {
		domain, path = DefaultDomain, s
	} else {
		domain, path = first, rest
	}
	if domain == LegacyDomain {
		domain = DefaultDomain
	}
	if domain == DefaultDomain && !strings.Contains(path, "/") {
		path = officialPrefix + path
	}
	return domain, path
}

// isDomain accepts host names, addresses and IPv6 addresses in brackets, each
// with an optional port.
func isDomain(s string) bool {
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, port = s[:i], s[i+1:]
		if port == "" || !all(port, isDigit) {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && inner != "" && all(inner, func(c byte) bool { return isHexDigit(c) || 'A' <= c && c <= 'F' || c == ':' })
	}
	for label := range strings.SplitSeq(host, ".") {
		alnum := func(c byte) bool { return isLower(c) || isDigit(c) || 'A' <= c && c <= 'Z' }
		if label == "" || !alnum(label[0]) || !alnum(label[len(label)-1]) ||
			!all(label, func(c byte) bool { return alnum(c) || c == '-' }) {
			return false
		}
	}
	return true
}

// isPath accepts components of lower-case letters and digits, separated within by
// one dot, one or two underscores, or hyphens.
func isPath(s string) bool {
	for component := range strings.SplitSeq(s, "/") {
		alnum := func(c byte) bool { return isLower(c) || isDigit(c) }
		if component == "" || !alnum(component[0]) || !alnum(component[len(component)-1]) {
			return false
		}
		for i := 0; i < len(component); {
			start := i
			for i < len(component) && !alnum(component[i]) {
				i++
			}
			between := component[start:i]
			if strings.Trim(between, "-") != "" && between != "." && between != "_" && between != "__" {
				return false
			}
			i++
		}
	}
	return true
}

func isTag(s string) bool {
	word := func(c byte) bool { return isLower(c) || isDigit(c) || 'A' <= c && c <= 'Z' || c == '_' }
	return s != "" && len(s) <= maxTag && word(s[0]) && all(s, func(c byte) bool { return word(c) || c == '.' || c == '-' })
}

func isDigest(s string) bool {
	algorithm, hex, _ := strings.Cut(s, ":")
	switch algorithm {
	case "sha256":
		return isHex(hex, 64)
	case "sha384":
		return isHex(hex, 96)
	case "sha512":
		return isHex(hex, 128)
	}
	return false
}

func isHex(s string, length int) bool { return len(s) == length && all(s, isHexDigit) }

func isLower(c byte) bool    { return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool    { return '0' <= c && c <= '9' }
func isHexDigit(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' }

func all(s string, is func(byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}
