package kubeletapi

import (
	"io"
	"net/http"
)

// stream returns a handler that reads the request's body, removes the time limits and calls the
// given handler. If MaxStreams streams are open, the returned handler refuses the request.
func (s *Server) stream(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// net/http only detects that a client has disconnected after the body was read.
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			refuse(w, badRequestf("read the body of the request: %v", err))
			return
		}
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

// pieces writes a response in pieces. The client must receive each piece within
// pieceTimeout.
type pieces struct{ http.ResponseWriter }

// Write adds data to the piece, which is sent by the next Flush or when the buffer is full.
func (p *pieces) Write(data []byte) (int, error) {
	writeWithin(p.ResponseWriter, pieceTimeout)
	return p.ResponseWriter.Write(data)
}

// Flush sends the written data.
func (p *pieces) Flush() {
	writeWithin(p.ResponseWriter, pieceTimeout)
	_ = http.NewResponseController(p.ResponseWriter).Flush() // if Flush fails, the next Write fails as well
}

// Unwrap returns the writer for [http.ResponseController].
func (p *pieces) Unwrap() http.ResponseWriter { return p.ResponseWriter }
