package streams_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/fakecri/streaming"
	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(settled{m}) }

// settled runs the tests, and returns when the libraries have ended their goroutines. The library of
// SPDY needs up to a second to end the goroutine of a connection that the other side has closed
// first. For WebSocket, client-go ends the goroutine of such a connection with its next ping, up to
// five seconds later.
type settled struct{ *testing.M }

// Run implements goleak.TestingM.
func (s settled) Run() int {
	code := s.M.Run()
	for range 20 {
		if goleak.Find() == nil {
			break
		}
	}
	return code
}

// limit is the time limit of each test. It only ends tests that hang, so a busy machine does
// not exceed it.
const limit = 2 * time.Minute

// bed is a kubelet API before a runtime, with the pod default/a. Its container app has the
// commands of [sh].
type bed struct {
	config *rest.Config
	// commands returns the words of a command.
	command func(name string) []string
	// port is the port of the pod that answers HTTP requests with 200.
	port int
	// killPod removes the pod's definition and waits for nothing. killRuntime ends the runtime's
	// process or, on fakecri, its streaming server.
	killPod, killRuntime func(t *testing.T)
}

// The names of commands. Each bed has them.
const (
	success = "success" // exits with 0
	failure = "failure" // writes out and err, and exits with 3
	cat     = "cat"     // copies its input to its output
	sleep   = "sleep"   // runs for an hour
	sizes   = "sizes"   // writes the size of its terminal when it changes, until its input ends
)

const token = "secret"

// newFakeBed starts an agent on fakecri with the kubelet API.
func newFakeBed(t *testing.T, change ...func(*kubeletapi.Config)) *bed {
	t.Helper()
	network := new(fakecri.Network)
	port, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	streams := streaming.New(port.Addr().String())
	node, err := fakecri.New(fakecri.Config{
		Images: []fakecri.Image{{Name: "app"}},
		Programs: map[string]fakecri.Program{"app": {
			Log: []string{"hello"}, Ports: []fakecri.Port{{Number: 8080}},
			Exec: map[string]fakecri.Exec{
				success: {}, failure: {Stdout: "out\n", Stderr: "err\n", ExitCode: 3},
				cat: {Echo: true}, sizes: {Echo: true}, sleep: {Runtime: time.Hour},
			},
		}},
		Listen: network.Listen, Dial: network.Dial, Streamer: streams.Streamer,
	})
	require.NoError(t, err)
	t.Cleanup(node.Shutdown)
	stopStreams := start(t, func(ctx context.Context) error { return streams.Serve(ctx, port) })

	manifests := t.TempDir()
	manifest := filepath.Join(manifests, "a.yaml")
	require.NoError(t, os.WriteFile(manifest, []byte(podYAML("app", "")), 0o600))
	source, err := podsource.NewDirectory(podsource.DirectoryConfig{Path: manifests, NodeName: "node1"})
	require.NoError(t, err)
	a, err := agent.New(agent.Config{
		Name: "streams", NodeName: "node1", Runtime: node, Host: fakehost.New(node),
		Sources: []agent.Source{{Name: "file", Run: source.Run}},
	})
	require.NoError(t, err)
	start(t, a.Run)

	cfg := kubeletapi.Config{Agent: a, Streams: node, Access: kubeletapi.Access{TokenFile: tokenFile(t)}}
	for _, f := range change {
		f(&cfg)
	}
	server, err := kubeletapi.New(cfg)
	require.NoError(t, err)
	listener, err := server.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	start(t, func(ctx context.Context) error { return server.Run(ctx, listener) })

	b := &bed{
		config:  &rest.Config{Host: "http://" + listener.Addr().String(), BearerToken: token},
		command: func(name string) []string { return []string{name} },
		port:    8080,
		killPod: func(t *testing.T) {
			t.Helper()
			require.NoError(t, os.Remove(manifest))
		},
		killRuntime: func(*testing.T) { stopStreams() },
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for range a.Changes(ctx) {
		for _, p := range a.Pods() {
			if c := p.Runtime.Container("app"); c.GetState() == 1 && c != nil {
				return b
			}
		}
	}
	require.Fail(t, "the container did not start")
	return nil
}

// podYAML returns the manifest of the pod a with the container app.
func podYAML(image, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: %s
    imagePullPolicy: IfNotPresent
    stdin: true
%s`, image, more)
}

func tokenFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token), 0o600))
	return file
}

// start runs a part of the bed until the test ends or the returned function is called.
func start(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = func() {
		cancel()
		if done != nil {
			require.NoError(t, <-done)
			done = nil
		}
	}
	t.Cleanup(stop)
	return stop
}

// protocol is a way of kubectl to open a stream.
type protocol string

const (
	overSPDY      protocol = "SPDY"
	overWebSocket protocol = "WebSocket" // exec: v5.channel.k8s.io; port-forward: SPDY in a WebSocket
)

func protocols() []protocol { return []protocol{overSPDY, overWebSocket} }

// bothProtocols runs a test with each protocol.
func bothProtocols(t *testing.T, test func(t *testing.T, p protocol)) {
	t.Helper()
	for _, p := range protocols() {
		t.Run(string(p), func(t *testing.T) { test(t, p) })
	}
}

// stdio are the streams of a command in a test.
type stdio struct {
	in       io.Reader
	out, err io.Writer
	sizes    remotecommand.TerminalSizeQueue // not nil: the command has a terminal
}

// exec runs a command and returns its error as kubectl does.
func (b *bed) exec(ctx context.Context, p protocol, name string, s stdio) error {
	return b.stream(ctx, p, "/exec/default/a/app", url.Values{"command": b.command(name)}, s)
}

// attach attaches to the container.
func (b *bed) attach(ctx context.Context, p protocol, s stdio) error {
	return b.stream(ctx, p, "/attach/default/a/app", url.Values{}, s)
}

func (b *bed) stream(ctx context.Context, p protocol, path string, query url.Values, s stdio) error {
	for name, wanted := range map[string]bool{"input": s.in != nil, "output": s.out != nil, "error": s.err != nil, "tty": s.sizes != nil} {
		if wanted {
			query.Set(name, "1")
		}
	}
	target, err := url.Parse(b.config.Host + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	var executor remotecommand.Executor
	if p == overSPDY {
		executor, err = remotecommand.NewSPDYExecutor(b.config, http.MethodPost, target)
	} else {
		executor, err = remotecommand.NewWebSocketExecutor(b.config, http.MethodGet, target.String())
	}
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{
		Stdin: s.in, Stdout: s.out, Stderr: s.err, Tty: s.sizes != nil, TerminalSizeQueue: s.sizes,
	})
}

// forward is a port-forward of a client.
type forward struct {
	*portforward.PortForwarder
	port  uint16 // on this machine
	ended chan error
	stop  func()
}

// forward starts a port-forward to the port of the pod, and stops it when the test ends.
func (b *bed) forward(t *testing.T, p protocol) *forward {
	t.Helper()
	f, err := b.startForward(t, p)
	require.NoError(t, err)
	t.Cleanup(f.stop)
	return f
}

func (b *bed) startForward(t *testing.T, p protocol) (*forward, error) {
	t.Helper()
	target, err := url.Parse(b.config.Host + "/portForward/default/a")
	if err != nil {
		return nil, err
	}
	var dialer httpstream.Dialer
	if p == overSPDY {
		transport, upgrader, err := spdy.RoundTripperFor(b.config)
		if err != nil {
			return nil, err
		}
		dialer = spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	} else if dialer, err = portforward.NewSPDYOverWebsocketDialerForStreaming(target, b.config); err != nil {
		return nil, err
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	var output bytes.Buffer
	forwarder, err := portforward.NewForStreaming(dialer, []string{fmt.Sprintf("0:%d", b.port)}, stop, ready, io.Discard, &output)
	if err != nil {
		return nil, err
	}
	f := &forward{PortForwarder: forwarder, ended: make(chan error, 1)}
	go func() { f.ended <- forwarder.ForwardPorts() }()
	stopped := false
	f.stop = func() {
		if !stopped {
			stopped = true
			close(stop)
			t.Logf("error of the port-forward that was stopped: %v", <-f.ended)
		}
	}
	select {
	case err := <-f.ended:
		f.ended <- err
		return nil, fmt.Errorf("the port-forward ended: %w", err)
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		f.stop()
		return nil, err
	}
	f.port = ports[0].Local
	return f, nil
}

// get sends a request through the port-forward and returns the code of the response.
func (f *forward) get(ctx context.Context) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", f.port), nil)
	if err != nil {
		return 0, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

// text is a writer that keeps what is written, and reports it on a channel.
type text struct {
	strings.Builder
	lines chan string // receives each line; nil if lines are not reported
}

// Write implements io.Writer.
func (w *text) Write(data []byte) (int, error) {
	n, err := w.Builder.Write(data)
	if w.lines != nil {
		for line := range strings.Lines(string(data)) {
			w.lines <- strings.TrimSpace(line)
		}
	}
	return n, err
}
