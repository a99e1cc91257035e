package kubeletapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/eventlog"
)

// fixed is an empty log.
type fixed struct{}

func (fixed) After(uint64) ([]api.Event, uint64, bool) { return nil, 0, true }
func (fixed) Changed(uint64) <-chan struct{}           { return nil }
func (fixed) About(_, _, _ string, _ int) []api.Event  { return nil }

func add(l *eventlog.Log, reason string) {
	l.Add(api.Event{Kind: "Pod", Namespace: "ns", Name: "p", Type: "Normal", Reason: reason, Message: "<b>&"})
}

func TestEvents_ListAfterANumber(t *testing.T) {
	t.Parallel()
	log := eventlog.New(eventlog.Config{})
	for _, r := range []string{"One", "Two", "Three"} {
		add(log, r)
	}
	cfg := kubeletapi.Config{Events: log}
	reasons := func(path string, headers ...string) (out []string) {
		w := answer(t, cfg, path, headers...)
		require.Equal(t, http.StatusOK, w.Code, path)
		require.Equal(t, "application/x-ndjson", w.Header().Get("Content-Type"))
		for line := range strings.Lines(w.Body.String()) {
			var e api.Event
			require.NoError(t, json.Unmarshal([]byte(line), &e))
			out = append(out, fmt.Sprintf("%d %s", e.Number, e.Reason))
		}
		return out
	}
	require.Equal(t, []string{"1 One", "2 Two", "3 Three"}, reasons("/agent/events"))
	require.Equal(t, []string{"3 Three"}, reasons("/agent/events?since=2"))
	require.Equal(t, []string{"3 Three"}, reasons("/agent/events?since=0", "Last-Event-ID", "2"))
	require.Empty(t, reasons("/agent/events?since=3&watch=false"))
	require.Len(t, reasons("/agent/events?since=4"), 3, "a number of an earlier agent must return all events")
	for _, bad := range []string{"x", "-1", "1.5", "99999999999999999999"} {
		code, body := ask(t, cfg, "/agent/events?watch&since="+bad)
		require.Equal(t, http.StatusBadRequest, code)
		require.Contains(t, body, "must be the number of an event")
	}
}

// client is a client on an in-memory connection that uses the bubble's time.
type client struct {
	t      *testing.T
	reader *bufio.Reader
}

func (p *pipes) ask(t *testing.T, path string, headers ...string) (client, func() error) {
	t.Helper()
	c := p.dial()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, strings.Join(headers, ""))
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	return client{t, bufio.NewReader(answer.Body)}, c.Close
}

func (c client) line() string {
	c.t.Helper()
	text, err := c.reader.ReadString('\n')
	require.NoError(c.t, err)
	return strings.TrimSuffix(text, "\n")
}

func TestEvents_WatchInBothForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventlog.New(eventlog.Config{})
		add(log, "One")
		p, stop := serve(t, kubeletapi.Config{Events: log})
		lines, closeLines := p.ask(t, "/agent/events?watch")
		sse, closeSSE := p.ask(t, "/agent/events?since=1", "Accept: text/event-stream\r\n")
		require.Contains(t, lines.line(), `"number":1,`)
		time.Sleep(14 * time.Second) // longer than the timeout of a request
		add(log, "Two")
		require.Contains(t, lines.line(), `"reason":"Two"`)
		require.Equal(t, "id: 2", sse.line())
		require.Contains(t, sse.line(), `data: {"number":2,`)
		require.Empty(t, sse.line())
		require.Equal(t, ":", sse.line(), "the watch must still be open")
		require.Empty(t, sse.line())
		var readers sync.WaitGroup
		for _, c := range []client{lines, sse} {
			readers.Go(func() { _, _ = io.Copy(io.Discard, c.reader) })
		}
		time.Sleep(time.Hour)
		began := time.Now()
		require.NoError(t, stop())
		require.Less(t, time.Since(began), time.Second, "streams must end at once")
		readers.Wait()
		require.NoError(t, closeLines())
		require.NoError(t, closeSSE())
	})
}

// net/http does not watch a connection while a part of the request's body is unread.
func TestStream_EndsWithAClientThatSentABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := serve(t, kubeletapi.Config{Events: eventlog.New(eventlog.Config{}), MaxStreams: 1})
		c := p.dial()
		fmt.Fprint(c, "GET /agent/events?watch HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx")
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.NoError(t, c.Close())
		synctest.Wait()
		_, closeNext := p.ask(t, "/agent/events?watch") // requires the status code 200
		require.NoError(t, closeNext())
		require.NoError(t, stop())
	})
}

func TestStream_BodyThatNeverArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := serve(t, kubeletapi.Config{Events: eventlog.New(eventlog.Config{})})
		c := p.dial()
		fmt.Fprint(c, "GET /agent/events?watch HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nx")
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		require.NoError(t, c.Close())
		require.NoError(t, stop())
	})
}

func TestEvents_SlowReaderGetsEventsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventlog.New(eventlog.Config{Size: 2})
		p, stop := serve(t, kubeletapi.Config{Events: log})
		c, closeIt := p.ask(t, "/agent/events?watch")
		add(log, "One")
		synctest.Wait() // the server is blocked in a write, because the client does not read
		for i := range 10 {
			add(log, fmt.Sprint("More", i))
		}
		require.Contains(t, c.line(), `"reason":"One"`)
		var last api.Event
		require.NoError(t, json.Unmarshal([]byte(c.line()), &last))
		require.Equal(t, api.EventsLost, last.Reason)
		require.EqualValues(t, 1, last.Number)
		require.Contains(t, last.Message, "?since=1")
		_, err := c.reader.ReadString('\n')
		require.Error(t, err, "the stream must end after this line")
		require.NoError(t, closeIt())

		// A client that does not read is disconnected.
		c, closeIt = p.ask(t, "/agent/events?watch")
		add(log, "Again")
		began := time.Now()
		time.Sleep(20 * time.Second)
		_, err = c.reader.ReadString('x')
		require.Error(t, err)
		require.Less(t, time.Since(began), time.Minute)
		require.NoError(t, closeIt())
		require.NoError(t, stop())
	})
}

func TestStream_LimitLeavesRoomForOtherRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := serve(t, kubeletapi.Config{Events: fixed{}, MaxStreams: 2})
		_, closeFirst := p.ask(t, "/agent/events?watch")
		_, closeSecond := p.ask(t, "/agent/events?watch")
		for range 2 {
			c := p.dial()
			fmt.Fprint(c, "GET /agent/events?watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
			require.NoError(t, c.Close())
		}
		_, closeOther := p.ask(t, "/healthz")
		require.NoError(t, closeFirst())
		synctest.Wait()
		_, closeThird := p.ask(t, "/agent/events?watch")
		for _, c := range []func() error{closeSecond, closeOther, closeThird} {
			require.NoError(t, c())
		}
		require.NoError(t, stop())
	})
}
