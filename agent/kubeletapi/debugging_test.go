package kubeletapi_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// withToken adds a token to a configuration.
func withToken(t *testing.T, cfg kubeletapi.Config) kubeletapi.Config {
	t.Helper()
	cfg.Access.TokenFile = filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(cfg.Access.TokenFile, []byte("secret"), 0o600))
	return withAgent(cfg)
}

func TestConfig_DebuggingNeedsUsers(t *testing.T) {
	t.Parallel()
	cfg := kubeletapi.Config{
		Agent: &fake{}, Checkpoints: checkpointer{}, SystemLogs: "/var/log", LogLevel: new(slog.LevelVar),
	}
	_, err := kubeletapi.New(cfg)
	for _, want := range []string{
		"field Checkpoints: requires Access.TokenFile", "field SystemLogs: requires Access.TokenFile", "field LogLevel: requires Access.TokenFile",
		"fields Checkpoints and CheckpointDir: both must be set, or neither",
	} {
		require.ErrorContains(t, err, want)
	}
	cfg.CheckpointDir = t.TempDir()
	_, err = kubeletapi.New(withToken(t, cfg))
	require.NoError(t, err)
	_, err = kubeletapi.New(kubeletapi.Config{Agent: &fake{}, Journal: fakeJournal})
	require.ErrorContains(t, err, "field Journal: requires SystemLogs")
}

func TestDebugFlags_SetTheLevel(t *testing.T) {
	t.Parallel()
	level := new(slog.LevelVar)
	s, err := kubeletapi.New(withToken(t, kubeletapi.Config{LogLevel: level}))
	require.NoError(t, err)
	for body, want := range map[string]slog.Level{"4": slog.LevelDebug, "0": slog.LevelInfo, "2\n": slog.LevelInfo - 2} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/debug/flags/v", strings.NewReader(body)))
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "successfully set klog.logging.verbosity to "+strings.TrimSpace(body)+"\n", w.Body.String())
		require.Equal(t, want, level.Level())
	}
}

func TestCheckpoint_FolderThatCannotBeCreated(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	b := newStreamBed(t, &streamRuntime{}, func(c *kubeletapi.Config) {
		c.Checkpoints, c.CheckpointDir = checkpointer{}, filepath.Join(file, "checkpoints")
		c.Agent.(*fake).pods[0].Spec.Spec = podOf("p", agent.Admitted, "c", "d").Spec.Spec
	})
	code, body := b.post("/checkpoint/ns/p/c")
	require.Equal(t, http.StatusInternalServerError, code)
	require.Contains(t, body, "checkpointing of ns/p/c failed (mkdir ")
	code, body = b.post("/checkpoint/ns/p/d")
	require.Equal(t, http.StatusInternalServerError, code)
	require.Equal(t, "checkpointing of ns/p/d failed (container d not found)\n", body, "checkpointing of an exited container must fail")
}

// post sends a POST request with the token.
func (b *streamBed) post(path string) (code int, body string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.url+path, http.NoBody)
	require.NoError(b.t, err)
	r.Header.Set("Authorization", "Bearer secret")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(b.t, err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	require.NoError(b.t, err)
	return answer.StatusCode, string(data)
}

func TestSystemLogs_MissingFolder(t *testing.T) {
	t.Parallel()
	cfg := withToken(t, kubeletapi.Config{SystemLogs: filepath.Join(t.TempDir(), "missing"), Journal: fakeJournal})
	code, body := ask(t, cfg, "/logs/")
	require.Equal(t, http.StatusInternalServerError, code)
	require.Contains(t, body, "missing: no such file or directory")
	_, body = ask(t, cfg, "/logs/?query=dns")
	require.Equal(t, "\nlog not found for dns\n", body)
}

func TestSystemLogs_WithoutJournal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "dns"), 0o750))
	for name, text := range map[string]string{"web": "web\n", "dns/dns.log": "dns\n", "index.html": "page"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "escape")))
	cfg := withToken(t, kubeletapi.Config{SystemLogs: dir, Journal: func(context.Context, io.Writer, ...string) error { return errors.New("no journal") }})
	_, body := ask(t, cfg, "/logs/?query=web&query=dns&query=escape")
	require.Contains(t, body, "web\ndns\n\nerror getting log for escape: ")
	require.NotContains(t, body, "root:")
	_, body = ask(t, cfg, "/logs/?query=../../etc/passwd")
	require.NotContains(t, body, "root:")
	_, body = ask(t, cfg, "/logs/")
	require.Equal(t, "page", body, "the response must be the kubelet's")

	cfg.Journal = nil
	_, body = ask(t, cfg, "/logs/web?query=dns")
	require.Equal(t, "web\n", body, "the query must be ignored")
}

func TestSystemLogs_JournalThatFails(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	cfg := withToken(t, kubeletapi.Config{
		SystemLogs: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Journal: func(_ context.Context, w io.Writer, args ...string) error {
			if args[0] != "--field" {
				return errors.New("broken")
			}
			_, err := io.WriteString(w, "web.service")
			return err
		},
	})
	_, body := ask(t, cfg, "/logs/?query=web")
	require.Equal(t, "\nerror: journal output not available\n", body)
	require.Contains(t, log.String(), "broken")
}
