package state

import (
	"context"
	"fmt"
	"strings"

	"github.com/kubeparts/kubeparts/internal/atomicfile"
)

// Store stores small values by key, such as "statuses/<UID>.json".
//
// A key is a relative path. Its elements are separated by single slashes. An element consists of
// ASCII letters, digits and the characters -_.~%$&+=:@. An element must not be "." or "..", and
// must not end in ".new". If a key is invalid, methods return an error that names the key. If two
// keys have values, neither key may be a parent of the path of the other key.
//
// A store may have an additional method, PutUnsynced, with the signature of Put. A value that
// PutUnsynced has stored is complete after a crash of the process, but may be old or damaged
// after a power failure. Packages use PutUnsynced for values that change often and are not
// important after a power failure.
type Store interface {
	// Get returns the value of a key. The error wraps fs.ErrNotExist if the key has no value.
	// The caller owns the value.
	Get(ctx context.Context, key string) ([]byte, error)
	// Put replaces a value completely or not at all. The value is durable when Put has returned.
	// Put does not retain the slice.
	Put(ctx context.Context, key string, value []byte) error
	// Delete deletes a value. A missing value is not an error. After a power failure the value
	// may exist again.
	Delete(ctx context.Context, key string) error
	// Keys returns the keys that start with prefix, sorted. If Keys returns an error, it also
	// returns the keys that could be found.
	Keys(ctx context.Context, prefix string) ([]string, error)
}

const allowedSymbols = "-_.~%$&+=:@"

// checkKey returns an error if key is not a valid key.
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
			return fmt.Errorf("invalid key %q: %s", key, reason)
		}
	}
	return nil
}

// checkPrefix returns an error if no valid key can start with prefix.
func checkPrefix(prefix string) error {
	folder, _ := cut(prefix)
	if folder != "" {
		if err := checkKey(folder); err != nil {
			return fmt.Errorf("%q is not a valid prefix of keys: %w", prefix, err)
		}
	}
	if strings.HasPrefix(prefix, "/") || strings.ContainsFunc(strings.ReplaceAll(prefix, "/", ""), isForbidden) {
		return fmt.Errorf("%q is not a valid prefix of keys", prefix)
	}
	return nil
}

func isForbidden(r rune) bool {
	letter, digit := r|0x20 >= 'a' && r|0x20 <= 'z', r >= '0' && r <= '9'
	return r >= 0x7f || !letter && !digit && !strings.ContainsRune(allowedSymbols, r)
}

// cut splits a key into the path of its folder, which may be empty, and its name.
func cut(key string) (folder, name string) {
	if at := strings.LastIndexByte(key, '/'); at >= 0 {
		return key[:at], key[at+1:]
	}
	return "", key
}
