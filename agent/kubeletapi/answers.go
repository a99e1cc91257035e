package kubeletapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/kubeparts/kubeparts/internal/printable"
)

const (
	plainText = "text/plain; charset=utf-8"
	jsonText  = "application/json"
)

func (s *Server) configz(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.cfg.Configz()) }

// wantsText reports whether the client prefers text to JSON.
func wantsText(r *http.Request) (bool, error) {
	switch output := r.URL.Query().Get("output"); output {
	case "":
		return prefers(r, "text/plain", jsonText), nil
	case "text", "json":
		return output == "text", nil
	default:
		return false, fmt.Errorf("output=%q: want text or json", output)
	}
}

// boolQuery returns the value of a boolean query parameter. A parameter without a value, as in
// ?follow, is true.
func boolQuery(query url.Values, name string) (bool, error) {
	values := query[name]
	switch {
	case len(values) == 0:
		return false, nil
	case len(values) > 1:
		return false, fmt.Errorf("%s: given %d times, must be given once", name, len(values))
	case values[0] == "":
		return true, nil
	}
	v, err := strconv.ParseBool(values[0])
	if err != nil {
		return false, fmt.Errorf("%s=%q: want true or false", name, values[0])
	}
	return v, nil
}

// statusError is an error with an HTTP status code. Other errors have the status code 500.
type statusError struct {
	code    int
	message string
}

// Error returns the message for the client.
func (e *statusError) Error() string { return e.message }

// badRequest returns an error for an invalid request.
func badRequest(err error) error { return badRequestf("%v", err) }

func badRequestf(format string, args ...any) error {
	return &statusError{code: http.StatusBadRequest, message: fmt.Sprintf(format, args...)}
}

// notFound returns an error for something that does not exist.
func notFound(format string, args ...any) error {
	return &statusError{code: http.StatusNotFound, message: fmt.Sprintf(format, args...)}
}

// prefers reports whether the Accept header lists the media type a before the media type b.
// Weights (q=) are ignored.
func prefers(r *http.Request, a, b string) bool {
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		kind, _, err := mime.ParseMediaType(accepted)
		switch {
		case err != nil:
		case kind == a:
			return true
		case kind == b:
			return false
		}
	}
	return false
}

// refuse responds with the text and the status code of err.
func refuse(w http.ResponseWriter, err error) {
	writeWithin(w, pageTimeout)
	code := http.StatusInternalServerError
	if e, ok := errors.AsType[*statusError](err); ok {
		code = e.code
	}
	http.Error(w, printable.Lines(err.Error(), "  "), code)
}

func writeJSON(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", jsonText)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)+1))
	_, _ = w.Write(append(data, '\n')) // Write fails only if the client has disconnected
}
