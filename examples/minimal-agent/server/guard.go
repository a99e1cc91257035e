package server

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

// guard lets through who may ask, and says how answers may be used.
func (s *Server) guard(next http.Handler, loopback bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setAnswering(r.Context(), connState{})
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") // the page has its own
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		writeWithin(w, pageTimeout)
		switch {
		case r.URL.Path == "/livez":
		case r.URL.Path == "/" && s.token != nil && s.cfg.Page != nil: // it asks for the token, and says nothing itself
		case s.token != nil && !s.token.allows(r.Header.Get("Authorization")):
			h.Set("WWW-Authenticate", "Bearer")
			http.Error(w, "this agent wants a token: Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		case s.token == nil && loopback && !loopbackName(r.Host):
			http.Error(w, fmt.Sprintf("this agent answers on this machine only, and %q is no name of it: ask localhost", r.Host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopbackName says whether a Host header can only mean this machine.
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

// isLoopback says whether only this machine can reach an address. One that is no
// network's can't be reached otherwise either.
func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.AddrPort().Addr().Unmap().IsLoopback()
}

// fileToken is the token in a file, as it is now. While the file is missing or has no
// token, no token is allowed: who deletes it revokes the token.
type fileToken struct {
	file *watched[[sha256.Size]byte]
}

func newFileToken(path string, log *slog.Logger) (*fileToken, error) {
	w, err := watch(log, parseToken, path)
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	w.lapses = true
	warnOfReaders(path, log)
	return &fileToken{file: w}, nil
}

// parseToken reads a token, of which only a sum is kept: sums are compared in the
// same time whatever and however long what is asked with.
func parseToken(data ...[]byte) (sum [sha256.Size]byte, err error) {
	token := strings.TrimSpace(string(data[0]))
	// What no header can carry would let in nobody.
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return sum, errors.New("want one word of ASCII")
	}
	return sha256.Sum256([]byte(token)), nil
}

// allows says whether an Authorization header has the token.
func (t *fileToken) allows(header string) bool {
	scheme, token, _ := strings.Cut(header, " ")
	want, ok := t.file.get()
	got := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return ok && subtle.ConstantTimeCompare(want[:], got[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}
