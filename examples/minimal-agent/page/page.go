// Package page is the agent's status page: one document, written by hand, with its style
// and its script inside. It asks the server it is from for /status, /events,
// /explain/NAMESPACE/POD and /logs/NAMESPACE/POD/CONTAINER, by relative addresses, and
// nobody else for anything.
//
// # What it guarantees
//
//  1. Nothing but the style and the script of this package is applied: the policy names
//     their hashes, and forbids to make markup of text (trusted types). Names, messages
//     and logs of pods are hostile.
//  2. The document is the same for everybody and says nothing of the node. It asks for a
//     token when /status wants one, and keeps it for as long as its tab is open.
//  3. It costs the agent nothing while nobody looks: a tab that is hidden asks nothing.
//  4. An update changes what has changed. Focus, selection, opened rows and the place in
//     a log stay, and what has the focus does not move.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"
)

var (
	//go:embed page.html
	document string
	//go:embed page.css
	style string
	//go:embed page.js
	script string
)

// Handler answers / with the page, and every other path with 404.
func Handler() http.Handler {
	body := []byte(strings.NewReplacer("<style></style>", "<style>"+style+"</style>", "<script></script>", "<script>"+script+"</script>").Replace(document))
	etag := fmt.Sprintf("%q", digest(string(body)))
	csp := policy()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/":
			http.NotFound(w, r)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the page is only read", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", csp)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache") // kept, and asked after
		h.Set("ETag", etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})
}

// policy allows what the page is made of, and requests to where it is from.
func policy() string {
	return strings.Join([]string{
		"default-src 'none'",
		"style-src 'sha256-" + digest(style) + "'",
		"script-src 'sha256-" + digest(script) + "'",
		"connect-src 'self'",
		"img-src data:", // its icon
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
		"trusted-types 'none'",
		"require-trusted-types-for 'script'",
	}, "; ")
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}
