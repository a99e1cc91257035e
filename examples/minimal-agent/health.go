package main

import (
	"errors"
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
