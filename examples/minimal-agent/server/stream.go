package server

import "net/http"

// stream lets a handler answer for as long as it likes, if not too many do.
func (s *Server) stream(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.streams <- struct{}{}:
			defer func() { <-s.streams }()
		default:
			w.Header().Set("Retry-After", "10")
			refuse(w, &StatusError{Code: http.StatusServiceUnavailable, Message: "too many streams are open"})
			return
		}
		setAnswering(r.Context(), connState{stream: true})
		unhurried(w)
		next(&pieces{w}, r)
	}
}

// pieces writes an answer piece by piece, each of which its client must take in time.
type pieces struct{ http.ResponseWriter }

// Write writes a piece. It is sent with the next Flush, or when there is much of it.
func (p *pieces) Write(data []byte) (int, error) {
	writeWithin(p.ResponseWriter, pieceTimeout)
	return p.ResponseWriter.Write(data)
}

// Flush sends what was written.
func (p *pieces) Flush() {
	writeWithin(p.ResponseWriter, pieceTimeout)
	_ = http.NewResponseController(p.ResponseWriter).Flush() // the next Write tells
}

// Unwrap is for [http.ResponseController].
func (p *pieces) Unwrap() http.ResponseWriter { return p.ResponseWriter }
