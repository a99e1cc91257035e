package commands_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/internal/printable"
)

const hostile = "x\nforged line\r\x1b[2J\u009b31m\u202e\u2028y\u2029\x00\xffz"

// hostileAgent serves responses with hostile text in every field.
func hostileAgent(t *testing.T) string {
	t.Helper()
	event := api.Event{Number: 1, Time: now(), Type: "Warning", Reason: hostile, Message: hostile, Kind: "Pod", Namespace: hostile, Name: hostile, Count: 2}
	pod := api.Pod{
		Namespace: hostile, Name: hostile, State: hostile, Phase: hostile, Message: hostile, IP: hostile, Events: []api.Event{event},
		Containers: []api.Container{{Name: hostile, Kind: "main", Image: hostile}, {Name: "two", Kind: "main"}},
	}
	s := agentStatus()
	s.Agent.Name, s.Agent.Version, s.Runtime.Name, s.Runtime.Version, s.Runtime.Endpoint = hostile, hostile, hostile, hostile, hostile
	s.Node.Name = hostile
	s.Node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Message: hostile}, {Type: hostile, Status: corev1.ConditionTrue}}
	s.Managers = []api.Manager{{Name: hostile, Message: hostile}, {Name: hostile, OK: true, Message: hostile}}
	s.Signals = []api.Signal{{Name: hostile}, {Name: hostile, Time: new(now()), Capacity: 1, Thresholds: []api.Threshold{{Text: hostile}}}}
	s.Pods, s.Problems = []api.Pod{pod, pod}, []string{hostile}
	s.Pods[1].Name = "other"
	answers := map[string]any{"/agent/status": s, "/agent/events": event}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case answers[path] != nil:
			_ = json.NewEncoder(w).Encode(answers[path])
		case strings.HasPrefix(path, "/agent/explain/"):
			_ = json.NewEncoder(w).Encode(api.Explanation{Pod: pod, Why: []string{hostile}, Next: []api.Step{{What: hostile}}, Plan: "wait", EvictionOrder: "never"})
		case path == "/agent/plan/gc":
			_, _ = w.Write([]byte(strings.ReplaceAll("keep "+hostile, "\n", " ")))
		default:
			http.Error(w, hostile, http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestCommands_HostileTextForgesNoLine(t *testing.T) {
	server := hostileAgent(t)
	for _, command := range []string{
		"status", "status -o wide", "top --once", "pods", "pods -o wide", "events", "events -w", "explain other", "gc --dry-run",
		"evict --dry-run", "logs other -c two", "logs other -c three", "logs other", "pods -o json other", "explain o/p/q", "pods x", "logs nothing",
		"__complete explain o", "__complete pods x",
	} {
		var stdout, stderr bytes.Buffer
		program(server, &stdout, &stderr).Main(t.Context(), strings.Fields(command))
		out := stdout.String() + stderr.String()
		require.NotEmpty(t, out, command)
		require.Equal(t, printable.Lines(out, ""), out, command)
		for line := range strings.Lines(out) {
			require.False(t, strings.HasPrefix(line, "forged"), "%s: %q", command, line)
		}
	}
}
