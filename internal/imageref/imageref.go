// Package imageref parses image references, such as nginx:1.29, with the distribution
// project's reference package, as container runtimes do.
package imageref

import (
	_ "crypto/sha256" // the reference package accepts digests only with these two packages
	_ "crypto/sha512"

	"github.com/distribution/reference"
)

const (
	// DefaultDomain is the registry of references without a host.
	DefaultDomain = "docker.io"
	// LegacyDomain is another name of DefaultDomain.
	LegacyDomain = "index.docker.io"
	// DefaultTag is the tag of references that have neither tag nor digest.
	DefaultTag = "latest"
)

// Ref is an image reference split into its parts. The zero value refers to no image.
type Ref struct {
	// Repository is the full name with domain and path: docker.io/library/busybox for
	// busybox.
	Repository string
	// Tag is the tag without the colon. It is empty if the reference has no tag.
	Tag string
	// Digest is the digest with its algorithm. It is empty if the reference has no digest.
	Digest string
}

// String returns the full reference, which is the same for all short forms. If the
// reference has a digest, String omits the tag, because the tag then has no meaning.
func (r Ref) String() string {
	if r.Digest != "" {
		return r.Repository + "@" + r.Digest
	}
	return r.Repository + ":" + r.Tag
}

// WithDefaultTag returns r, with the tag latest if r has neither tag nor digest.
func (r Ref) WithDefaultTag() Ref {
	if r.Tag == "" && r.Digest == "" {
		r.Tag = DefaultTag
	}
	return r
}

// Parse splits an image reference. A reference without a host belongs to docker.io. Parse
// adds no tag; see [Ref.WithDefaultTag].
func Parse(image string) (Ref, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return Ref{}, err
	}
	ref := Ref{Repository: named.Name()}
	if t, ok := named.(reference.Tagged); ok {
		ref.Tag = t.Tag()
	}
	if d, ok := named.(reference.Digested); ok {
		ref.Digest = d.Digest().String()
	}
	return ref, nil
}
