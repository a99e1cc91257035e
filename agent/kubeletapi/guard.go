package kubeletapi

import (
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

// guard refuses requests that Access does not allow, and sets the headers of all responses.
func (s *Server) guard(next http.Handler, loopback bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setAnswering(r.Context(), connState{})
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") // the page sets its own policy
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		writeWithin(w, pageTimeout)
		switch {
		case r.URL.Path == "/livez":
		case (r.URL.Path == "/" || r.URL.Path == "/agent/") && s.token != nil && s.cfg.Page != nil: // the page asks for the token and contains no data
		case s.token != nil && !s.token.allows(r.Header.Get("Authorization")):
			h.Set("WWW-Authenticate", "Bearer")
			http.Error(w, "this agent requires the header Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		case s.token == nil && loopback && !loopbackName(r.Host):
			http.Error(w, fmt.Sprintf("this agent only serves this machine, and %q is not a name of this machine: use localhost", r.Host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

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

// fileToken is the current token of a token file. While the file is missing or has no token,
// all tokens are refused. So deleting the file revokes the token.
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

// parseToken parses a token and returns its hash. Hashes are compared because the comparison
// takes the same time for tokens of any length.
func parseToken(data ...[]byte) (sum [sha256.Size]byte, err error) {
	token := strings.TrimSpace(string(data[0]))
	// A header can't contain other characters.
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return sum, errors.New("must contain one word of printable ASCII characters")
	}
	return sha256.Sum256([]byte(token)), nil
}

// allows reports whether an Authorization header contains the token.
func (t *fileToken) allows(header string) bool {
	scheme, token, _ := strings.Cut(header, " ")
	want, ok := t.file.get()
	got := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return ok && subtle.ConstantTimeCompare(want[:], got[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}
