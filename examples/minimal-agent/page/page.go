// Package page serves the agent's status page: one HTML document that contains its style and
// its script. The page requests /status, /events, /explain/NAMESPACE/POD and
// /logs/NAMESPACE/POD/CONTAINER from its own server, by relative URLs. It sends no other
// requests.
//
// # What it guarantees
//
//  1. Only the style and the script of this package are applied. The content security policy
//     contains their hashes and forbids creating markup from text (trusted types), because
//     names, messages and logs of pods may be hostile.
//  2. The document is the same for all users and contains nothing about the node. It prompts
//     for a token if /status requires one, and keeps the token until its tab is closed.
//  3. A hidden tab sends no requests.
//  4. An update only changes what is different. Focus, selection, open rows and the scroll
//     position of logs are preserved, and the element that has the focus does not move.
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

// Handler returns a handler that serves the page at / and answers every other path with 404.
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
			http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", csp)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache") // browsers store the page, and revalidate it by its ETag
		h.Set("ETag", etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})
}

// policy returns the content security policy: it allows the page's own style and script, and
// requests to its own server.
func policy() string {
	return strings.Join([]string{
		"default-src 'none'",
		"style-src 'sha256-" + digest(style) + "'",
		"script-src 'sha256-" + digest(script) + "'",
		"connect-src 'self'",
		"img-src data:", // the icon
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
