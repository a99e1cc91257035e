package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// errNotKnownYet is the state of a check that has not run: not known is not the
// same as down.
var errNotKnownYet = errors.New("not known yet")

// check is one thing that /healthz asks.
type check struct {
	name string
	// run returns why the agent is not healthy, nil if it is.
	run func() error
	// notes are lines for ?verbose that make nobody unhealthy.
	notes func() []string
}

// healthHandler answers "ok" when every check passes, else 503 and the failing
// ones. With ?verbose it names every check.
func healthHandler(checks []check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var all, failed strings.Builder
		for _, c := range checks {
			line := fmt.Sprintf("[+]%s ok\n", c.name)
			if err := c.run(); err != nil {
				line = fmt.Sprintf("[-]%s failed: %v\n", c.name, err)
				failed.WriteString(line)
			}
			all.WriteString(line)
			if c.notes == nil {
				continue
			}
			for _, note := range c.notes() {
				fmt.Fprintf(&all, "  %s\n", strings.ReplaceAll(note, "\n", "\n  "))
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		verdict := "ok"
		if failed.Len() > 0 {
			verdict = "not healthy"
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, verbose := r.URL.Query()["verbose"]
		switch {
		case verbose:
			fmt.Fprintf(w, "%shealthz check: %s\n", all.String(), verdict)
		case failed.Len() > 0:
			fmt.Fprint(w, failed.String())
		default:
			fmt.Fprint(w, "ok")
		}
	})
}

// lastError is a check whose state others report.
type lastError struct {
	mu  sync.Mutex
	err error
}

func newLastError() *lastError { return &lastError{err: errNotKnownYet} }

func (l *lastError) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *lastError) get() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
