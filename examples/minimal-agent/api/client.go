package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// DefaultServer is where an agent listens by default.
	DefaultServer = "http://127.0.0.1:10255"

	// answerTimeout bounds the time until an answer begins, and all of one that is
	// no stream.
	answerTimeout = 15 * time.Second
	// maxAnswer is the size from which on an answer is not believed.
	maxAnswer = 32 << 20
)

// ClientConfig says which agent to ask, and as whom.
type ClientConfig struct {
	// Server is its address, http or https. Default [DefaultServer].
	Server string
	// TokenFile has the token that the agent wants; it is read anew for each
	// request. It is sent over TLS or to this machine, and nowhere else. Optional.
	TokenFile string
	// CAFile has the certificates that an https server is checked with. Default the
	// system's.
	CAFile string
}

// Client asks an agent. All methods may be called by any number of goroutines; each
// takes as long as its context allows, and not longer than 15s where it does not
// stream.
type Client struct {
	server    *url.URL
	tokenFile string
	http      *http.Client
}

// UnreachableError says that nobody answered.
type UnreachableError struct {
	Server string
	Err    error
}

// Error tells what to do about it.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no agent answers at %s: is it running? --server names another address (%v)", e.Server, e.Err)
}

// Unwrap returns why.
func (e *UnreachableError) Unwrap() error { return e.Err }

// StatusError is an answer that is none: the agent said no.
type StatusError struct {
	Code int    // of HTTP
	Text string // what it said
}

// Error tells what it said, and what to do about it where that is known.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("the agent says %d %s", e.Code, http.StatusText(e.Code))
	if e.Text != "" {
		text += ": " + e.Text
	}
	switch e.Code {
	case http.StatusUnauthorized, http.StatusForbidden:
		text += " (--token-file names the file with its token)"
	}
	return text
}

// NewClient returns a client. It sends nothing yet. Close it.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.Server == "" {
		cfg.Server = DefaultServer
	}
	server, err := url.Parse(cfg.Server)
	if err != nil || server.Host == "" || server.Scheme != "http" && server.Scheme != "https" ||
		strings.Trim(server.Path, "/") != "" || server.RawQuery != "" || server.User != nil {
		return nil, fmt.Errorf("server %q: want http://HOST:PORT or https://HOST:PORT", cfg.Server)
	}
	if cfg.TokenFile != "" && server.Scheme == "http" && !loopback(server.Hostname()) {
		return nil, fmt.Errorf("server %q: a token goes over https only", cfg.Server)
	}
	roots, err := readRoots(cfg.CAFile)
	if err != nil {
		return nil, err
	}
	server.Path = ""
	return &Client{server: server, tokenFile: cfg.TokenFile, http: &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:   answerTimeout,
			ResponseHeaderTimeout: answerTimeout,
			DialContext:           (&net.Dialer{Timeout: answerTimeout}).DialContext,
		},
		// An agent sends nobody elsewhere, and the token stays here.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func readRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("certificates of authorities: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("certificates of authorities: there is none in %s", file)
	}
	return roots, nil
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// Close ends connections that rest.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status returns one look at the whole agent.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.json(ctx, "/status", &s)
}

// Pods returns the pods as the kubelet's /pods does.
func (c *Client) Pods(ctx context.Context) (list corev1.PodList, err error) {
	return list, c.json(ctx, "/pods", &list)
}

// Explain returns why a pod is as it is.
func (c *Client) Explain(ctx context.Context, namespace, pod string) (e Explanation, err error) {
	return e, c.json(ctx, path("explain", namespace, pod), &e)
}

// EventsQuery says which events are wanted.
type EventsQuery struct {
	// Since is the number of the last one that is known: those after it.
	Since uint64
	// Watch waits for more, until the context ends or the agent does.
	Watch bool
}

// Events yields events, oldest first. An error is the last that it yields; a watch
// ends without one when ctx does. A watch whose reader was too slow yields an event
// [EventsLost] and goes on with what there still is.
func (c *Client) Events(ctx context.Context, q EventsQuery) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			query := url.Values{}
			if q.Since > 0 {
				query.Set("since", strconv.FormatUint(q.Since, 10))
			}
			if q.Watch {
				query.Set("watch", "true")
			}
			body, err := c.get(ctx, "/events", query, "")
			if err == nil {
				q.Since, err = events(body, q.Watch, yield)
			}
			switch {
			case errors.Is(err, errEnough), q.Watch && ctx.Err() != nil:
				return
			case errors.Is(err, errLost):
			default:
				if err != nil {
					yield(Event{}, err)
				}
				return
			}
		}
	}
}

// ErrStreamEnded says that the agent ended a stream that should have gone on: it
// has probably stopped.
var ErrStreamEnded = errors.New("the agent ended the stream of events")

var (
	errEnough = errors.New("the caller wants no more")
	errLost   = errors.New("events were lost")
)

// events yields what is in body, up to where it ends or events were lost, and returns
// the number to go on from.
func events(body io.ReadCloser, watch bool, yield func(Event, error) bool) (uint64, error) {
	defer func() { _ = body.Close() }()
	for decoder := json.NewDecoder(body); ; {
		var e Event
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF) && watch, errors.Is(err, io.ErrUnexpectedEOF) && watch:
			return 0, ErrStreamEnded
		case errors.Is(err, io.EOF):
			return 0, nil
		case err != nil:
			return 0, fmt.Errorf("events: %w", err)
		}
		switch {
		case !yield(e, nil):
			return 0, errEnough
		case watch && e.Reason == EventsLost:
			return e.Number, errLost
		}
	}
}

// LogsQuery says which lines of which log, as for the kubelet's /containerLogs.
type LogsQuery struct {
	Namespace, Pod, Container string
	Follow, Previous          bool
	Timestamps                bool
	// TailLines are the last ones; nil: all.
	TailLines *int64
	// Since is how old a line may be, in whole seconds, 0 for any age.
	Since time.Duration
}

// Logs returns a container's log. Close it.
func (c *Client) Logs(ctx context.Context, q LogsQuery) (io.ReadCloser, error) {
	query := url.Values{}
	for name, set := range map[string]bool{"follow": q.Follow, "previous": q.Previous, "timestamps": q.Timestamps} {
		if set {
			query.Set(name, "true")
		}
	}
	if q.TailLines != nil {
		query.Set("tailLines", strconv.FormatInt(*q.TailLines, 10))
	}
	if q.Since > 0 {
		query.Set("sinceSeconds", strconv.FormatInt(int64((q.Since+time.Second-1)/time.Second), 10))
	}
	return c.get(ctx, path("logs", q.Namespace, q.Pod, q.Container), query, "")
}

// Form is how a plan is told.
type Form string

// The forms of plans.
const (
	FormText Form = "text/plain"
	FormJSON Form = "application/json"
)

// EvictionPlan returns what would be evicted now.
func (c *Client) EvictionPlan(ctx context.Context, form Form) ([]byte, error) {
	return c.whole(ctx, "/plan/eviction", form)
}

// GCPlan returns what containers and images would be removed now.
func (c *Client) GCPlan(ctx context.Context, form Form) ([]byte, error) {
	return c.whole(ctx, "/plan/gc", form)
}

// path joins parts that may have anything in them.
func path(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}

// json reads an answer that is one value.
func (c *Client) json(ctx context.Context, path string, into any) error {
	data, err := c.whole(ctx, path, FormJSON)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s%s: that is no answer of this agent: %w", c.server, path, err)
	}
	return nil
}

// whole reads an answer to its end.
func (c *Client) whole(ctx context.Context, path string, form Form) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	body, err := c.get(ctx, path, nil, form)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, &UnreachableError{c.server.String(), err}
	case len(data) > maxAnswer:
		return nil, fmt.Errorf("%s%s: the answer is longer than %d bytes", c.server, path, maxAnswer)
	}
	return data, nil
}

// get returns the body of an answer that is OK.
func (c *Client) get(ctx context.Context, path string, query url.Values, form Form) (io.ReadCloser, error) {
	address := c.server.String() + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	if form != "" {
		req.Header.Set("Accept", string(form))
	}
	if c.tokenFile != "" {
		token, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	answer, err := c.http.Do(req)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // it repeats the address
		}
		return nil, &UnreachableError{c.server.String(), err}
	}
	if answer.StatusCode != http.StatusOK {
		defer func() { _ = answer.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
		return nil, &StatusError{answer.StatusCode, strings.TrimSpace(string(text))}
	}
	return answer.Body, nil
}
