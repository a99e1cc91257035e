package podsource

import "strings"

// checkImage says what keeps an image's reference from being one, which no runtime
// could pull: [HOST[:PORT]/]NAME[/NAME...][:TAG][@ALGORITHM:DIGEST].
func checkImage(ref string) []string {
	name, digest, pinned := strings.Cut(ref, "@")
	if pinned && !isDigest(digest) {
		return []string{"what follows the @ must be a digest, for example sha256: and 64 hexadecimal digits"}
	}
	dir, last := name[:strings.LastIndexByte(name, '/')+1], name[strings.LastIndexByte(name, '/')+1:]
	last, tag, tagged := strings.Cut(last, ":")
	if tagged && !isTag(tag) {
		return []string{"the tag must be up to 128 letters, digits, '_', '.' and '-', and not begin with '.' or '-'"}
	}
	path := dir + last
	if host, rest, ok := strings.Cut(path, "/"); ok && looksLikeHost(host) {
		if !consistsOf(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]") {
			return []string{"the registry must be a host, and a port if need be"}
		}
		path = rest
	}
	for part := range strings.SplitSeq(path, "/") {
		if !isImageName(part) {
			return []string{"each part of the name must be lower-case letters and digits, parted by '.', '_', '__' or '-'"}
		}
	}
	return nil
}

// looksLikeHost tells a registry from the first part of a name.
func looksLikeHost(s string) bool {
	return s == "localhost" || strings.ContainsAny(s, ".:") || s != strings.ToLower(s)
}

// isImageName says whether s begins and ends with a letter or a digit, with nothing
// but separators between: one dot, one or two underscores, any number of dashes.
func isImageName(s string) bool {
	const alnum = "abcdefghijklmnopqrstuvwxyz0123456789"
	separators := strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(alnum, r) })
	for _, sep := range separators {
		if sep != "." && sep != "_" && sep != "__" && strings.Trim(sep, "-") != "" {
			return false
		}
	}
	return s != "" && strings.IndexByte(alnum, s[0]) >= 0 && strings.IndexByte(alnum, s[len(s)-1]) >= 0
}

func isTag(s string) bool {
	const word = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
	return s != "" && len(s) <= 128 && s[0] != '.' && s[0] != '-' && consistsOf(s, word+".-")
}

func isDigest(s string) bool {
	algorithm, digits, ok := strings.Cut(s, ":")
	return ok && algorithm != "" && len(digits) >= 32 &&
		consistsOf(algorithm, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+._-") &&
		consistsOf(digits, "0123456789abcdefABCDEF")
}

func consistsOf(s, chars string) bool { return strings.Trim(s, chars) == "" }
