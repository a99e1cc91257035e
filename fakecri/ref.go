package fakecri

import (
	"errors"
	"strings"
)

// imageRef is an image reference in its full form.
type imageRef struct {
	repo   string // with host: docker.io/library/busybox
	tag    string // empty if there is a digest
	digest string // sha256:…, or empty
}

func (r imageRef) String() string {
	if r.digest != "" {
		return r.repo + "@" + r.digest
	}
	return r.repo + ":" + r.tag
}

// parseRef reads an image reference as container tools do: without a host it is
// on docker.io, with a single word there in library, without a tag the latest;
// beside a digest a tag says nothing.
func parseRef(s string) (imageRef, error) {
	var r imageRef
	rest, digest, hasDigest := strings.Cut(s, "@")
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		rest, r.tag = rest[:i], rest[i+1:]
		if !validTag(r.tag) {
			return imageRef{}, errors.New("invalid reference format: bad tag")
		}
	}
	if hasDigest {
		if !validDigest(digest) {
			return imageRef{}, errors.New("invalid reference format: bad digest")
		}
		r.tag, r.digest = "", digest
	} else if r.tag == "" {
		r.tag = "latest"
	}
	host, path, ok := strings.Cut(rest, "/")
	if !ok || host != "localhost" && !strings.ContainsAny(host, ".:") {
		host, path = "docker.io", rest
		if !ok {
			path = "library/" + rest
		}
	}
	if !validHost(host) {
		return imageRef{}, errors.New("invalid reference format: bad host")
	}
	for word := range strings.SplitSeq(path, "/") {
		if !validWord(word) {
			return imageRef{}, errors.New("invalid reference format: bad repository name")
		}
	}
	r.repo = host + "/" + path
	return r, nil
}

const (
	digits  = "0123456789"
	lower   = "abcdefghijklmnopqrstuvwxyz"
	letters = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// consists says whether s is not empty and has only the given characters.
func consists(s, of string) bool { return s != "" && strings.Trim(s, of) == "" }

func validTag(s string) bool {
	return len(s) <= 128 && consists(s, digits+letters+"_.-") && s[0] != '.' && s[0] != '-'
}

func validDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && consists(hex, digits+"abcdef")
}

func validHost(s string) bool {
	name, port, hasPort := strings.Cut(s, ":")
	return consists(name, digits+letters+".-") && (!hasPort || consists(port, digits))
}

// validWord checks one word of a repository's path: lower-case letters and
// digits, with single dots, one or two underscores or any number of dashes
// between them.
func validWord(s string) bool {
	const alnum = digits + lower
	if !consists(s, alnum+"._-") || strings.Trim(s, "._-") != s {
		return false
	}
	for separator := range strings.FieldsFuncSeq(s, func(r rune) bool { return strings.ContainsRune(alnum, r) }) {
		if separator != "." && separator != "_" && separator != "__" && !consists(separator, "-") {
			return false
		}
	}
	return true
}
