package imagegc

import "strings"

// Names of images come in many forms: the runtime lists ids, tags and digests, a
// container says one of them, and people write short ones. All are compared in one
// form: of an id or a digest what follows "sha256:", of a tag the full reference.
// A digest stands for its image whatever the repository, and beside a digest a tag
// says nothing.

// refNames returns the forms in which the name that a container or a lease gives
// may appear among those of an image.
func refNames(name string) []string {
	switch {
	case name == "":
		return nil
	case strings.Contains(name, "@"):
		return []string{digestName(name)}
	case strings.HasPrefix(name, "sha256:") || isHex(name):
		return []string{idName(name)}
	default: // a tag, or the id of a runtime that has ids of its own
		return []string{name, tagName(name)}
	}
}

// imageNames appends the names of an image.
func imageNames(names []string, id string, tags, digests []string) []string {
	if id != "" {
		names = append(names, idName(id))
	}
	for _, digest := range digests {
		names = append(names, digestName(digest))
	}
	for _, tag := range tags {
		names = append(names, tagName(tag))
	}
	return names
}

func idName(id string) string { return strings.TrimPrefix(id, "sha256:") }

// digestName returns the digest of repository@digest.
func digestName(ref string) string {
	if _, digest, ok := strings.Cut(ref, "@"); ok {
		ref = digest
	}
	return idName(ref)
}

// tagName completes a reference without a digest as container tools do: without
// a host it is on docker.io, with a single word there in library, and without a
// tag the latest. It allocates only if something is missing.
func tagName(ref string) string {
	host, rest, ok := strings.Cut(ref, "/")
	switch {
	case !ok:
		ref = "docker.io/library/" + ref
	case host == "docker.io" || host == "index.docker.io":
		if !strings.Contains(rest, "/") {
			ref = "docker.io/library/" + rest
		} else if host != "docker.io" {
			ref = "docker.io/" + rest
		}
	case host != "localhost" && !strings.ContainsAny(host, ".:"):
		ref = "docker.io/" + ref
	}
	if strings.LastIndexByte(ref, ':') <= strings.LastIndexByte(ref, '/') {
		ref += ":latest"
	}
	return ref
}

// isHex says whether s is a digest without its algorithm.
func isHex(s string) bool {
	if len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
