package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-agent", "a=/x", "-agent", "b=/y", "-pods", "3,4", "-for", "2s", "-rounds", "5", "-run", "churn"})
	require.NoError(t, err)
	require.Equal(t, []program{{"a", "/x"}, {"b", "/y"}}, o.agents)
	require.Equal(t, []int{3, 4}, o.pods)
	require.Equal(t, 2*time.Second, o.length)
	require.Equal(t, 5, o.rounds)

	_, err = parse([]string{"-pods", "0,x", "-run", "(", "-rounds", "0"})
	for _, want := range []string{`-pods: "0": want 1 to 1000`, `-pods: "x"`, "-run: error parsing regexp", "-rounds of at least 1"} {
		require.ErrorContains(t, err, want)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	run := func(cpu, delay float64) figures {
		return figures{cpu: cpu, calls: map[string]float64{"Status": 2}, delays: []float64{delay, delay + 1, delay + 2}}
	}
	text := table("churn", []program{{"before", ""}, {"after", ""}}, [][]figures{{run(4, 10), run(5, 10), run(9, 10)}, {run(2, 20), run(2.5, 20), run(3, 20)}})
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	require.Contains(t, lines, "CPU, s a minute 5 4–9 2.5 2–3 -50 %")
	require.Contains(t, lines, "Status 2 2–2 2 2–2 +0 %")
	require.Contains(t, lines, "manifest to status, median, ms 11 11–11 21 21–21 +91 %")
	require.NotContains(t, table("idle", []program{{"a", ""}}, [][]figures{{{}}}), "manifest")
}

func TestDelays(t *testing.T) {
	t.Parallel()
	at := func(pod string, ms int) change {
		return change{pod, time.UnixMilli(int64(ms))}
	}
	written := []change{at("a", 0), at("b", 10), at("a", 200), at("c", 300)}
	require.Equal(t, []float64{50, 90, 5}, delays(written, []change{at("a", 50), at("b", 100), at("a", 205)}))
}

func TestReadyLine(t *testing.T) {
	t.Parallel()
	for line, pod := range map[string]string{
		"20:51:02.118 default/p001-n Pending -> Running ready=1/1 restarts=0 ip=127.88.0.2": "p001",
		"20:51:02.118 default/p001-n Running ready=1/1 restarts=0 ip=127.88.0.2":            "p001",
		"20:51:02.118 default/p001-n Running ready=0/1 restarts=0 ip=127.88.0.2":            "",
		"20:51:02.118 default/p001-n removed":                                               "",
	} {
		found := ready.FindStringSubmatch(line)
		require.Equal(t, pod != "", found != nil, line)
		if found != nil {
			require.Equal(t, pod, found[1])
		}
	}
}

// TestServeRuntime_ReportsCallCounts serves the runtime in this process.
func TestServeRuntime_ReportsCallCounts(t *testing.T) {
	t.Parallel()
	in, lines := io.Pipe()
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- serveRuntime(t.Context(), filepath.Join(t.TempDir(), "s"), false, in, &out) }()
	_, err := io.WriteString(lines, "calls\n")
	require.NoError(t, err)
	require.NoError(t, lines.Close())
	require.NoError(t, <-done)
	require.JSONEq(t, "{}", out.String())
}
