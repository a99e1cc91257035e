package podsource

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/internal/backoff"
	"github.com/kubeparts/kubeparts/internal/loop"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// HTTP delivers the pods whose manifests are at a URL: a Pod or a PodList, as JSON or as
// YAML, or several Pods as YAML documents. Create it with [NewHTTP]; all methods are safe
// for concurrent use.
//
// A response is used as a whole or not at all. If a request fails or its response is bad,
// the source keeps the pods of the last good response. So only a good response, for example
// an empty PodList, removes a pod. Until the first good response, Run delivers no set of pods.
type HTTP struct {
	cfg    HTTPConfig
	name   string // the URL in problems
	client *http.Client
	loop   *loop.Loop

	step  sync.Mutex // serialises passes, and is held during callbacks
	last  *file      // the last response, good or bad; nil before the first response
	etag  string     // of the last response
	fails int        // failed requests since the last successful request
	state state
}

// NewHTTP returns a source that has not sent a request yet. It starts nothing.
func NewHTTP(cfg HTTPConfig) (*HTTP, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podsource: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	h := &HTTP{
		cfg: cfg, client: cfg.Client, loop: loop.New(cfg.Clock),
		state: state{log: cfg.Logger, observer: cfg.Observer},
	}
	if u, err := url.Parse(cfg.URL); err == nil {
		u.RawQuery = "" // it may contain a token
		h.name = u.Redacted()
	}
	if h.client == nil {
		h.client = &http.Client{Transport: newTransport()}
	}
	return h, nil
}

// newTransport returns a copy of the default transport, so that closing idle connections
// affects no other client. It returns the default transport itself if it cannot be copied.
func newTransport() http.RoundTripper {
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		return t.Clone()
	}
	return http.DefaultTransport
}

// Run sends a request at once and then periodically, until ctx is done; then it returns
// nil. It passes all pods to the callback set in the same cases as [Directory.Run]. Problems
// do not end Run. A second concurrent Run returns [ErrRunning].
func (h *HTTP) Run(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
	delivered := 0
	if h.cfg.Client == nil {
		defer h.client.CloseIdleConnections()
	}
	return h.loop.Run(ctx, func(ctx context.Context) time.Duration {
		l := h.load(ctx)
		if l.err != nil && ctx.Err() != nil {
			return h.cfg.Period
		}
		if l.generation != delivered {
			set(ctx, l.res.Pods)
			delivered = l.generation
		}
		wait := backOff(l.fails, h.cfg.Period, l.retryAfter)
		return wait + rand.N(wait/5+1)
	})
}

// Trigger makes Run send a request soon. It never blocks.
func (h *HTTP) Trigger() { h.loop.Trigger() }

// Problems returns the problems that the last pass found. The caller owns the slice.
func (h *HTTP) Problems() []Problem { return h.state.result(0).Problems }

// Load sends one request, and returns all pods and all problems. A bad manifest is a
// problem and not an error. If the request failed, or if ctx is done, Load returns an error
// and the pods of the previous pass. A failed request is also in the problems. If a pass is
// in progress, Load first waits for its end.
func (h *HTTP) Load(ctx context.Context) (Result, error) {
	l := h.load(ctx)
	return l.res, l.err
}

// loadResult is the result of one pass.
type loadResult struct {
	res        Result
	generation int
	err        error
	fails      int
	retryAfter time.Duration
}

func (h *HTTP) load(ctx context.Context) (l loadResult) {
	h.step.Lock()
	defer h.step.Unlock()
	read := 0
	f, err := h.fetch(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
	case err != nil:
		// A failed request removes no pod.
		h.fails++
		l.retryAfter = retryAfter(err)
		problem := Problem{File: h.name, Err: withoutURL(err)}
		h.state.publish(ctx, append([]Problem{problem}, h.state.fileProblems...))
		err = problem
	default:
		h.fails = 0
		if f != h.last {
			read, h.last = 1, f
			if h.state.generation == 0 && f.problems != nil {
				// The pods stay unknown: a bad response must not define an empty set of pods.
				h.state.fileProblems = f.problems
			} else {
				h.state.update([]*file{f}, h.cfg.Clock.Now())
			}
		}
		h.state.publish(ctx, h.state.fileProblems)
	}
	l.res, l.generation, l.err, l.fails = h.state.result(read), h.state.generation, err, h.fails
	h.cfg.Observer.Loaded(l.res, err)
	return l
}

// fetch sends one request and returns its response. It returns h.last if nothing has
// changed.
func (h *HTTP) fetch(ctx context.Context) (*file, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.cfg.URL, http.NoBody)
	if err != nil {
		return nil, err
	}
	if h.cfg.Header != nil {
		req.Header = h.cfg.Header.Clone()
		req.Host = req.Header.Get("Host")
	}
	if h.etag != "" {
		req.Header.Set("If-None-Match", h.etag)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusNotModified && h.etag != "":
		return h.last, nil
	case resp.StatusCode != http.StatusOK:
		return nil, &statusError{code: resp.StatusCode, retryAfter: resp.Header.Get("Retry-After")}
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, h.cfg.MaxBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the response: %w", err)
	case int64(len(data)) > h.cfg.MaxBytes:
		return nil, fmt.Errorf("the response is larger than the limit of %d bytes", h.cfg.MaxBytes)
	}
	h.etag = resp.Header.Get("ETag")
	return h.parse(data), nil
}

// parse decodes a response. It returns h.last if the content is the same.
func (h *HTTP) parse(data []byte) *file {
	f := &file{sum: sha256.Sum256(data)}
	if h.last != nil && h.last.sum == f.sum {
		return h.last
	}
	f.manifests, f.problems = decodeResponse(h.name, data, origin{source: podspec.SourceHTTP, node: h.cfg.NodeName, owner: h.cfg.Owner})
	if f.problems != nil && h.last != nil {
		f.manifests = h.last.manifests
	}
	return f
}

// statusError is a response with a status code other than 200.
type statusError struct {
	code       int
	retryAfter string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the server answered %d %s", e.code, http.StatusText(e.code))
}

// retryAfter returns the wait that the server asks for with Retry-After, or 0. Dates are
// ignored, because the server's clock may differ.
func retryAfter(err error) time.Duration {
	status, ok := errors.AsType[*statusError](err)
	if !ok {
		return 0
	}
	seconds, err := strconv.ParseUint(status.retryAfter, 10, 16)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// withoutURL removes the URL from an error of package http, because the Problem already
// contains the URL without its secret parts.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// backOff returns the time until the next request. The first argument is the number of
// consecutive failures, and the last argument is the server's Retry-After.
func backOff(fails int, period, asked time.Duration) time.Duration {
	if fails == 0 {
		return period
	}
	wait := backoff.After(fails-1, time.Second, period)
	return max(wait, min(asked, 10*time.Minute))
}
