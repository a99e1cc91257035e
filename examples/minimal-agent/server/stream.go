package server

import (
	"net/http"
	"time"
)

// stream lets a handler answer for as long as it likes, if not too many do.
func (s *Server) stream(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.streams <- struct{}{}:
			defer func() { <-s.streams }()
		default:
			w.Header().Set("Retry-After", "10")
			http.Error(w, "too many streams are open", http.StatusServiceUnavailable)
			return
		}
		unhurried(w)
		next(&pieces{ResponseWriter: w, control: http.NewResponseController(w)}, r)
	}
}

// pieces writes an answer piece by piece, each of which its client must take in time.
type pieces struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Write writes a piece. It is sent with the next Flush, or when there is much of it.
func (p *pieces) Write(data []byte) (int, error) {
	// The error is that of a writer in a test, which has no deadline.
	_ = p.control.SetWriteDeadline(time.Now().Add(pieceTimeout))
	return p.ResponseWriter.Write(data)
}

// Flush sends what was written.
func (p *pieces) Flush() {
	_ = p.control.SetWriteDeadline(time.Now().Add(pieceTimeout))
	_ = p.control.Flush() // the next Write tells
}

// Unwrap is for [http.ResponseController].
func (p *pieces) Unwrap() http.ResponseWriter { return p.ResponseWriter }
