package kubeletapi

import (
	"net/http"
	"strings"
)

// Observer has optional callbacks for metrics. Requests call them concurrently. The callbacks must
// not block.
type Observer struct {
	// Request is called when a request arrives, before the server checks the client. The argument
	// path is the first element of the request's path, such as exec. For a path below /metrics, it
	// is the first two elements, such as metrics/probes. It is "other" for the path / and for a
	// path without an endpoint. The argument serverType is "readwrite" for [Server.Run] and
	// "readonly" for [Server.RunReadOnly]. When the response is complete, the server calls done.
	// Request must not return a nil done.
	Request func(r *http.Request, path, serverType string) (done func())
	// Checked is called for each check of /healthz, /livez and /readyz that a request has run.
	// The argument endpoint is the first element of the path, and err is the result of the check.
	Checked func(endpoint, check string, err error)
}

// observed returns a handler that calls the Observer and the given handler.
func (s *Server) observed(serverType string, next http.Handler) http.Handler {
	if s.cfg.Observer.Request == nil {
		return next
	}
	known := map[string]bool{}
	for _, e := range s.endpoints() {
		known[bucketOf(e.pattern)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := bucketOf(r.URL.Path)
		if !known[path] || path == "" {
			path = "other"
		}
		defer s.cfg.Observer.Request(r, path, serverType)()
		next.ServeHTTP(w, r)
	})
}

// bucketOf returns the first element of a path, or the first two elements of a path below /metrics.
// It returns the empty string for the path /.
func bucketOf(path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	second, _, _ := strings.Cut(rest, "/")
	switch {
	case first == "{$}":
		return ""
	case first == "metrics" && second != "":
		return "metrics/" + second
	default:
		return first
	}
}
