package kubeletapi

import "net/http"

// stream removes the time limit of a handler. It refuses the request if too many streams are
// open.
func (s *Server) stream(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.streams <- struct{}{}:
			defer func() { <-s.streams }()
		default:
			w.Header().Set("Retry-After", "10")
			refuse(w, &statusError{code: http.StatusServiceUnavailable, message: "too many streams are open, try again later"})
			return
		}
		setAnswering(r.Context(), connState{stream: true})
		removeTimeLimits(w)
		next(&pieces{w}, r)
	}
}

// pieces writes a response in pieces. The client must receive each piece in time.
type pieces struct{ http.ResponseWriter }

// Write writes a piece. It is sent with the next Flush, or when the buffer is full.
func (p *pieces) Write(data []byte) (int, error) {
	writeWithin(p.ResponseWriter, pieceTimeout)
	return p.ResponseWriter.Write(data)
}

// Flush sends the written data.
func (p *pieces) Flush() {
	writeWithin(p.ResponseWriter, pieceTimeout)
	_ = http.NewResponseController(p.ResponseWriter).Flush() // the next Write returns the error
}

// Unwrap returns the writer for [http.ResponseController].
func (p *pieces) Unwrap() http.ResponseWriter { return p.ResponseWriter }
