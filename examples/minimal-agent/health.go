package main

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// errNotKnownYet is the state of a check that has not run: not known is not the
// same as down.
var errNotKnownYet = errors.New("not known yet")

// lastError is a check whose state others report.
type lastError struct {
	mu    sync.Mutex
	err   error
	since time.Time // of the first of the same kind: an error or none
}

func newLastError() *lastError { return &lastError{err: errNotKnownYet, since: time.Now()} }

func (l *lastError) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if (err == nil) != (l.err == nil) || errors.Is(l.err, errNotKnownYet) {
		l.since = time.Now()
	}
	l.err = err
}

func (l *lastError) get() error {
	_, err := l.whole()
	return err
}

// whole returns the error, and since when there is one, or none.
func (l *lastError) whole() (time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since, l.err
}

// alive is the check of a part that runs as long as the agent does: when one ends,
// all do.
func alive() error { return nil }

// passes are how the last passes of parts ended that work in passes. One that failed is
// told and makes nobody unhealthy: there is another one soon.
type passes struct {
	mu     sync.Mutex
	failed map[string]error
}

func (p *passes) ended(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = map[string]error{}
	}
	p.failed[name] = err
}

// notes returns what there is to say about a part.
func (p *passes) notes(name string) func() []string {
	return func() []string {
		p.mu.Lock()
		defer p.mu.Unlock()
		if err := p.failed[name]; err != nil {
			return []string{"the last pass failed: " + err.Error()}
		}
		return nil
	}
}

func (a *agent) plegNotes() []string {
	s := a.pleg.Stats()
	hints := "no events of the runtime"
	if s.Streaming {
		hints = "events of the runtime"
	}
	return []string{fmt.Sprintf("looks every %v, %s", s.Period, hints)}
}

func (a *agent) evictionNotes() (notes []string) {
	a.state.mu.Lock()
	defer a.state.mu.Unlock()
	for _, c := range a.state.decision.Conditions {
		notes = append(notes, string(c))
	}
	if a.state.missing != nil {
		notes = append(notes, "some figures are missing: "+a.state.missing.Error())
	}
	return notes
}

func (a *agent) oomNotes() (notes []string) {
	if a.oom == nil {
		return []string{"not with the embedded runtime"}
	}
	for _, s := range a.oom.Sources() {
		if s.Err != nil {
			notes = append(notes, fmt.Sprintf("%s: %v", s.Name, s.Err))
		}
	}
	return notes
}
