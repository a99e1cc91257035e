package state

import (
	"context"
	"fmt"
	"strings"

	"github.com/kubeparts/kubeparts/internal/atomicfile"
)

// Store keeps small values by key, such as "statuses/<UID>.json".
//
// A key is a relative path: elements of ASCII letters, digits and -_.~%$&+=:@ between
// single slashes. An element is not "." or "..", and does not end in ".new". Any other key
// is an error that names it. A key that has a value is not the beginning of the path of
// another.
//
// A store may have one more method, PutUnsynced, with the signature of Put. Its value is
// whole after the process has crashed, but it may be old or damaged after a power failure.
// Packages use it for values that change often and mean little after one.
type Store interface {
	// Get returns the value of a key. The error is fs.ErrNotExist if the key has none. The
	// value is the caller's.
	Get(ctx context.Context, key string) ([]byte, error)
	// Put replaces a value whole or not at all. The value is durable when Put has returned.
	// It is not retained.
	Put(ctx context.Context, key string, value []byte) error
	// Delete removes a value. A key that has none is no error. After a power failure the
	// value may be back.
	Delete(ctx context.Context, key string) error
	// Keys returns the keys that begin with prefix, sorted. Beside an error it returns those
	// that it has found.
	Keys(ctx context.Context, prefix string) ([]string, error)
}

const odd = "-_.~%$&+=:@"

// checkKey returns why key is not a key.
func checkKey(key string) error {
	for element := range strings.SplitSeq(key, "/") {
		reason := ""
		switch {
		case element == "":
			reason = "it has an empty element"
		case element == "." || element == "..":
			reason = "it is not a plain path"
		case strings.HasSuffix(element, atomicfile.Suffix):
			reason = "an element ends in " + atomicfile.Suffix
		case strings.ContainsFunc(element, isForbidden):
			reason = "it has a character that is not allowed"
		}
		if reason != "" {
			return fmt.Errorf("%q is not a key: %s", key, reason)
		}
	}
	return nil
}

// checkPrefix returns why no key can begin with prefix.
func checkPrefix(prefix string) error {
	folder, _ := cut(prefix)
	if folder != "" {
		if err := checkKey(folder); err != nil {
			return fmt.Errorf("%q is not the prefix of a key: %w", prefix, err)
		}
	}
	if strings.HasPrefix(prefix, "/") || strings.ContainsFunc(strings.ReplaceAll(prefix, "/", ""), isForbidden) {
		return fmt.Errorf("%q is not the prefix of a key", prefix)
	}
	return nil
}

func isForbidden(r rune) bool {
	letter, digit := r|0x20 >= 'a' && r|0x20 <= 'z', r >= '0' && r <= '9'
	return r >= 0x7f || !letter && !digit && !strings.ContainsRune(odd, r)
}

// cut splits a key into the path of its folder, which is empty for none, and its name.
func cut(key string) (folder, name string) {
	if at := strings.LastIndexByte(key, '/'); at >= 0 {
		return key[:at], key[at+1:]
	}
	return "", key
}
