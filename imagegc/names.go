package imagegc

import (
	"strings"

	"github.com/kubeparts/kubeparts/internal/imageref"
)

// Names of images come in many forms: the runtime lists IDs, tags and digests, a
// container has one of them, and people write short ones. All are compared in one form:
// of an ID or a digest what follows "sha256:", of a tag the full reference. A digest
// stands for its image whatever the repository, and a tag beside it has no meaning.

// refNames returns the forms in which the name that a container or a lease gives may be
// among those of an image.
func refNames(name string) []string {
	switch {
	case name == "":
		return nil
	case strings.Contains(name, "@") || strings.HasPrefix(name, "sha256:"):
		return []string{digestName(name)}
	default: // a tag, an ID without its algorithm, or one of a runtime that has IDs of its own
		return []string{name, tagName(name)}
	}
}

// imageNames returns the names of an image.
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

// digestName returns what follows the algorithm in an ID, a digest or repository@digest.
func digestName(ref string) string {
	if _, digest, ok := strings.Cut(ref, "@"); ok {
		ref = digest
	}
	return strings.TrimPrefix(ref, "sha256:")
}

// tagName returns the full form of a reference, and what is not a reference as it is.
func tagName(ref string) string {
	parsed, err := imageref.Parse(ref)
	if err != nil {
		return ref
	}
	return parsed.WithDefaultTag().String()
}
