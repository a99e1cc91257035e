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

// HTTP gives the pods whose manifests are at a URL: a Pod or a PodList, as JSON or as
// YAML, or several Pods as YAML documents. Make it with [NewHTTP]; all methods are safe
// for concurrent use.
//
// An answer is taken whole or not at all. While there is none, or a bad one, the pods
// are those of the last good one: only a good answer ends a pod, an empty PodList for
// example.
type HTTP struct {
	cfg    HTTPConfig
	name   string // of the URL in problems
	client *http.Client
	loop   *loop.Loop

	step   sync.Mutex // serialises passes, and is held during callbacks
	last   *file      // the last answer, good or bad; nil before
	etag   string     // of the last answer
	fails  int        // requests without an answer since the last one
	answer answer
}

// NewHTTP returns a source that has asked for nothing yet. It starts nothing.
func NewHTTP(cfg HTTPConfig) (*HTTP, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podsource: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	h := &HTTP{
		cfg: cfg, client: cfg.Client, loop: loop.New(cfg.Clock),
		answer: answer{log: cfg.Logger, observer: cfg.Observer},
	}
	if u, err := url.Parse(cfg.URL); err == nil {
		u.RawQuery = "" // which may hold a token
		h.name = u.Redacted()
	}
	if h.client == nil {
		h.client = &http.Client{Transport: ownTransport()}
	}
	return h, nil
}

// ownTransport is a copy of the standard one, so that closing what is idle closes no
// connection of anybody else.
func ownTransport() http.RoundTripper {
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		return t.Clone()
	}
	return http.DefaultTransport
}

// Run asks at once and then every period, until ctx is done; then it returns nil. It calls
// set as [Directory.Run] does. Problems do not end it. A second Run beside the first
// returns [ErrRunning].
func (h *HTTP) Run(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
	told := 0
	if h.cfg.Client == nil {
		defer h.client.CloseIdleConnections()
	}
	return h.loop.Run(ctx, func(ctx context.Context) time.Duration {
		l := h.load(ctx)
		if l.err != nil && ctx.Err() != nil {
			return h.cfg.Period
		}
		if l.generation != told {
			set(ctx, l.res.Pods)
			told = l.generation
		}
		wait := backOff(l.fails, h.cfg.Period, l.retryAfter)
		return wait + rand.N(wait/5+1)
	})
}

// Trigger asks Run for a request soon. It never blocks.
func (h *HTTP) Trigger() { h.loop.Trigger() }

// Problems returns the problems that the last pass has found. The slice is the
// caller's.
func (h *HTTP) Problems() []Problem { return h.answer.result(0).Problems }

// Load asks once, and returns all pods and all problems. Bad manifests are problems and
// no error. The error says that there was no answer, which is a problem as well, or
// that ctx was done; the pods are then those from before. It waits for a pass that is
// going on.
func (h *HTTP) Load(ctx context.Context) (Result, error) {
	l := h.load(ctx)
	return l.res, l.err
}

// loaded is what a pass has come to.
type loaded struct {
	res        Result
	generation int
	err        error
	fails      int
	retryAfter time.Duration
}

func (h *HTTP) load(ctx context.Context) (l loaded) {
	h.step.Lock()
	defer h.step.Unlock()
	read := 0
	f, err := h.ask(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
	case err != nil:
		// Nobody has said that a pod shall end.
		h.fails++
		l.retryAfter = retryAfter(err)
		problem := Problem{File: h.name, Err: withoutURL(err)}
		h.answer.publish(ctx, append([]Problem{problem}, h.answer.inFiles...))
		err = problem
	default:
		h.fails = 0
		if f != h.last {
			read, h.last = 1, f
			h.answer.resolve([]*file{f}, h.cfg.Clock.Now())
		}
		h.answer.publish(ctx, h.answer.inFiles)
	}
	l.res, l.generation, l.err, l.fails = h.answer.result(read), h.answer.generation, err, h.fails
	h.cfg.Observer.Loaded(l.res, err)
	return l
}

// ask returns the answer to one request, which is the last one if nothing has changed.
func (h *HTTP) ask(ctx context.Context) (*file, error) {
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
		return nil, fmt.Errorf("read the answer: %w", err)
	case int64(len(data)) > h.cfg.MaxBytes:
		return nil, fmt.Errorf("the answer has more than %d bytes", h.cfg.MaxBytes)
	}
	h.etag = resp.Header.Get("ETag")
	return h.parse(data), nil
}

// parse returns what an answer says, and the last one if that said the same.
func (h *HTTP) parse(data []byte) *file {
	f := &file{sum: sha256.Sum256(data)}
	if h.last != nil && h.last.sum == f.sum {
		return h.last
	}
	f.manifests, f.problems = decodeAnswer(h.name, data, origin{source: podspec.SourceHTTP, node: h.cfg.NodeName, owner: h.cfg.Owner})
	if f.problems != nil && h.last != nil {
		f.manifests = h.last.manifests
	}
	return f
}

// statusError is an answer without manifests.
type statusError struct {
	code       int
	retryAfter string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the server answered %d %s", e.code, http.StatusText(e.code))
}

// retryAfter returns how long the server asks to be left alone, 0 if it does not. A
// date would be on its clock, not on ours.
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

// withoutURL removes the URL from an error of package http: a Problem has it, and
// without what may be secret in it.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// backOff returns how long to wait after so many failures in a row.
func backOff(fails int, period, asked time.Duration) time.Duration {
	if fails == 0 {
		return period
	}
	wait := backoff.After(fails-1, time.Second, period)
	return max(wait, min(asked, 10*time.Minute))
}
