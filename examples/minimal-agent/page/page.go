// Package page serves the agent's status page: one HTML document that contains its style and
// its script. The page requests /agent/status, /agent/events, /agent/explain/NAMESPACE/POD and
// /containerLogs/NAMESPACE/POD/CONTAINER from the server that serves it, by relative URLs. It sends
// no other requests.
//
// # What it guarantees
//
//  1. The browser applies only the style and the script of this package. The content
//     security policy contains the hashes of both and forbids the script to create markup
//     from text (trusted types), because names, messages and logs of pods may be hostile.
//  2. The document is the same for all users and contains nothing about the node. The page
//     prompts for a token if /agent/status requires a token, and keeps the token until the tab is
//     closed.
//  3. A hidden tab sends no requests.
//  4. An update only changes the elements whose contents differ. Focus, selection, open rows
//     and the scroll position of logs are preserved, and the element that has the focus does
//     not move.
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

// Handler returns a handler that serves the page at each path. The page requests relative URLs, so
// the server of an agent must serve the page at /agent/.
func Handler() http.Handler {
	body := []byte(strings.NewReplacer("<style></style>", "<style>"+style+"</style>", "<script></script>", "<script>"+script+"</script>").Replace(document))
	etag := fmt.Sprintf("%q", digest(string(body)))
	csp := policy()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
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
		h.Set("Cache-Control", "no-cache") // browsers store the page, and revalidate it by the ETag
		h.Set("ETag", etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})
}

// policy returns the content security policy. It allows the page's own style and script, and
// requests to the server of the page.
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
