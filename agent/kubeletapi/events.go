package kubeletapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

const (
	eventStream = "text/event-stream"
	jsonLines   = "application/x-ndjson"
	// heartbeat is the time between two comments on a stream of server-sent events. Without these
	// comments, a broken connection could remain undetected while no event occurs.
	heartbeat = 15 * time.Second
)

// events responds with the stored events, as lines of JSON or as server-sent events. With
// ?watch or for server-sent events, it also sends later events. ?since or the header
// Last-Event-ID is the number of the last event that the client has received.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	sse := prefers(r, eventStream, jsonLines)
	since, errSince := sinceOf(query.Get("since"), r.Header.Get("Last-Event-ID"))
	watch, errWatch := boolQuery(query, "watch")
	if err := errors.Join(errSince, errWatch); err != nil {
		refuse(w, badRequest(err))
		return
	}
	if watch || sse {
		s.stream(func(w http.ResponseWriter, r *http.Request) { s.watchEvents(w, r, since, sse) })(w, r)
		return
	}
	w.Header().Set("Content-Type", jsonLines)
	events, _, _ := s.cfg.Events.After(since)
	_, _ = w.Write(eventLines(events, false))
}

// sinceOf parses the number of an event. The header takes precedence, because a browser that
// reconnects sends the newest number in the header.
func sinceOf(query, header string) (uint64, error) {
	text := query
	if header != "" {
		text = header
	}
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("since=%q: must be the number of an event", text)
	}
	return n, nil
}

// watchEvents writes events until the client disconnects, the server stops, or an event was
// deleted before watchEvents could write it.
func (s *Server) watchEvents(w http.ResponseWriter, r *http.Request, since uint64, sse bool) {
	kind := jsonLines
	if sse {
		kind = eventStream
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not buffer
	tick := s.cfg.Clock.NewTicker(heartbeat)
	defer tick.Stop()
	events, next, _ := s.cfg.Events.After(since) // complete is ignored: the client may request events that are already deleted
	for {
		if _, err := w.Write(eventLines(events, sse)); err != nil {
			return
		}
		flush(w)
		select {
		case <-r.Context().Done():
			return
		case <-s.cfg.Events.Changed(next):
		case <-tick.C():
			events = nil
			if sse {
				fmt.Fprint(w, ":\n\n")
			}
			continue
		}
		before, complete := next, false
		if events, next, complete = s.cfg.Events.After(next); !complete {
			_, _ = w.Write(eventLines([]api.Event{{
				Number: before, Time: s.cfg.Clock.Now(), Type: "Warning", Reason: api.EventsLost, Kind: "Agent", Count: 1,
				Message: fmt.Sprintf("the reader is too slow: events after number %d were deleted; continue with ?since=%d", before, before),
			}}, sse))
			flush(w)
			return
		}
	}
}

// eventLines returns events as lines of JSON or as server-sent events.
func eventLines(events []api.Event, sse bool) []byte {
	var b bytes.Buffer
	for i := range events {
		data, err := json.Marshal(&events[i])
		if err != nil {
			continue // the only possible cause is a year outside 0 to 9999
		}
		if sse {
			fmt.Fprintf(&b, "id: %d\ndata: %s\n\n", events[i].Number, data)
			continue
		}
		b.Write(append(data, '\n'))
	}
	return b.Bytes()
}

func flush(w http.ResponseWriter) {
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}
