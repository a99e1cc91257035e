package kubeletapi_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/fakecri"
)

// goldenBed is an agent with one pod on an in-memory runtime, in a bubble that starts on
// 1 January 2000.
type goldenBed struct {
	*agent.Agent

	dir  string // directory of all files of the bed
	node *fakecri.Node
}

// startGolden runs a pod for ten seconds. The caller calls stop at the end.
func startGolden(t *testing.T, dir string) (b goldenBed, stop func()) {
	t.Helper()
	node, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms()})
	require.NoError(t, err)
	web := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "demo/web:1"}}}}
	web.Namespace, web.Name, web.UID = "default", "web", "1"
	a, err := agent.New(agent.Config{
		Name: "golden", NodeName: "node1", Runtime: node, Host: fakehost.New(node), PodLogs: filepath.Join(dir, "pods"),
		Sources: []agent.Source{{Name: "mine", Run: func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
			set(ctx, []*corev1.Pod{web})
			<-ctx.Done()
			return nil
		}}},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	time.Sleep(10 * time.Second)
	synctest.Wait()
	return goldenBed{Agent: a, dir: dir, node: node}, func() { cancel(); running.Wait() }
}

// config returns one of the configurations of the golden file.
func (b goldenBed) config(t *testing.T, name string) kubeletapi.Config {
	t.Helper()
	token := filepath.Join(b.dir, "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	started := time.Now().Add(-90 * time.Minute)
	cfg := kubeletapi.Config{
		Agent: b, PodLogs: filepath.Join(b.dir, "pods"), Access: kubeletapi.Access{TokenFile: token},
		Info:    func() api.Agent { return api.Agent{Name: "golden", Version: "v1.2.3", Started: started} },
		Configz: func() map[string]any { return map[string]any{"kubeletconfig": map[string]int{"port": 10250}} },
		Metrics: page("metrics"), ProbeMetrics: page("probes"), ResourceMetrics: page("resources"), SLIMetrics: page("slis"),
		Flags: func() map[string]string {
			return map[string]string{"port": "10250", "manifest-url-header": "CLASSIFIED", "a": "b\nc"}
		},
	}
	switch name {
	case "off": // all optional features are off
	case "no-debugging":
		cfg.NoDebugging = true
		fallthrough
	case "on":
		cfg.Pprof, cfg.LogLevel = true, new(slog.LevelVar)
		cfg.Checkpoints, cfg.CheckpointDir = b.node, filepath.Join(b.dir, "checkpoints")
		cfg.SystemLogs, cfg.Journal = filepath.Join(b.dir, "log"), fakeJournal
	case "checkpoints":
		cfg.Checkpoints, cfg.CheckpointDir = checkpointer{}, filepath.Join(b.dir, "checkpoints")
	default:
		require.Fail(t, "unknown config", name)
	}
	return cfg
}

// checkpointer is a runtime that can write checkpoints.
type checkpointer struct{}

// fakeJournal is a journalctl with the service web.service.
func fakeJournal(_ context.Context, w io.Writer, args ...string) error {
	text := "journalctl " + strings.Join(args, " ")
	if args[0] == "--field" {
		text = "web.service\nother.service"
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// TestEndpoints_Golden checks the responses of the kubelet's paths. A command is a method; its
// argument selects a configuration. The first line of its input is the path, and the other lines
// are headers, an empty line and the body.
func TestEndpoints_Golden(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "log", "web"), 0o750))
	for name, text := range map[string]string{"secret": "secret", "log/boot.log": "booted\n", "log/web/access.log": "GET /\n", "log/dns.log": "resolved\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink("../secret", filepath.Join(dir, "log", "escape.log")))
	require.NoError(t, os.Symlink("boot.log", filepath.Join(dir, "log", "inside.log")))
	datadriven.RunTest(t, "testdata/endpoints", func(t *testing.T, d *datadriven.TestData) (out string) {
		t.Helper()
		var name string
		d.ScanArgs(t, "config", &name)
		synctest.Test(t, func(t *testing.T) {
			b, stop := startGolden(t, dir)
			defer stop()
			out = b.request(t, b.config(t, name), d.Cmd, d.Input)
		})
		return strings.NewReplacer(dir, "DIR", runtime.Version(), "GO").Replace(out)
	})
}

func (b goldenBed) request(t *testing.T, cfg kubeletapi.Config, method, input string) string {
	t.Helper()
	head, body, _ := strings.Cut(input, "\n\n")
	lines := strings.Split(head, "\n")
	s, err := kubeletapi.New(cfg)
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), method, lines[0], strings.NewReader(body))
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	text := w.Body.String()
	if kind := w.Header().Get("Content-Type"); strings.HasPrefix(kind, "application/json") || len(text) > 2000 {
		text = shortened(text)
	}
	kind := strings.Replace(w.Header().Get("Content-Type"), "text/x-log", "text/plain", 1) // the type depends on the machine's MIME table
	for _, header := range []string{"Location", "Warning"} {
		if value := w.Header().Get(header); value != "" {
			text = header + ": " + value + "\n" + text
		}
	}
	return fmt.Sprintf("%d %s\n%s", w.Code, kind, text)
}

// shortened returns the beginning of a long text. Random and measured values are replaced.
func shortened(text string) string {
	text = regexp.MustCompile(`"(usage\w+|\w+Bytes|\w*[iI]nodes\w*|rlimit|maxpid|curproc|\w*NanoSeconds)":\d+`).ReplaceAllString(text, `"$1":N`)
	if len(text) > 400 {
		text = text[:400] + "…\n"
	}
	return text
}

// CheckpointContainer implements [kubeletapi.Checkpointer].
func (checkpointer) CheckpointContainer(_ context.Context, r *runtimeapi.CheckpointContainerRequest) error {
	if r.GetContainerId() == "" || r.GetTimeout() != 7 {
		return fmt.Errorf("unexpected request: %v", r)
	}
	return nil
}
