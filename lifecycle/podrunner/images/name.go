package images

import (
	"errors"
	"fmt"
	"strings"
)

const (
	defaultDomain  = "docker.io"
	legacyDomain   = "index.docker.io"
	officialPrefix = "library/"
	defaultTag     = "latest"
	maxRepository  = 255
	maxTag         = 128
)

// A Name is an image reference taken apart. The zero value is no image's name.
type Name struct {
	// Repository is domain and path in full: docker.io/library/busybox for busybox.
	Repository string
	// Tag is what follows the colon, empty if there is none.
	Tag string
	// Digest is what follows the @, with its algorithm; empty if there is none.
	Digest string
}

// key tells images apart however they are spelled; a tag beside a digest says
// nothing.
func (n Name) key() string {
	if n.Digest != "" {
		return n.Repository + "@" + n.Digest
	}
	return n.Repository + ":" + n.Tag
}

// ParseName takes an image reference apart, by the grammar of the distribution
// project's references: host names are told from path components by a dot, a
// colon, an upper-case letter or the word localhost, and what has no host is
// docker.io's. No tag is made up; see [WithDefaultTag].
func ParseName(image string) (Name, error) {
	const invalid = "invalid reference format"
	rest, digest, hasDigest := strings.Cut(image, "@")
	domain, path := splitDomain(rest)
	if name, _, _ := strings.Cut(path, ":"); strings.ToLower(name) != name {
		return Name{}, fmt.Errorf(invalid+": repository name (%s) must be lowercase", name)
	}
	if hasDigest && !isDigest(digest) {
		return Name{}, errors.New(invalid)
	}
	tag := ""
	if i := strings.LastIndexByte(path, ':'); i >= 0 {
		path, tag = path[:i], path[i+1:]
		if !isTag(tag) {
			return Name{}, errors.New(invalid)
		}
	}
	switch {
	case isHex(image, 64):
		return Name{}, fmt.Errorf("invalid repository name (%s), cannot specify 64-byte hexadecimal strings", image)
	case !isDomain(domain) && !isPath(domain) || !isPath(path): // a host with an underscore is a path that has no host
		return Name{}, errors.New(invalid)
	}
	if len(path) > maxRepository {
		return Name{}, fmt.Errorf("repository name must not be more than %d characters", maxRepository)
	}
	return Name{Repository: domain + "/" + path, Tag: tag, Digest: digest}, nil
}

// WithDefaultTag returns image with the tag latest if it has neither tag nor
// digest. It is not completed otherwise: a runtime may have its own idea of what
// registry a short name means.
func WithDefaultTag(image string) (string, error) {
	n, err := ParseName(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	if n.Tag == "" && n.Digest == "" {
		image += ":" + defaultTag
	}
	return image, nil
}

// splitDomain separates a host from the path, and completes both.
func splitDomain(s string) (domain, path string) {
	first, rest, found := strings.Cut(s, "/")
	if !found || first != "localhost" && !strings.ContainsAny(first, ".:") && strings.ToLower(first) == first {
		domain, path = defaultDomain, s
	} else {
		domain, path = first, rest
	}
	if domain == legacyDomain {
		domain = defaultDomain
	}
	if domain == defaultDomain && !strings.Contains(path, "/") {
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
