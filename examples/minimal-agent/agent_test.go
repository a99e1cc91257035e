package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletconfig"
	"github.com/kubeparts/kubeparts/internal/filelock"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Most tests wait for real time, so many of them can run in parallel.
	if err := flag.Set("test.parallel", "5"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// running is an agent in this process, on the embedded runtime.
type running struct {
	url  string
	stop func() error

	mu     sync.Mutex
	stdout []string
	stderr strings.Builder
}

// start runs the agent with args until the test ends or stop is called. An agent on a runtime
// behind a socket measures this machine. The result must not depend on the machine's free space.
// Therefore such an agent gets very low eviction thresholds, unless args set other thresholds.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	if slices.Contains(args, "--cri-endpoint") && !slices.Contains(args, "--eviction-hard") {
		args = append(slices.Clone(args), "--eviction-hard", "memory.available<1Mi,nodefs.available<1Mi,imagefs.available<1Mi")
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{}
	stdout, w := io.Pipe()
	done, served := make(chan error, 1), make(chan string, 1)
	go func() {
		err := run(ctx, append([]string{"--listen", "127.0.0.1:0", "--node-name", "node1"}, args...), w, r)
		_ = w.Close()
		done <- err
	}()
	var lines sync.WaitGroup
	lines.Go(func() {
		for s := bufio.NewScanner(stdout); s.Scan(); {
			r.mu.Lock()
			r.stdout = append(r.stdout, s.Text())
			r.mu.Unlock()
			if rest, ok := strings.CutPrefix(s.Text(), "listening on "); ok {
				served <- rest
			}
		}
	})
	r.stop = sync.OnceValue(func() error {
		cancel()
		err := <-done
		lines.Wait()
		http.DefaultClient.CloseIdleConnections()
		return err
	})
	t.Cleanup(func() { _ = r.stop() })
	select {
	case r.url = <-served:
	case err := <-done:
		done <- err
		require.NoError(t, err, "the agent did not start")
	}
	return r
}

func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stderr.Write(p)
}

func (r *running) printed() (stdout []string, stderr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.stdout...), r.stderr.String()
}

func (r *running) get(t *testing.T, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+path, nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

func (r *running) pods(t *testing.T) map[string]corev1.Pod {
	t.Helper()
	code, body := r.get(t, "/pods")
	require.Equal(t, http.StatusOK, code)
	var list corev1.PodList
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	require.Equal(t, "PodList", list.Kind)
	pods := map[string]corev1.Pod{}
	for _, p := range list.Items {
		pods[p.Name] = p
	}
	return pods
}

// await polls cond until cond returns true. The agent runs in real time over a
// real socket, so the test can only poll its output.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick, end := time.NewTicker(20*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("condition is still false: %s", what)
		}
	}
}

func phases(pods map[string]corev1.Pod) map[string]corev1.PodPhase {
	out := map[string]corev1.PodPhase{}
	for name, p := range pods {
		out[name] = p.Status.Phase
	}
	return out
}

func TestEmbeddedRuntime_RunsTheSamplePods(t *testing.T) {
	t.Parallel()
	began := time.Now()
	a := start(t)
	want := map[string]corev1.PodPhase{"web-node1": "Running", "steps-node1": "Running", "flaky-node1": "Running"}
	await(t, "all sample pods run", func() bool {
		got := phases(a.pods(t))
		for name, phase := range want {
			if got[name] != phase {
				return false
			}
		}
		return true
	})
	t.Logf("all sample pods were Running after %v", time.Since(began).Round(time.Millisecond))
	await(t, "the pod flaky is in back-off", func() bool {
		p := a.pods(t)["flaky-node1"]
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "CrashLoopBackOff" && s[0].RestartCount > 0
	})
	web := a.pods(t)["web-node1"]
	require.NotEmpty(t, web.Status.PodIP)
	require.Equal(t, "file", web.Annotations["kubernetes.io/config.source"])

	code, body := a.get(t, "/healthz")
	require.Equal(t, http.StatusOK, code, body)
	require.Equal(t, "ok", body)
	_, body = a.get(t, "/healthz?verbose")
	require.Contains(t, body, "[+]pleg ok")
	require.NoError(t, a.stop())

	stdout, _ := a.printed()
	require.Contains(t, stdout[0], "embedded runtime", "the first line must mention that the runtime is simulated")
	require.Contains(t, strings.Join(stdout, "\n"), "default/web-node1 Pending -> Running")
}

const podManifest = `apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  containers:
  - name: app
    image: demo/web:1
`

func manifest(t *testing.T, dir, file, text string) {
	t.Helper()
	// Rename a complete file, as editors do.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "."+file), []byte(text), 0o600))
	require.NoError(t, os.Rename(filepath.Join(dir, "."+file), filepath.Join(dir, file)))
}

func TestManifests_AddedChangedAndDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest(t, dir, "a.yaml", strings.ReplaceAll(podManifest, "NAME", "a"))
	a := start(t, "--manifests", dir, "--root-dir", t.TempDir())
	await(t, "a runs", func() bool { return phases(a.pods(t))["a-node1"] == "Running" })
	first := a.pods(t)["a-node1"]

	manifest(t, dir, "b.yaml", strings.ReplaceAll(podManifest, "NAME", "b"))
	await(t, "b runs", func() bool { return phases(a.pods(t))["b-node1"] == "Running" })

	manifest(t, dir, "a.yaml", strings.ReplaceAll(podManifest, "NAME", "a")+"  restartPolicy: Never\n")
	await(t, "a was replaced", func() bool {
		p := a.pods(t)["a-node1"]
		return p.UID != first.UID && p.Status.Phase == "Running"
	})

	require.NoError(t, os.Remove(filepath.Join(dir, "b.yaml")))
	removals := func() int {
		stdout, _ := a.printed()
		return strings.Count(strings.Join(stdout, "\n"), "default/b-node1 removed")
	}
	await(t, "b is gone", func() bool { return removals() > 0 })
	require.NotContains(t, a.pods(t), "b-node1")
	require.NoError(t, a.stop())
	require.Equal(t, 1, removals())
}

func TestUnsupportedFields_FailOnlyTheirPod(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest(t, dir, "good.yaml", strings.ReplaceAll(podManifest, "NAME", "good"))
	manifest(t, dir, "refused.yaml", strings.ReplaceAll(podManifest, "NAME", "refused")+"    resources: {limits: {example.com/gpu: 1}}\n")
	a := start(t, "--manifests", dir)
	await(t, "good runs and refused fails", func() bool {
		got := phases(a.pods(t))
		return got["good-node1"] == "Running" && got["refused-node1"] == "Failed"
	})
	refused := a.pods(t)["refused-node1"]
	require.Equal(t, "UnsupportedFields", refused.Status.Reason)
	require.Contains(t, refused.Status.Message, "spec.containers[0].resources.limits[example.com/gpu]")
}

func TestManifests_InvalidOneIsReportedOnceAndAffectsNoOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest(t, dir, "good.yaml", strings.ReplaceAll(podManifest, "NAME", "good"))
	manifest(t, dir, "bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: [], colour: red}\n")
	a := start(t, "--manifests", dir)
	await(t, "good runs", func() bool { return phases(a.pods(t))["good-node1"] == "Running" })
	code, body := a.get(t, "/healthz?verbose")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "bad.yaml")
	require.Contains(t, body, "colour")
	require.NoError(t, a.stop())
	_, stderr := a.printed()
	require.Equal(t, 1, strings.Count(stderr, "bad.yaml"), stderr)
}

func TestStopPods_RemovesAllPods(t *testing.T) {
	t.Parallel()
	a := start(t, "--stop-pods")
	await(t, "all pods have a sandbox", func() bool {
		pods := a.pods(t)
		return pods["web-node1"].Status.PodIP != "" && pods["steps-node1"].Status.PodIP != "" && pods["flaky-node1"].Status.PodIP != ""
	})
	require.NoError(t, a.stop())
	stdout, _ := a.printed()
	for _, name := range []string{"web", "steps", "flaky"} {
		require.Equal(t, 1, strings.Count(strings.Join(stdout, "\n"), "default/"+name+"-node1 removed"), stdout)
	}
}

func TestStart_ErrorsNameTheirCause(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, takenPort, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	root := t.TempDir()
	unlock, err := filelock.Lock(filepath.Join(root, "lock"))
	require.NoError(t, err)
	defer func() { require.NoError(t, unlock()) }()
	file := filepath.Join(root, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))

	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"no socket":            {[]string{"--cri-endpoint", "unix:///nowhere/cri.sock", "--root-dir", t.TempDir()}, []string{"unix:///nowhere/cri.sock", "no such file"}},
		"no address":           {[]string{"--cri-endpoint", "tcp://1.2.3.4"}, []string{`--cri-endpoint: "tcp://1.2.3.4"`}},
		"port in use":          {[]string{"--listen", taken.Addr().String()}, []string{"--listen", taken.Addr().String(), "in use"}},
		"health port in use":   {[]string{"--listen", "127.0.0.1:0", "--healthz-port", takenPort}, []string{"--healthz-port", "in use"}},
		"read-only in use":     {[]string{"--listen", "127.0.0.1:0", "--healthz-port", freePort(t), "--read-only-port", takenPort}, []string{"--read-only-port", "in use"}},
		"no port":              {[]string{"--listen", "127.0.0.1"}, []string{"-listen", "missing port"}},
		"bad names":            {[]string{"--node-name", "Bad_Name", "--agent-name", "-x"}, []string{`--node-name "Bad_Name"`, `--agent-name "-x"`}},
		"root of another":      {[]string{"--root-dir", root}, []string{root, "another agent"}},
		"root is a file":       {[]string{"--root-dir", file}, []string{"--root-dir", "not a directory"}},
		"socket of nobody":     {[]string{"--cri-endpoint", "unix://" + file, "--root-dir", t.TempDir()}, []string{"unix://" + file, "refused"}},
		"unknown flag":         {[]string{"--colour"}, []string{"-colour", "--help lists the flags"}},
		"beyond loopback":      {[]string{"--listen", "0.0.0.0:0"}, []string{"a certificate is required, and a token file, a client CA or a TokenReviewer"}},
		"no token":             {[]string{"--token-file", "/nowhere/token"}, []string{"no such file"}},
		"argument out of turn": {[]string{"status"}, []string{`unexpected argument "status"`}},
	} {
		err := run(t.Context(), c.args, io.Discard, io.Discard)
		require.Error(t, err, name)
		for _, want := range c.want {
			require.ErrorContains(t, err, want, name)
		}
	}
}

func TestHelp_PrintsTheFlags(t *testing.T) {
	t.Parallel()
	var stdout, stderr strings.Builder
	require.ErrorIs(t, run(t.Context(), []string{"--help"}, &stdout, &stderr), flag.ErrHelp)
	for _, name := range []string{"cri-endpoint", "manifests", "listen", "node-name", "agent-name", "root-dir", "stop-pods", "take-over"} {
		require.Contains(t, stdout.String(), "-"+name)
	}
	require.Empty(t, stderr.String())
}

// configFile writes a configuration and returns its name.
func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubelet.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: "+kubeletconfig.APIVersion+"\nkind: "+kubeletconfig.Kind+"\n"+text), 0o600))
	return file
}
