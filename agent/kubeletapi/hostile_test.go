package kubeletapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/eventlog"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/internal/printable"
)

const hostile = "x\n[+]forged ok\r\x1b[2J\u009b31m\u202e\u2028y\u2029\x00\xffz"

func TestResponses_HostileTextCannotStartALine(t *testing.T) {
	t.Parallel()
	bad := errors.New(hostile)
	p := podOf("p", agent.Admitted, "c")
	p.Spec.Status.Message = hostile
	p.Spec.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: hostile}}}}
	f := &fake{
		node:   nodeNamed("n", corev1.ConditionTrue),
		pods:   []agent.Pod{p, podOf("bad", agent.Admitted)},
		health: []agent.Check{{Name: "late", Err: bad}, {Name: "stuck", Err: bad, Fatal: true}},
		explain: func(uid types.UID) (agent.Explanation, error) {
			if uid == "bad" {
				return agent.Explanation{}, bad
			}
			return agent.Explanation{Pod: p, Why: []string{hostile}, Next: []agent.Step{{What: hostile}}, Plan: hostile, Rank: hostile}, nil
		},
		plan: func(context.Context) (agent.Plan, error) {
			return agent.Plan{Eviction: eviction.Decision{At: at, Conditions: []corev1.NodeConditionType{hostile}}}, bad
		},
	}
	cfg := kubeletapi.Config{
		Agent: f, PodLogs: t.TempDir(),
		Checks: []kubeletapi.Check{
			{Name: "bad", Run: func() error { return bad }},
			{Name: "good", Run: func() error { return nil }, Notes: func() []string { return []string{hostile} }},
		},
		Problems: func() []kubeletapi.Problem { return []kubeletapi.Problem{{File: "p.yaml", Err: bad}} },
	}
	for path, begins := range map[string][]string{
		"/healthz":                          {"[-]stuck failed: x", "[-]bad failed: x", "  "},
		"/healthz?verbose":                  {"[+]ping ok", "[+]late ok", "[-]stuck failed: x", "[-]bad failed: x", "[+]good ok", "  ", "healthz check failed"},
		"/healthz?verbose&exclude=%0a[%2b]": {"[+]", "[-]", "[?]\"\\n[+]\" is not", "  ", "healthz check failed"},
		"/readyz?verbose":                   {"[+]ping ok", "[-]late failed: x", "[-]stuck failed: x", "[-]bad failed: x", "[+]good ok", "  ", "readyz check failed"},
		"/agent/explain/ns/p?output=text":   {"ns/p is x", "Why:", "Next:", "Plan:", "Eviction:", "  "},
		"/agent/explain/ns/bad":             {"x", "  "},
		"/agent/explain/ns/%0ax":            {"pod \"\\nx\" not found"},
		"/agent/plan/eviction?output=text":  {"condition x", "no pod needs to be evicted now"},
		"/agent/plan/gc?output=text":        {"x", "  "},
		"/containerLogs/ns/p/c":             {"container \"c\" in pod \"p\" is waiting to start: x", "  "},
		"/containerLogs/ns/p/%0ax":          {"container \"\\nx\" not found"},
		"/agent/explain/ns/p?output=%0a%1b": {"output="},
	} {
		_, body := ask(t, cfg, path)
		require.NotEmpty(t, body, path)
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

// logged sends each line of a log.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// By default, net/http logs a panic like a disconnected client.
func TestServer_LogsPanicsAsErrors(t *testing.T) {
	t.Parallel()
	lines := make(logged, 8)
	url, _ := run(t, kubeletapi.Config{
		Agent:  &fake{plan: func(context.Context) (agent.Plan, error) { panic("boom") }},
		Logger: slog.New(slog.NewTextHandler(lines, nil)),
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/agent/plan/eviction", nil)
	require.NoError(t, err)
	_, err = http.DefaultClient.Do(r)
	require.ErrorIs(t, err, io.EOF)
	line := <-lines
	require.Contains(t, line, `level=ERROR msg="http: panic serving 127.0.0.1:`)
	require.Contains(t, line, "boom")
}

func TestResponses_HostileTextIsEscapedInJSON(t *testing.T) {
	t.Parallel()
	const want = "x\n[+]forged ok\r\x1b[2J\u009b31m\u202e\u2028y\u2029\x00\ufffdz"
	log := eventlog.New(eventlog.Config{})
	log.Add(api.Event{Message: hostile})
	cfg := kubeletapi.Config{
		Problems: func() []kubeletapi.Problem { return []kubeletapi.Problem{{File: "f", Err: errors.New(hostile)}} },
		Events:   log,
	}
	_, body := ask(t, cfg, "/agent/status")
	require.Equal(t, 1, strings.Count(body, "\n"))
	var s api.Status
	require.NoError(t, json.Unmarshal([]byte(body), &s))
	require.Equal(t, []string{"f: " + want}, s.Problems)
	_, body = ask(t, cfg, "/agent/events")
	require.Equal(t, 1, strings.Count(body, "\n"))
	var e api.Event
	require.NoError(t, json.Unmarshal([]byte(body), &e))
	require.Equal(t, want, e.Message)
}
