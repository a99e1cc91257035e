package kubeletapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

const maxBodyBytes = 64 << 10 // no endpoint needs more

// guard refuses requests with a large body, and requests for which admit returns a refusal. It also
// sets the headers that all responses have.
func (s *Server) guard(next http.Handler, admit func(*http.Request) *refusal) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setAnswering(r.Context(), connState{})
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") // the page sets its own policy
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		no := tooLarge(r)
		if no == nil {
			no = admit(r)
		}
		writeWithin(w, pageTimeout)
		if no != nil {
			s.refused.log(r, no)
			if no.code == http.StatusUnauthorized {
				h.Set("WWW-Authenticate", "Bearer")
			}
			if r.ContentLength != 0 {
				h.Set("Connection", "close") // otherwise net/http reads the body before it responds
			}
			http.Error(w, no.text, no.code)
			return
		}
		if r.Body != http.NoBody {
			r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		}
		next.ServeHTTP(w, r)
	})
}

// refusal is the response to a request that the server refuses.
type refusal struct {
	code int
	text string // for the client
	user string // name of the user, if it is known
	err  error  // the cause, for the log
}

// tooLarge refuses a request with a large body.
func tooLarge(r *http.Request) *refusal {
	if r.ContentLength <= maxBodyBytes {
		return nil
	}
	return &refusal{
		code: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("the body of a request must not exceed %d bytes", maxBodyBytes),
		err: fmt.Errorf("the body of the request has %d bytes, at most %d are allowed", r.ContentLength, maxBodyBytes),
	}
}

// admitUsers authenticates and authorizes a request.
func (s *Server) admitUsers(r *http.Request) *refusal {
	switch {
	case r.URL.Path == "/livez": // contains no data
		return nil
	case (r.URL.Path == "/" || r.URL.Path == "/agent/") && s.cfg.Page != nil: // the page asks for the token and contains no data
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), accessTimeout)
	defer cancel()
	user, err := s.users.user(ctx, r)
	if err != nil {
		return &refusal{code: http.StatusUnauthorized, text: "Unauthorized", err: err} // the kubelet's text
	}
	r.Header.Del("Authorization") // handlers do not need the token, and must not be able to leak it
	return s.authorize(ctx, user, r)
}

// admitHost refuses requests whose Host header is not a name of this machine. It is for listeners
// that only this machine can reach, and that need no credentials.
func admitHost(r *http.Request) *refusal {
	if r.URL.Path == "/livez" || loopbackName(r.Host) {
		return nil
	}
	return &refusal{
		code: http.StatusForbidden, text: fmt.Sprintf("this agent only serves this machine, and %q is not a name of this machine: use localhost", r.Host),
		err: fmt.Errorf("the header Host has the value %q, which is not a name of this machine", r.Host),
	}
}

// admitAll admits every request.
func admitAll(*http.Request) *refusal { return nil }

// loopbackName reports whether a Host header can only mean this machine.
func loopbackName(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host // without a port
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.Unmap().IsLoopback()
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// isLoopback reports whether only this machine can reach an address. It returns true for
// addresses that are not TCP, such as Unix sockets.
func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.AddrPort().Addr().Unmap().IsLoopback()
}

// fileToken is the current token of a token file. While the file is missing or has no token, the
// server refuses the token that was in it. So deleting the file revokes the token.
type fileToken struct {
	file *watched[[sha256.Size]byte]
}

func newFileToken(path string, log *slog.Logger) (*fileToken, error) {
	w, err := watch(log, parseToken, path)
	if err != nil {
		return nil, fmt.Errorf("load token: %w", err)
	}
	w.deleteOnError = true
	warnOfReaders(path, log)
	return &fileToken{file: w}, nil
}

// parseToken parses a token and returns its hash. [fileToken.allows] compares hashes, because this
// comparison takes the same time for tokens of any length.
func parseToken(data ...[]byte) (sum [sha256.Size]byte, err error) {
	token := strings.TrimSpace(string(data[0]))
	// A token in a header can only contain printable ASCII characters.
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return sum, errors.New("must contain one word of printable ASCII characters")
	}
	return sha256.Sum256([]byte(token)), nil
}

// allows reports whether the token is the token of the file.
func (t *fileToken) allows(token string) bool {
	want, ok := t.file.get()
	got := sha256.Sum256([]byte(token))
	return ok && subtle.ConstantTimeCompare(want[:], got[:]) == 1
}
