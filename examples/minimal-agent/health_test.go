package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHealthz(t *testing.T) {
	t.Parallel()
	good := check{name: "good", run: func() error { return nil }, notes: func() []string { return []string{"one\ntwo"} }}
	bad := check{name: "bad", run: func() error { return errors.New("it hurts") }}
	for _, c := range []struct {
		path   string
		checks []check
		code   int
		body   string
	}{
		{"/healthz", []check{good}, http.StatusOK, "ok"},
		{"/healthz?verbose", []check{good}, http.StatusOK, "[+]good ok\n  one\n  two\nhealthz check: ok\n"},
		{"/healthz", []check{good, bad}, http.StatusServiceUnavailable, "[-]bad failed: it hurts\n"},
		{"/healthz?verbose=1", []check{bad, good}, http.StatusServiceUnavailable, "[-]bad failed: it hurts\n[+]good ok\n  one\n  two\nhealthz check: not healthy\n"},
	} {
		w := httptest.NewRecorder()
		healthHandler(c.checks).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil))
		require.Equal(t, c.code, w.Code, c.path)
		require.Equal(t, c.body, w.Body.String(), c.path)
	}
}

func TestLastErrorIsNotKnownAtFirst(t *testing.T) {
	t.Parallel()
	l := newLastError()
	require.ErrorIs(t, l.get(), errNotKnownYet)
	l.set(nil)
	require.NoError(t, l.get())
}
