package imagegc

import (
	"strings"

	"github.com/kubeparts/kubeparts/internal/imageref"
)

// Image names come in many forms: the runtime lists IDs, tags and digests, a container has
// one of these names, and people write short names. The names are compared in a normal
// form: for an ID or a digest, the part after "sha256:"; for a tag, the full reference. A
// digest identifies its image in any repository, and a tag in front of a digest is
// ignored.

// refNames returns the normal forms of a name that a container or a lease uses for its
// image.
func refNames(name string) []string {
	switch {
	case name == "":
		return nil
	case strings.Contains(name, "@") || strings.HasPrefix(name, "sha256:"):
		return []string{digestName(name)}
	default: // a tag, an ID without its algorithm, or a runtime-specific ID
		return []string{name, tagName(name)}
	}
}

// imageNames returns the normal forms of all names of an image.
func imageNames(id string, tags, digests []string) (names []string) {
	if id != "" {
		names = append(names, digestName(id))
	}
	for _, digest := range digests {
		names = append(names, digestName(digest))
	}
	for _, tag := range tags {
		names = append(names, tagName(tag))
	}
	return names
}

// digestName returns the part after the algorithm in an ID, a digest or repository@digest.
func digestName(ref string) string {
	if _, digest, ok := strings.Cut(ref, "@"); ok {
		ref = digest
	}
	return strings.TrimPrefix(ref, "sha256:")
}

// tagName returns the full form of a reference, or ref itself if it is not a valid
// reference.
func tagName(ref string) string {
	parsed, err := imageref.Parse(ref)
	if err != nil {
		return ref
	}
	return parsed.WithDefaultTag().String()
}
