package server_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/server"
)

func TestHealthEndpointsAnswerInTheKubeletsForm(t *testing.T) {
	t.Parallel()
	good := server.Check{Name: "good", Run: func() error { return nil }, Notes: func() []string { return []string{"one\ntwo"} }}
	bad := server.Check{Name: "bad", Run: func() error { return errors.New("it hurts") }}
	slow := bad
	slow.Patient = func() error { return nil }
	ready := bad
	ready.ReadyOnly = true
	const ok, failed = http.StatusOK, http.StatusServiceUnavailable
	for _, c := range []struct {
		path   string
		checks []server.Check
		code   int
		body   string
	}{
		{"/healthz", nil, ok, "ok"},
		{"/healthz", []server.Check{good}, ok, "ok"},
		{"/healthz?exclude=godo&verbose", []server.Check{good}, ok, "[+]ping ok\n[+]good ok\n  one\n  two\n[?]\"godo\" is not there to be excluded\nhealthz check passed\n"},
		{"/healthz?exclude=godo", []server.Check{bad}, failed, "[-]bad failed: it hurts\n"},
		{"/healthz?verbose", []server.Check{good}, ok, "[+]ping ok\n[+]good ok\n  one\n  two\nhealthz check passed\n"},
		{"/healthz", []server.Check{good, bad}, failed, "[-]bad failed: it hurts\n"},
		{"/readyz?verbose=1", []server.Check{bad, good}, failed, "[+]ping ok\n[-]bad failed: it hurts\n[+]good ok\n  one\n  two\nreadyz check failed\n"},
		{"/readyz?verbose&exclude=bad", []server.Check{bad}, ok, "[+]ping ok\n[+]bad excluded: ok\nreadyz check passed\n"},
		{"/livez", []server.Check{bad}, ok, "ok"},
		{"/livez?verbose", []server.Check{bad}, ok, "[+]ping ok\nlivez check passed\n"},
		{"/healthz", []server.Check{slow}, ok, "ok"},
		{"/readyz", []server.Check{slow}, failed, "[-]bad failed: it hurts\n"},
		{"/healthz", []server.Check{ready}, ok, "ok"},
		{"/readyz", []server.Check{ready}, failed, "[-]bad failed: it hurts\n"},
	} {
		code, body := ask(t, server.Config{Checks: c.checks}, c.path)
		require.Equal(t, c.code, code, c.path)
		require.Equal(t, c.body, body, c.path)
	}
}
