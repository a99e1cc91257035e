package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/api"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/eventlog"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/server"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/server/podlogs"
	"github.com/kubeparts/kubeparts/internal/printable"
)

const hostile = "x\n[+]forged ok\r\x1b[2J\u009b31m\u202e\u2028y\u2029\x00\xffz"

func TestHostileTextBeginsNoLineOfAPage(t *testing.T) {
	t.Parallel()
	bad := errors.New(hostile)
	noPlan := func(context.Context) (server.Plan, error) { return nil, bad }
	cfg := server.Config{
		Checks: []server.Check{
			{Name: "bad", Run: func() error { return bad }},
			{Name: "good", Run: func() error { return nil }, Notes: func() []string { return []string{hostile} }},
		},
		Explain: func(_ context.Context, _, name string) (api.Explanation, error) {
			if name == "none" {
				return api.Explanation{}, &server.StatusError{Code: http.StatusNotFound, Message: hostile}
			}
			return api.Explanation{Pod: api.Pod{Name: hostile}, Why: []string{hostile}}, nil
		},
		EvictionPlan: func(context.Context) (server.Plan, error) {
			return plan{strings.ReplaceAll(hostile, "\n", " ")}, nil
		},
		GCPlan: noPlan,
		Logs: func(context.Context, string, string, string, bool) (podlogs.Source, error) {
			return podlogs.Source{}, bad
		},
	}
	for path, begins := range map[string][]string{
		"/healthz":                    {"[-]bad failed: x", "  "},
		"/readyz?verbose":             {"[+]ping ok", "[-]bad failed: x", "[+]good ok", "  ", "readyz check failed"},
		"/explain/ns/p?output=text":   {"/x", "Why:", "  "},
		"/explain/ns/none":            {"x", "  "},
		"/plan/eviction?output=text":  {"go: x"},
		"/plan/gc?output=text":        {"x", "  "},
		"/logs/ns/p/c":                {"x", "  "},
		"/explain/ns/p?output=%0a%1b": {"output="},
	} {
		_, body := ask(t, cfg, path)
		require.Equal(t, printable.Lines(body, ""), body, path)
		for line := range strings.Lines(body) {
			known := false
			for _, begin := range begins {
				known = known || strings.HasPrefix(line, begin)
			}
			require.True(t, known, "%s: %q", path, line)
		}
	}
}

func TestHostileTextStaysInItsJSON(t *testing.T) {
	t.Parallel()
	const want = "x\n[+]forged ok\r\x1b[2J\u009b31m\u202e\u2028y\u2029\x00\ufffdz"
	log := eventlog.New(eventlog.Config{})
	log.Add(api.Event{Message: hostile})
	cfg := server.Config{
		Status: func(context.Context) api.Status { return api.Status{Problems: []string{hostile}} },
		Events: log,
	}
	_, body := ask(t, cfg, "/status")
	require.Equal(t, 1, strings.Count(body, "\n"))
	var s api.Status
	require.NoError(t, json.Unmarshal([]byte(body), &s))
	require.Equal(t, []string{want}, s.Problems)
	_, body = ask(t, cfg, "/events")
	require.Equal(t, 1, strings.Count(body, "\n"))
	var e api.Event
	require.NoError(t, json.Unmarshal([]byte(body), &e))
	require.Equal(t, want, e.Message)
}
