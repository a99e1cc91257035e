// Package imageref reads image references, such as nginx:1.29, as the runtimes do: with the
// distribution project's reference package.
package imageref

import (
	_ "crypto/sha256" // without these two the reference package accepts no digest
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
