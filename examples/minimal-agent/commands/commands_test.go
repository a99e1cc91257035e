package commands_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/commands"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // commands print local times
	goleak.VerifyTestMain(m)
}

// program returns a Program that queries the agent at server.
func program(server string, stdout, stderr io.Writer) commands.Program {
	return commands.Program{
		Name: "minimal-agent", Version: "v0.36.0", Stdout: stdout, Stderr: stderr, Clock: testingclock.NewFakeClock(now()),
		Getenv: func(name string) string { return map[string]string{"MINIMAL_AGENT_SERVER": server}[name] },
		Run: func(_ context.Context, args []string) error {
			switch {
			case len(args) > 0 && args[0] == "--bad":
				return commands.Usage(errors.New("flag --bad is bad"))
			case len(args) > 0 && args[0] == "--fail":
				return errors.New("it failed")
			case len(args) > 0 && args[0] == "--help":
				return commands.Usage(flag.ErrHelp)
			}
			_, err := fmt.Fprintln(stdout, "running with", args)
			return err
		},
		RunFlags: func() []string { return []string{"--config", "--listen", "--manifests"} },
		Dump: func(args []string) ([]byte, error) {
			if len(args) > 0 && args[0] == "--bad" {
				return nil, commands.Usage(errors.New("flag --bad is bad"))
			}
			return fmt.Appendf(nil, "kind: KubeletConfiguration # %v\n", args), nil
		},
	}
}

// TestCommands shows the output of each command. Directives: main, terminal (100
// by 20), no-color (a terminal with NO_COLOR set), validate (of files in testdata/manifests), stdin
// (validate standard input).
func TestCommands(t *testing.T) {
	server := serveAgent(t, agentStatus)
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Helper()
		if !strings.HasSuffix(path, ".txt") || strings.Contains(path, "manifests") {
			return
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			var stdout, stderr bytes.Buffer
			p := program(server, &stdout, &stderr)
			args := strings.Fields(d.Input)
			switch d.Cmd {
			case "main":
			case "validate":
				args = append([]string{"validate"}, strings.Fields(strings.ReplaceAll(d.Input, "DIR", "testdata/manifests"))...)
			case "stdin":
				args, p.Stdin = []string{"validate", "-"}, strings.NewReader(d.Input)
			default:
				p.Terminal = func() (int, int, bool) { return 100, 20, true }
			}
			if d.Cmd == "no-color" {
				p.Getenv = func(name string) string {
					return map[string]string{"MINIMAL_AGENT_SERVER": server, "NO_COLOR": "1"}[name]
				}
			}
			code := p.Main(t.Context(), args)
			out := stdout.String()
			for line := range strings.Lines(stderr.String()) {
				out += "stderr: " + line
			}
			out = strings.NewReplacer(server, "SERVER", "\x1b", "ESC").Replace(out)
			return out + fmt.Sprintf("exit %d\n", code)
		})
	})
}

func TestCommands_AgentIsUnreachable(t *testing.T) {
	refuses := func(code int, text string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, code) }))
		t.Cleanup(s.Close)
		return s.URL
	}
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}))
	t.Cleanup(silent.Close)
	for _, c := range []struct {
		server string
		code   int
		want   string
	}{
		{"http://127.0.0.1:1", commands.ExitUnreachable, "no agent responds at http://127.0.0.1:1: check that it is running, or set --server to its address"},
		{silent.URL, commands.ExitUnreachable, "no agent responds"},
		{refuses(http.StatusUnauthorized, "who are you?"), commands.ExitFailed, "401 Unauthorized: who are you? (set --token-file to the file with its token, or --cert-file and --key-file)"},
		{refuses(http.StatusServiceUnavailable, ""), commands.ExitFailed, "503 Service Unavailable"},
		{refuses(http.StatusOK, "<html>"), commands.ExitFailed, "unexpected response"},
		{"example.com", commands.ExitUsage, "want http://HOST:PORT"},
		{"http://x/path", commands.ExitUsage, "want http://HOST:PORT"},
	} {
		for _, command := range []string{"status", "top", "pods", "pods -o json", "logs x", "explain x"} {
			var stdout, stderr bytes.Buffer
			code := program(c.server, &stdout, &stderr).Main(t.Context(), strings.Fields(command))
			require.Equal(t, c.code, code, "%s %s: %s", command, c.server, &stderr)
			require.Contains(t, stderr.String(), c.want)
			require.Equal(t, 1, strings.Count(stderr.String(), "minimal-agent: "))
			require.Empty(t, stdout.String())
		}
	}
}

func TestTop_UnknownCPUIsNotShownAsZero(t *testing.T) {
	server := serveAgent(t, func() api.Status {
		s := agentStatus()
		s.Pods = s.Pods[:2]
		s.Pods[0].Usage = &api.Usage{MemoryBytes: 5 << 20} // sampled once, so it has no rate
		s.Pods[1].Usage = &api.Usage{CPUCores: new(0.0), MemoryBytes: 6 << 20}
		return s
	})
	for _, command := range []string{"top --once", "pods -o wide"} {
		var stdout, stderr bytes.Buffer
		require.Zero(t, program(server, &stdout, &stderr).Main(t.Context(), strings.Fields(command)), &stderr)
		require.Regexp(t, `flaky-node1 .* - +5\.0Mi`, stdout.String())
		require.Regexp(t, `job-node1 .* 0m +6\.0Mi`, stdout.String())
	}
}

func TestTop_RefreshesUntilItIsStopped(t *testing.T) {
	var restarts atomic.Int32
	server := serveAgent(t, func() api.Status {
		s := agentStatus()
		s.Pods[0].Restarts = restarts.Add(1)
		return s
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	p := program(server, w, io.Discard)
	p.Terminal = func() (int, int, bool) { return 60, 12, true }
	clock := testingclock.NewFakeClock(now())
	p.Clock = clock
	code := make(chan int, 1)
	go func() {
		code <- p.Main(ctx, []string{"top", "--interval=5s"})
		_ = w.Close()
	}()
	frames := bufio.NewReader(r)
	frame := func() string {
		text, err := frames.ReadString('J') // the last byte of a frame
		require.NoError(t, err)
		return text
	}
	first := frame()
	require.Contains(t, first, "\x1b[?1049h")
	require.LessOrEqual(t, strings.Count(first, "\n"), 12)
	for line := range strings.Lines(first) {
		require.LessOrEqual(t, len(strings.NewReplacer("\x1b[K", "", "\x1b[33m", "", "\x1b[31m", "", "\x1b[1m", "", "\x1b[0m", "", "\x1b[H", "", "\x1b[?1049h", "", "\x1b[?25l", "").Replace(strings.TrimSpace(line))), 60)
	}
	clock.Step(5 * time.Second)
	second := frame()
	require.NotEqual(t, first, second)
	require.True(t, strings.HasPrefix(second, "\x1b[H"))
	cancel()
	rest, err := io.ReadAll(frames)
	require.NoError(t, err)
	require.Contains(t, string(rest), "\x1b[?1049l")
	require.Equal(t, commands.ExitOK, <-code)
}

func TestTop_WaitsForAnAgentThatDoesNotAnswer(t *testing.T) {
	var broken atomic.Bool
	good := agentStatus()
	data, err := jsonOf(good)
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(data)
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	p := program(server.URL, w, io.Discard)
	p.Terminal = func() (int, int, bool) { return 120, 40, true }
	clock := testingclock.NewFakeClock(now())
	p.Clock = clock
	code := make(chan int, 1)
	go func() {
		code <- p.Main(ctx, []string{"top"})
		_ = w.Close()
	}()
	frames := bufio.NewReader(r)
	for i, want := range []bool{false, true, true, false} {
		if i > 0 {
			broken.Store(want)
			clock.Step(2 * time.Second)
		}
		text, err := frames.ReadString('J')
		require.NoError(t, err)
		require.Equal(t, want, strings.Contains(text, "out of order"), i)
		require.Equal(t, 1, strings.Count(text, "default/web-node1"), "the last response must still be shown")
	}
	cancel()
	_, err = io.ReadAll(frames)
	require.NoError(t, err)
	require.Equal(t, commands.ExitOK, <-code)
}

func TestEvents_WatchEndsWithTheAgent(t *testing.T) {
	server := serveAgent(t, agentStatus)
	var stdout, stderr bytes.Buffer
	require.Equal(t, commands.ExitUnreachable, program(server, &stdout, &stderr).Main(t.Context(), []string{"events", "-w", "-o", "json"}))
	require.Equal(t, 3, strings.Count(stdout.String(), "\n"))
	require.Contains(t, stderr.String(), "the agent ended the stream")

	ctx, cancel := context.WithCancel(t.Context())
	stream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		cancel()
		<-r.Context().Done()
	}))
	t.Cleanup(stream.Close)
	require.Equal(t, commands.ExitOK, program(stream.URL, io.Discard, io.Discard).Main(ctx, []string{"events", "-w"}), "an interrupt by the user must exit with 0")
}

func TestConfigValidate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+text), 0o600))
		return file
	}
	var stdout, stderr bytes.Buffer
	p := program("", &stdout, &stderr)
	good := write("good.yaml", "maxPods: 3\nfailSwapOn: true\n")
	require.Equal(t, commands.ExitOK, p.Main(t.Context(), []string{"config", "validate", good}))
	require.Equal(t, good+": line 4: failSwapOn: ignored: the agent does not check or change these kernel settings\n"+good+" is valid\n", stdout.String())
	require.Empty(t, stderr.String())

	bad := write("bad.yaml", "maxPods: x\nfailSwapOff: true\n")
	require.Equal(t, commands.ExitFailed, p.Main(t.Context(), []string{"config", "validate", bad}))
	require.Equal(t, "minimal-agent: "+bad+": line 3: maxPods: want a whole number, got \"x\"\n  "+bad+": line 4: failSwapOff: unknown field\n", stderr.String())
}

func TestToken_IsReadFromItsFile(t *testing.T) {
	data, err := jsonOf(agentStatus())
	require.NoError(t, err)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cret" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		_, _ = w.Write(data)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.pem")
	require.NoError(t, os.WriteFile(token, []byte("s3cret\n"), 0o600))
	require.NoError(t, os.WriteFile(ca, certificatePEM(server), 0o600))
	var stderr bytes.Buffer
	p := program(server.URL, io.Discard, &stderr)
	require.Equal(t, commands.ExitOK, p.Main(t.Context(), []string{"status", "--token-file", token, "--ca-file", ca}), &stderr)
	require.Equal(t, commands.ExitFailed, p.Main(t.Context(), []string{"status", "--ca-file", ca}))
	require.Equal(t, commands.ExitUnreachable, p.Main(t.Context(), []string{"status", "--token-file", token}), "an untrusted certificate must be an error")
	require.Equal(t, commands.ExitUsage, p.Main(t.Context(), []string{"status", "--ca-file", token}))
	require.Equal(t, commands.ExitUsage, p.Main(t.Context(), []string{"status", "--server", "http://example.com:1", "--token-file", token}))
	require.Contains(t, stderr.String(), "a token is only sent over https")
}

func TestStatus_PrintsProblemsWithManifestsOnce(t *testing.T) {
	server := serveAgent(t, func() api.Status {
		s := agentStatus()
		s.Problems = []string{"a.yaml: bad", "b.yaml: worse"}
		s.Managers = []api.Manager{{Name: "manifests", OK: true, Message: "a.yaml: bad; b.yaml: worse"}, {Name: "logs", OK: true}}
		return s
	})
	var stdout, stderr bytes.Buffer
	p := program(server, &stdout, &stderr)
	require.Equal(t, commands.ExitOK, p.Main(t.Context(), []string{"status"}), &stderr)
	require.Contains(t, stdout.String(), "manifests (2 problems), logs\n")
	require.Equal(t, 1, strings.Count(stdout.String(), "b.yaml: worse"), &stdout)
}
