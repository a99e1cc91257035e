//go:build e2e

package streams_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/cri"
)

// partVar is the name of the environment variable that divides manyBytes and manyExecs. Default 1.
const partVar = "KUBEPARTS_E2E_PART"

// The sizes of the tests on containerd: bytes by protocol, and commands of both protocols together.
const (
	manyBytesSPDY, manyBytesWebSocket = 256 << 20, 1 << 30
	manyExecs                         = 1000
	manyForwards                      = 50
)

const (
	repository = "../.."
	// testbedDir is always the same, so that a run removes what an earlier run has left.
	testbedDir = "/tmp/kpbed-streams"
	image      = "kubeparts.test/busybox:1"
)

// TestE2EStreams runs the tests on a containerd that it starts, with minimal-agent as a process of
// its own.
func TestE2EStreams(t *testing.T) {
	require.Zero(t, os.Geteuid(), "this test starts containers: it needs root on Linux")
	script(t, "cri-down.sh", "--purge", testbedDir)
	env := script(t, "cri-up.sh", "--dir", testbedDir, "--bridge", "kpbed7", "--cidr", "10.97.0.0/16")
	t.Cleanup(func() { script(t, "cri-down.sh", "--purge", testbedDir) })
	d := &containerd{socket: env["CRI_SOCKET"], pid: env["KPBED_PID"], agent: filepath.Join(t.TempDir(), "agent")}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", d.agent, "./examples/minimal-agent")
	build.Dir = repository
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	part, err := strconv.Atoi(cmp.Or(os.Getenv(partVar), "1"))
	require.NoError(t, err, partVar)
	require.Positive(t, part, partVar)

	t.Run("one pod", func(t *testing.T) {
		b := d.newBed(t)
		goroutines := b.goroutines(t)
		for _, test := range []struct {
			name string
			run  func(*testing.T, protocol)
		}{
			{"output and exit code", b.outputAndExitCode},
			{"end of input", b.endOfInput},
			{"terminal size", b.terminalSize},
			{"many bytes", func(t *testing.T, p protocol) {
				t.Helper()
				size := map[protocol]int64{overSPDY: manyBytesSPDY, overWebSocket: manyBytesWebSocket}[p]
				b.bounded(t, func() { b.manyBytes(t, p, size/int64(part)) })
			}},
			{"many commands", func(t *testing.T, p protocol) {
				t.Helper()
				b.manyCommands(t, p, manyExecs/2/part)
			}},
			{"many port-forwards", func(t *testing.T, p protocol) {
				t.Helper()
				b.manyForwards(t, p, manyForwards)
			}},
			{"client that stops reading", func(t *testing.T, p protocol) {
				t.Helper()
				b.bounded(t, func() { b.stopReading(t, p, func() {}) })
			}},
		} {
			t.Run(test.name, func(t *testing.T) { bothProtocols(t, test.run) })
		}
		t.Run("cost of a command", func(t *testing.T) { d.costOfACommand(t, b) })
		b.awaitGoroutines(t, goroutines)
	})
	t.Run("killed pod", func(t *testing.T) { d.newBed(t).endWithThePod(t) })
	t.Run("killed runtime", func(t *testing.T) {
		b := d.newBed(t)
		goroutines := b.goroutines(t)
		b.endWithTheRuntime(t)
		d.restart(t)
		b.awaitGoroutines(t, goroutines)
	})
}

// script runs a script of the test bed and returns the variables that it prints.
func script(t *testing.T, name string, args ...string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(repository, "test/testbed", name), args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s: %s", name, errs.String())
	env := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[key] = value
	}
	return env
}

// containerd is a running containerd, and the binary of the agent.
type containerd struct{ socket, pid, agent string }

// restart starts containerd again.
func (d *containerd) restart(t *testing.T) {
	t.Helper()
	d.pid = script(t, "cri-up.sh", "--dir", testbedDir)["KPBED_PID"]
}

// liveBed is a bed whose agent is a process.
type liveBed struct {
	*bed
	process int
}

// newBed starts an agent on containerd.
func (d *containerd) newBed(t *testing.T) *liveBed {
	t.Helper()
	manifests, root := t.TempDir(), t.TempDir()
	manifest := filepath.Join(manifests, "a.yaml")
	require.NoError(t, os.WriteFile(manifest, []byte(podYAML(image, podCommand)), 0o600))
	address := freeAddress(t)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	agent := exec.CommandContext(ctx, d.agent, "--agent-name", "streams", "--node-name", "node1", "--cri-endpoint", "unix://"+d.socket,
		"--manifests", manifests, "--root-dir", root, "--listen", address, "--token-file", tokenFile(t), "--stop-pods",
		"--eviction-hard", "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%")
	agent.Cancel = func() error { return agent.Process.Signal(syscall.SIGTERM) }
	agent.WaitDelay = limit
	var output bytes.Buffer
	agent.Stdout, agent.Stderr = &output, &output
	require.NoError(t, agent.Start())
	t.Cleanup(func() {
		stop()
		_ = agent.Wait() // the error is that of the cancelled context
		if t.Failed() {
			t.Logf("output of the agent:\n%s", output.String())
		}
	})
	b := &liveBed{process: agent.Process.Pid, bed: &bed{
		config:  &rest.Config{Host: "http://" + address, BearerToken: token},
		command: shell, port: 8080,
		killPod: func(t *testing.T) {
			t.Helper()
			require.NoError(t, os.Remove(manifest))
		},
		killRuntime: func(t *testing.T) {
			t.Helper()
			pid, err := strconv.Atoi(d.pid)
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		},
	}}
	b.await(t, "the container runs", func() bool {
		return b.exec(t.Context(), overSPDY, success, stdio{out: io.Discard}) == nil
	})
	return b
}

// podCommand is the rest of the manifest: a program that writes a line and serves HTTP.
const podCommand = `    command: [sh, -c, "echo hello > /tmp/index.html; while sleep 0.2; do echo hello; done & exec httpd -f -p 8080 -h /tmp"]
`

// shell returns a command of the image.
func shell(name string) []string {
	switch name {
	case success:
		return []string{"true"}
	case failure:
		return []string{"sh", "-c", "echo out; echo err >&2; exit 3"}
	case cat:
		return []string{"cat"}
	case sleep:
		return []string{"sleep", "3600"}
	case sizes:
		// A trap of WINCH does not work: the signal ends the built-in read of busybox like the end
		// of the input. Before the terminal has a size, stty reports an error.
		return []string{"sh", "-c", "exec 3<&0; while sleep 0.1; do stty size <&3; done & cat >/dev/null; kill $!"}
	default:
		return []string{name}
	}
}

// freeAddress returns a loopback address that was free when it was checked. Its port is none that the
// kernel chooses for connections or listeners.
func freeAddress(t *testing.T) string {
	t.Helper()
	for {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(10_000)))
		if err == nil {
			require.NoError(t, listener.Close())
			return listener.Addr().String()
		}
	}
}

// await waits until a condition is true.
func (b *liveBed) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.After(limit); !condition(); {
		select {
		case <-poll.C:
		case <-deadline:
			require.Fail(t, "not true in time: "+what)
		}
	}
}

// goroutines returns the number of goroutines of the agent.
func (b *liveBed) goroutines(t *testing.T) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.config.Host+"/metrics", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^go_goroutines (\d+)$`).FindSubmatch(text)
	require.NotNil(t, found, "%s", text)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return n
}

// awaitGoroutines waits until the agent has at most a few goroutines more than before.
func (b *liveBed) awaitGoroutines(t *testing.T, before int) {
	t.Helper()
	now := 0
	b.await(t, "the goroutines of the streams have ended", func() bool {
		now = b.goroutines(t)
		return now <= before+5 // the number of goroutines of the runtime's connection and of syncs varies
	})
	t.Logf("goroutines of the agent: %d before, %d after", before, now)
}

// bounded requires that the memory of the agent grows little while streams moves data.
func (b *liveBed) bounded(t *testing.T, streams func()) {
	t.Helper()
	before, most := b.rss(t), int64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		poll := time.NewTicker(20 * time.Millisecond)
		defer poll.Stop()
		for {
			select {
			case <-poll.C:
				most = max(most, b.rss(t))
			case <-stop:
				return
			}
		}
	}()
	streams()
	close(stop)
	<-done
	t.Logf("memory of the agent: %d MiB before, at most %d MiB", before>>20, most>>20)
	require.Less(t, most-before, int64(32<<20))
}

// rss returns the resident memory of the agent in bytes.
func (b *liveBed) rss(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", b.process))
	if err != nil {
		return 0 // the agent has ended, which other checks report
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Error(err)
	}
	return pages * int64(os.Getpagesize())
}

// costOfACommand compares the time of a command through the kubelet API with the time of the same
// command that a client runs at the runtime itself, over SPDY. No runtime serves WebSocket, so the
// server translates it. The handshakes of this translation take some milliseconds, however fast the
// runtime is, so the bound for WebSocket is higher by the constant translation. A busy machine makes
// all ratios larger, because a command through the API passes one more process. So one of five rounds
// must be within each bound.
func (d *containerd) costOfACommand(t *testing.T, b *liveBed) {
	t.Helper()
	client, err := cri.New(cri.Config{Endpoint: "unix://" + d.socket})
	require.NoError(t, err)
	defer client.Close()
	containers, err := client.ListContainers(t.Context(), &runtimeapi.ContainerFilter{
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.name": "a-node1"},
	})
	require.NoError(t, err)
	require.Len(t, containers, 1)
	direct := func(ctx context.Context) error {
		answer, err := client.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: containers[0].GetId(), Cmd: []string{"true"}, Stdout: true})
		if err != nil {
			return err
		}
		target, err := url.Parse(answer.GetUrl())
		if err != nil {
			return err
		}
		executor, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: target.Host}, http.MethodPost, target)
		if err != nil {
			return err
		}
		return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard})
	}
	ways := map[string]func(context.Context) error{
		"runtime": direct,
		"SPDY":    func(ctx context.Context) error { return b.exec(ctx, overSPDY, success, stdio{out: io.Discard}) },
		"WebSocket": func(ctx context.Context) error {
			return b.exec(ctx, overWebSocket, success, stdio{out: io.Discard})
		},
	}
	const most, translation, rounds = 1.3, 10 * time.Millisecond, 5
	within := map[string]bool{}
	for range rounds {
		took := map[string][]time.Duration{}
		for range 60 { // in turn, so that other processes slow all ways down alike
			for _, name := range []string{"runtime", "SPDY", "WebSocket"} {
				began := time.Now()
				require.NoError(t, ways[name](t.Context()))
				took[name] = append(took[name], time.Since(began))
			}
		}
		median := func(name string) time.Duration {
			slices.Sort(took[name])
			return took[name][len(took[name])/2]
		}
		base := median("runtime")
		for name, more := range map[string]time.Duration{"SPDY": 0, "WebSocket": translation} {
			within[name] = within[name] || float64(median(name)-more) <= most*float64(base)
			t.Logf("true: %v at the runtime, %v through the kubelet API over %s: %.2f times as long",
				base.Round(100*time.Microsecond), median(name).Round(100*time.Microsecond), name, float64(median(name))/float64(base))
		}
		if within["SPDY"] && within["WebSocket"] {
			return
		}
	}
	require.Fail(t, "a command through the kubelet API takes too long in each round", "within the bound: %v", within)
}
