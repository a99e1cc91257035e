package hooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A diary is the environment of a hook on one side, and a record of its results.
type diary struct {
	w     *world
	began time.Time
	facts judge.Facts
	asked int
}

func newDiary(w *world) *diary {
	return &diary{w: w, began: time.Now(), facts: judge.Facts{}}
}

// add adds a line to a fact.
func (r *diary) add(name, value string) {
	r.facts[name] = strings.TrimPrefix(r.facts[name]+"\n"+value, "\n")
}

// Do responds to a request as an HTTP client would.
func (r *diary) Do(req *http.Request) (*http.Response, error) {
	name := fmt.Sprintf("request %d", r.asked)
	r.add(name, fmt.Sprintf("%s %s host %q", req.Method, req.URL, cmp.Or(req.Host, req.URL.Host)))
	r.add(name+"/headers", headers(req.Header, slices.Sorted(maps.Keys(req.Header))))
	a := r.w.Answers[min(r.asked, len(r.w.Answers)-1)]
	r.asked++
	var err error
	switch {
	case a.Plain && req.URL.Scheme == "https":
		err = http.ErrSchemeMismatch
	case a.Error != "":
		err = errors.New(a.Error)
	default:
		b := &body{r: r, left: a.Body, broken: a.Broken}
		r.facts["closed "+name] = "no"
		b.close = func() { r.facts["closed "+name] = "yes" }
		b.read = func(n int) { r.facts["read "+name] = fmt.Sprint(n) }
		return &http.Response{StatusCode: a.Status, ContentLength: a.Length, Body: b}, nil
	}
	return nil, &url.Error{Op: "Get", URL: req.URL.String(), Err: err}
}

// A body counts the bytes that are read from it.
type body struct {
	r         *diary
	left, all int
	broken    bool
	close     func()
	read      func(all int)
}

func (b *body) Read(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.all += n
	b.read(b.all)
	switch {
	case b.left > 0:
		return n, nil
	case b.broken:
		return n, io.ErrUnexpectedEOF
	default:
		return n, io.EOF
	}
}

func (b *body) Close() error {
	b.close()
	return nil
}

// exec returns the result of the command.
func (r *diary) exec(command []string) ([]byte, error) {
	r.add("exec", fmt.Sprintf("%q", command))
	if r.w.Error != "" {
		return []byte(r.w.Output), errors.New(r.w.Error)
	}
	return []byte(r.w.Output), nil
}

func (r *diary) over(failed bool, message string) []judge.Facts {
	r.facts["failed"] = fmt.Sprint(failed)
	r.facts["message"] = message
	r.facts["took"] = time.Since(r.began).String()
	return []judge.Facts{r.facts}
}

// until returns a ctx that is cancelled at the time that the world defines.
func (w *world) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if w.Cancelled == 0 {
		return ctx, cancel
	}
	timer := time.AfterFunc(w.Cancelled, cancel)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}
