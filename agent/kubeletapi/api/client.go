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
	// DefaultServer is the default URL of an agent.
	DefaultServer = "http://127.0.0.1:10255"

	// answerTimeout limits connecting and, except for pulls, the wait for the start of a response.
	// It also limits the total time of a request, except for streams, logs and pulls.
	answerTimeout = 15 * time.Second
	// maxAnswer is the maximum size in bytes of a response, except for logs. In a watch, it is the
	// maximum size of an event.
	maxAnswer = 32 << 20
)

// ClientConfig configures a [Client].
type ClientConfig struct {
	// Server is the URL of the agent, http or https. Default: [DefaultServer].
	Server string
	// TokenFile is the file with the bearer token. The Client reads the file for each
	// request. It sends the token only over TLS or to this machine. Optional.
	TokenFile string
	// CAFile is the file with the CA certificates to verify an https server. Default: the CA
	// certificates of the system.
	CAFile string
	// CertFile and KeyFile are the files with the certificate and the private key of the client,
	// in PEM. The Client reads them for each new connection. It uses them only over TLS.
	// Optional.
	CertFile, KeyFile string
}

// Client sends requests to an agent. All methods may be called concurrently. Each method returns
// when its context is done. All methods return within 15 seconds, except Logs, Pull, Upgrade, and
// Events with Watch.
type Client struct {
	server    *url.URL
	tokenFile string
	maxAnswer int64
	http      *http.Client
	patient   *http.Client // without a limit for the start of the response
}

// UnreachableError is returned if a request gets no response or, except for logs and events, no
// complete response.
type UnreachableError struct {
	Server string
	Err    error
}

// Error returns the cause and advice for the user.
func (e *UnreachableError) Error() string {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](e.Err); ok {
		return fmt.Sprintf("could not verify the certificate of the agent at %s: set --ca-file to the file of its CA (%v)", e.Server, e.Err)
	}
	return fmt.Sprintf("no agent responds at %s: check that it is running, or set --server to its address (%v)", e.Server, e.Err)
}

// Unwrap returns Err.
func (e *UnreachableError) Unwrap() error { return e.Err }

// StatusError is returned if the agent responds with an HTTP status other than 200. For
// [Client.Upgrade], the expected status is 101.
type StatusError struct {
	Code int    // the HTTP status code
	Text string // the text of the response
}

// Error returns the status and the text of the response and, after a refusal, advice for the
// user.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("the agent responded with %d %s", e.Code, http.StatusText(e.Code))
	if e.Text != "" {
		text += ": " + e.Text
	}
	switch e.Code {
	case http.StatusUnauthorized, http.StatusForbidden:
		text += " (set --token-file to the file with its token, or --cert-file and --key-file)"
	}
	return text
}

// NewClient returns a Client. It sends no request. The caller must close the Client.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.Server == "" {
		cfg.Server = DefaultServer
	}
	server, err := url.Parse(cfg.Server)
	if err != nil || server.Host == "" || server.Scheme != "http" && server.Scheme != "https" ||
		strings.Trim(server.Path, "/") != "" || server.RawQuery != "" || server.ForceQuery || server.Fragment != "" || server.User != nil {
		return nil, fmt.Errorf("server %q: want http://HOST:PORT or https://HOST:PORT", cfg.Server)
	}
	if cfg.TokenFile != "" && server.Scheme == "http" && !loopback(server.Hostname()) {
		return nil, fmt.Errorf("server %q: a token is only sent over https", cfg.Server)
	}
	if (cfg.CertFile == "") != (cfg.KeyFile == "") {
		return nil, errors.New("the client certificate and its private key must be set together: set both files, or neither")
	}
	if cfg.CertFile != "" && server.Scheme == "http" {
		return nil, fmt.Errorf("server %q: a client certificate is only used over https", cfg.Server)
	}
	if _, err := cfg.clientCertificate(nil); err != nil {
		return nil, err
	}
	roots, err := readRoots(cfg.CAFile)
	if err != nil {
		return nil, err
	}
	server.Path = ""
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		TLSClientConfig:       &tls.Config{RootCAs: roots, GetClientCertificate: cfg.clientCertificate, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   answerTimeout,
		ResponseHeaderTimeout: answerTimeout,
		DialContext:           (&net.Dialer{Timeout: answerTimeout}).DialContext,
	}
	patient := transport.Clone()
	patient.ResponseHeaderTimeout = 0
	// Agents do not redirect the requests of a Client, and the token must not be sent to another
	// server.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{
		server: server, tokenFile: cfg.TokenFile, maxAnswer: maxAnswer,
		http: &http.Client{Transport: transport, CheckRedirect: stay}, patient: &http.Client{Transport: patient, CheckRedirect: stay},
	}, nil
}

// clientCertificate reads the certificate of the client. If CertFile is not set, it returns an
// empty certificate, as crypto/tls requires.
func (cfg ClientConfig) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if cfg.CertFile == "" {
		return &tls.Certificate{}, nil
	}
	certificate, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read client certificate: %w", err)
	}
	return &certificate, nil
}

func readRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read CA certificates: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("read CA certificates: %s contains no certificate", file)
	}
	return roots, nil
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// Close closes idle connections.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.patient.CloseIdleConnections()
}

// Status returns the state of the whole agent.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.json(ctx, "/agent/status", &s)
}

// Pods returns the pods that a source defines, as the kubelet's /pods does.
func (c *Client) Pods(ctx context.Context) (list corev1.PodList, err error) {
	return list, c.json(ctx, "/pods", &list)
}

// Explain returns why a pod is in its state.
func (c *Client) Explain(ctx context.Context, namespace, pod string) (e Explanation, err error) {
	return e, c.json(ctx, path("agent", "explain", namespace, pod), &e)
}

// EventsQuery selects events.
type EventsQuery struct {
	// Since selects the events with numbers above Since.
	Since uint64
	// Watch selects later events, too, until the context is done or the agent stops.
	Watch bool
}

// Events yields events, oldest first. After an error, it yields nothing more. A watch ends
// without an error when ctx is done. If the caller of a watch is too slow, Events yields an
// event with the reason [EventsLost] and continues with the events that the agent still
// stores.
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
			var err error
			q.Since, err = c.events(ctx, query, q.Watch, yield)
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

// ErrStreamEnded is yielded by [Client.Events] if the agent ends a watch, usually because the
// agent stops.
var ErrStreamEnded = errors.New("the agent ended the stream of events")

var (
	errEnough = errors.New("the caller has stopped the iteration")
	errLost   = errors.New("events were lost")
)

// events yields the events of one response. If events were lost, it returns errLost and the
// number of the last received event.
func (c *Client) events(ctx context.Context, query url.Values, watch bool, yield func(Event, error) bool) (uint64, error) {
	if !watch {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerTimeout)
		defer cancel()
	}
	body, err := c.get(ctx, "/agent/events", query, "")
	if err != nil {
		return 0, err
	}
	defer func() { _ = body.Close() }()
	limited := &io.LimitedReader{R: body, N: c.maxAnswer + 1}
	for decoder := json.NewDecoder(limited); ; {
		if watch {
			limited.N = c.maxAnswer + 1
		}
		var e Event
		switch err := decoder.Decode(&e); {
		case err != nil && limited.N == 0:
			return 0, fmt.Errorf("%s/agent/events: the response is longer than %d bytes", c.server, c.maxAnswer)
		case errors.Is(err, io.EOF) && watch, errors.Is(err, io.ErrUnexpectedEOF) && watch:
			return 0, ErrStreamEnded
		case errors.Is(err, io.EOF):
			return 0, nil
		case err != nil:
			return 0, fmt.Errorf("read events: %w", err)
		}
		switch {
		case !yield(e, nil):
			return 0, errEnough
		case watch && e.Reason == EventsLost:
			return e.Number, errLost
		}
	}
}

// LogsQuery selects lines of a log. The fields correspond to the query parameters of the
// kubelet's /containerLogs.
type LogsQuery struct {
	Namespace, Pod, Container string
	Follow, Previous          bool
	Timestamps                bool
	// TailLines selects this number of last lines. Nil means all lines.
	TailLines *int64
	// Since is the maximum age of a line, rounded up to whole seconds. 0 means no maximum.
	Since time.Duration
}

// Logs returns the log of a container. The caller must close the result.
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
	return c.get(ctx, path("containerLogs", q.Namespace, q.Pod, q.Container), query, "")
}

// Form is the format of a plan.
type Form string

// The formats of plans.
const (
	FormText Form = "text/plain"
	FormJSON Form = "application/json"
)

// EvictionPlan returns what eviction would do now.
func (c *Client) EvictionPlan(ctx context.Context, form Form) ([]byte, error) {
	return c.whole(ctx, "/agent/plan/eviction", form)
}

// GCPlan returns which containers and images garbage collection would delete now.
func (c *Client) GCPlan(ctx context.Context, form Form) ([]byte, error) {
	return c.whole(ctx, "/agent/plan/gc", form)
}

// path joins and escapes the parts of a path.
func path(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}

// json reads a response that is one JSON value.
func (c *Client) json(ctx context.Context, path string, into any) error {
	data, err := c.whole(ctx, path, FormJSON)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s%s: unexpected response, is this the URL of an agent? %w", c.server, path, err)
	}
	return nil
}

// whole returns the complete body of a response.
func (c *Client) whole(ctx context.Context, path string, form Form) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	body, err := c.get(ctx, path, nil, form)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(io.LimitReader(body, c.maxAnswer+1))
	switch {
	case err != nil:
		return nil, &UnreachableError{c.server.String(), err}
	case int64(len(data)) > c.maxAnswer:
		return nil, fmt.Errorf("%s%s: the response is longer than %d bytes", c.server, path, c.maxAnswer)
	}
	return data, nil
}

// readToken reads a token, and returns an error if the token is not valid in a header.
func readToken(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("read token: %s must contain one word of printable ASCII characters", file)
	}
	return token, nil
}

// get returns the body of a response with the status 200. Other statuses are errors. The caller
// must close the body.
func (c *Client) get(ctx context.Context, path string, query url.Values, form Form) (io.ReadCloser, error) {
	req, err := c.request(ctx, http.MethodGet, path, query)
	if err != nil {
		return nil, err
	}
	if form != "" {
		req.Header.Set("Accept", string(form))
	}
	answer, err := c.send(c.http, req, http.StatusOK)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// request returns a request with the token.
func (c *Client) request(ctx context.Context, method, path string, query url.Values) (*http.Request, error) {
	address := c.server.String() + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	if c.tokenFile != "" {
		token, err := readToken(c.tokenFile)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// send sends a request. It returns an error if the response does not have the expected status.
func (c *Client) send(client *http.Client, req *http.Request, want int) (*http.Response, error) {
	answer, err := client.Do(req)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // the outer error repeats the address
		}
		return nil, &UnreachableError{c.server.String(), err}
	}
	if answer.StatusCode != want {
		defer func() { _ = answer.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
		return nil, &StatusError{answer.StatusCode, strings.TrimSpace(string(text))}
	}
	return answer, nil
}
