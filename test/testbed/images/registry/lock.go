package main

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
)

// login is the credentials that a repository requires.
type login struct{ user, password string }

// addLock parses REPOSITORY=USER:PASSWORD.
func addLock(locks map[string]login, s string) error {
	repository, rest, ok := strings.Cut(s, "=")
	user, password, ok2 := strings.Cut(rest, ":")
	if !ok || !ok2 || repository == "" {
		return errors.New("not REPOSITORY=USER:PASSWORD")
	}
	locks[repository] = login{user, password}
	return nil
}

// locked requires the login of each repository that has a login.
type locked struct {
	http.Handler

	locks map[string]login
}

func (l locked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	want, has := l.locks[repository(r.URL.Path)]
	user, password, _ := r.BasicAuth()
	if has && subtle.ConstantTimeCompare([]byte(user+":"+password), []byte(want.user+":"+want.password)) != 1 {
		w.Header().Set("WWW-Authenticate", `Basic realm="test bed"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
		return
	}
	l.Handler.ServeHTTP(w, r)
}

// repository returns the repository in a path of the distribution API.
func repository(path string) string {
	path = strings.TrimPrefix(path, "/v2/")
	for _, kind := range []string{"/manifests/", "/blobs/"} {
		if name, _, ok := strings.Cut(path, kind); ok {
			return name
		}
	}
	return ""
}
