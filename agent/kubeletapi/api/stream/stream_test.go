package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/spdystream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api/stream"
	"github.com/kubeparts/kubeparts/podcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a runtime whose commands are Go functions.
type node struct {
	started chan struct{} // a hanging process has started
	sizes   chan remotecommand.TerminalSize
}

// Exec runs one of: cat, fail CODE, wait, size, both.
func (n *node) Exec(ctx context.Context, _ string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	switch cmd[0] {
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "fail":
		return utilexec.CodeExitError{Err: errors.New("it failed"), Code: 7}
	case "both":
		_, _ = io.WriteString(out, "to stdout")
		_, err := io.WriteString(errOut, "to stderr")
		return err
	case "size":
		n.sizes <- <-resize
		_, err := fmt.Fprintf(out, "tty=%v", tty)
		return err
	case "wait":
		close(n.started)
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.New("no such command")
}

func (n *node) Attach(_ context.Context, _ string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	_, err := io.Copy(out, in)
	return err
}

// PortForward implements two ports: port 80 sends a greeting and echoes all data, port 81
// fails.
func (n *node) PortForward(_ context.Context, _ string, port int32, conn io.ReadWriteCloser) error {
	defer conn.Close()
	if port == 81 {
		return errors.New("connection refused")
	}
	text, err := io.ReadAll(conn) // until the client closes its side
	if err == nil {
		_, err = io.WriteString(conn, "pod got "+string(text))
	}
	return err
}

// streams starts the streams of an agent.
type streams struct{ streaming.Server }

func (s streams) Exec(_ context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return s.GetExec(r)
}

func (s streams) Attach(_ context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return s.GetAttach(r)
}

func (s streams) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return s.GetPortForward(r)
}

func (s streams) ExecSync(context.Context, string, []string, time.Duration) (stdout, stderr []byte, err error) {
	return nil, nil, errors.ErrUnsupported
}

// onePod is an agent with the pod ns/pod, which has the running container app.
type onePod struct{ kubeletapi.Agent }

func (onePod) Pods() []agent.Pod {
	return []agent.Pod{{
		Spec: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"}}, Source: "file", State: agent.Admitted,
		Runtime: &podcache.Status{
			UID: "uid", Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: "box"}},
			Containers: []*runtimeapi.ContainerStatus{{
				Id: "app", Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
				Labels: map[string]string{"io.kubernetes.container.name": "app"},
			}},
			SandboxOf: map[string]string{"app": "box"},
		},
	}}
}

func (onePod) Node() *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}} }

// Changes returns a channel without changes, which is closed when ctx is done.
func (onePod) Changes(ctx context.Context) <-chan struct{} {
	changes := make(chan struct{})
	context.AfterFunc(ctx, func() { close(changes) })
	return changes
}

// bed is a runtime behind an agent, and a client.
type bed struct {
	*node
	client *api.Client
	agent  *httptest.Server
	web    *httptest.Server // server of the runtime
}

var app = stream.Target{Namespace: "ns", Pod: "pod", Container: "app"}

func newBed(t *testing.T) *bed {
	t.Helper()
	n := &node{started: make(chan struct{}), sizes: make(chan remotecommand.TerminalSize, 1)}
	web := httptest.NewUnstartedServer(nil)
	cfg := streaming.DefaultConfig
	cfg.BaseURL = &url.URL{Scheme: "http", Host: web.Listener.Addr().String()}
	// If a client disconnects early, the runtime waits for its streams for this time.
	cfg.StreamCreationTimeout = 10 * time.Second
	runtime, err := streaming.NewServer(cfg, n)
	require.NoError(t, err)
	var serving sync.WaitGroup
	web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Done()
		runtime.ServeHTTP(w, r)
	})
	web.Start()
	t.Cleanup(serving.Wait) // Close does not wait for streams
	t.Cleanup(web.Close)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	s, err := kubeletapi.New(kubeletapi.Config{Agent: onePod{}, Streams: streams{runtime}, Access: kubeletapi.Access{TokenFile: token}})
	require.NoError(t, err)
	front := httptest.NewServer(s.Handler())
	t.Cleanup(front.Close)
	c, err := api.NewClient(api.ClientConfig{Server: front.URL})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &bed{node: n, client: c, agent: front, web: web}
}

func TestExec_Streams(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var out, errOut bytes.Buffer
	require.NoError(t, stream.Exec(t.Context(), b.client, app, []string{"both"}, stream.Streams{Stdout: &out, Stderr: &errOut}))
	require.Equal(t, "to stdout|to stderr", out.String()+"|"+errOut.String())

	// The command receives the end of its input, also after more data than a buffer holds.
	big := strings.Repeat("0123456789abcdef", 1<<18)
	out.Reset()
	require.NoError(t, stream.Exec(t.Context(), b.client, app, []string{"cat"}, stream.Streams{Stdin: strings.NewReader(big), Stdout: &out}))
	require.Equal(t, len(big), out.Len())
	require.Equal(t, big, out.String())
}

func TestExec_ExitCode(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	err := stream.Exec(t.Context(), b.client, app, []string{"fail"}, stream.Streams{Stdout: io.Discard})
	exit, ok := errors.AsType[*stream.ExitError](err)
	require.True(t, ok, err)
	require.Equal(t, 7, exit.Code)
	require.EqualError(t, err, "command terminated with exit code 7")
	require.ErrorContains(t, stream.Exec(t.Context(), b.client, app, []string{"other"}, stream.Streams{Stdout: io.Discard}), "no such command")
}

func TestExec_Terminal(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	sizes := make(chan stream.Size, 1)
	sizes <- stream.Size{Width: 120, Height: 40}
	var out bytes.Buffer
	require.NoError(t, stream.Exec(t.Context(), b.client, app, []string{"size"}, stream.Streams{
		Stdin: strings.NewReader(""), Stdout: &out, TTY: true, Sizes: sizes,
	}))
	require.Equal(t, remotecommand.TerminalSize{Width: 120, Height: 40}, <-b.sizes)
	require.Equal(t, "tty=true", out.String())
	require.ErrorContains(t, stream.Exec(t.Context(), b.client, app, nil, stream.Streams{TTY: true, Stderr: &out}), "no separate Stderr")
}

func TestExec_Refused(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	other := app
	other.Container = "nope"
	err := stream.Exec(t.Context(), b.client, other, []string{"cat"}, stream.Streams{Stdout: io.Discard})
	status, ok := errors.AsType[*api.StatusError](err)
	require.True(t, ok, err)
	require.Equal(t, 404, status.Code)
	require.ErrorContains(t, stream.Exec(t.Context(), b.client, app, []string{"cat"}, stream.Streams{}), "you must specify at least 1")
	b.agent.Close()
	_, ok = errors.AsType[*api.UnreachableError](stream.Exec(t.Context(), b.client, app, []string{"cat"}, stream.Streams{Stdout: io.Discard}))
	require.True(t, ok)
}

// The caller's context ends a stream.
func TestExec_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- stream.Exec(ctx, b.client, app, []string{"wait"}, stream.Streams{Stdout: io.Discard})
	}()
	<-b.started
	stop := errors.New("the user has interrupted it")
	cancel(stop)
	require.ErrorIs(t, <-ended, stop)
}

// A broken connection is an error, and does not look like the success of the command.
func TestExec_BrokenConnection(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		version string
		streams int // number of streams that the server accepts before it closes the connection
		want    string
	}{
		"after all streams":  {"v4.channel.k8s.io", 2, stream.ErrLost.Error()},
		"after one stream":   {"v4.channel.k8s.io", 1, "open the stream stdout: "},
		"of another version": {"v1.channel.k8s.io", 0, `the runtime supports the protocol "v1.channel.k8s.io"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				defer close(ended)
				raw, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				fmt.Fprintf(raw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: %s\r\n\r\n", x.version)
				session, err := spdystream.NewConnection(raw, true)
				if err != nil {
					t.Error(err)
					return
				}
				var opened atomic.Int64
				session.Serve(func(s *spdystream.Stream) {
					n := int(opened.Add(1))
					if n <= x.streams {
						_ = s.SendReply(http.Header{}, false)
					}
					if n >= x.streams {
						_ = raw.Close()
					}
				})
			}))
			t.Cleanup(server.Close)
			c, err := api.NewClient(api.ClientConfig{Server: server.URL})
			require.NoError(t, err)
			t.Cleanup(c.Close)
			require.ErrorContains(t, stream.Exec(t.Context(), c, app, []string{"true"}, stream.Streams{Stdout: io.Discard}), x.want)
			<-ended
		})
	}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var out bytes.Buffer
	require.NoError(t, stream.Attach(t.Context(), b.client, app, stream.Streams{Stdin: strings.NewReader("hello"), Stdout: &out}))
	require.Equal(t, "hello", out.String())
}

func TestPorts_Forward(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	p, err := stream.DialPorts(t.Context(), b.client, "ns", "pod")
	require.NoError(t, err)
	defer p.Close()
	var all sync.WaitGroup
	for i := range 20 {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer listener.Close()
		all.Go(func() {
			local, err := listener.Accept()
			if err == nil {
				err = p.Forward(local, 80)
			}
			if err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprintf(conn, "request %d", i)
			_ = conn.(*net.TCPConn).CloseWrite()
			text, err := io.ReadAll(conn)
			if want := fmt.Sprintf("pod got request %d", i); err != nil || string(text) != want {
				t.Errorf("%q, %v, want %q", text, err, want)
			}
		})
	}
	all.Wait()

	// A failing port closes only its own connection.
	here, there := net.Pipe()
	require.ErrorContains(t, p.Forward(there, 81), "forward port 81: ")
	_, err = here.Read(make([]byte, 1))
	require.Error(t, err, "the local connection must be closed")
	select {
	case <-p.Done():
		t.Error("the connection to the pod ended")
	default:
	}
	p.Close()
	<-p.Done()
	_, err = stream.DialPorts(t.Context(), b.client, "ns", "other")
	require.ErrorContains(t, err, "404")
}

// The server may send any status. Only the status Success is a success.
func TestExec_Status(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"status":"Success"}`:                                          "",
		`{"status":"Failure","message":"no runtime"}`:                   "no runtime",
		`{"status":"Failure","reason":"NonZeroExitCode","message":"m"}`: "m",
		`{"status":"Failure","reason":"NonZeroExitCode","message":"m","details":{"causes":[{"reason":"ExitCode","message":"many"}]}}`:               "m",
		`{"status":"Failure","reason":"NonZeroExitCode","message":"m","details":{"causes":[{"reason":"x"},{"reason":"ExitCode","message":"126"}]}}`: "command terminated with exit code 126",
		"broken": "read the status of the process: invalid character 'b'",
		"":       stream.ErrLost.Error(),
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			raw, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprint(raw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n")
			session, err := spdystream.NewConnection(raw, true)
			if err != nil {
				t.Error(err)
				return
			}
			session.Serve(func(s *spdystream.Stream) {
				_ = s.SendReply(http.Header{}, false)
				if s.Headers().Get("streamType") == "error" {
					_, _ = io.WriteString(s, text)
				}
				_ = s.Close()
			})
		}))
		c, err := api.NewClient(api.ClientConfig{Server: server.URL})
		require.NoError(t, err)
		err = stream.Exec(t.Context(), c, app, []string{"true"}, stream.Streams{Stdout: io.Discard})
		if want == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, want, text)
		}
		c.Close()
		server.Close()
	}
}

// The agent closes the connection of a port-forward. The caller must receive an error.
func TestPorts_ConnectionIsLost(t *testing.T) {
	t.Parallel()
	ready := make(chan net.Conn, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		raw, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(raw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n")
		ready <- raw
	}))
	t.Cleanup(server.Close)
	c, err := api.NewClient(api.ClientConfig{Server: server.URL})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	p, err := stream.DialPorts(t.Context(), c, "ns", "pod")
	require.NoError(t, err)
	defer p.Close()
	require.NoError(t, (<-ready).Close())
	<-p.Done()
	here, there := net.Pipe()
	defer here.Close()
	require.ErrorContains(t, p.Forward(there, 80), "open the stream error: ")
}

// The context of the caller ends a port-forward and its connections.
func TestPorts_EndWithTheirContext(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ctx, cancel := context.WithCancel(t.Context())
	p, err := stream.DialPorts(ctx, b.client, "ns", "pod")
	require.NoError(t, err)
	here, there := net.Pipe()
	defer func() { _ = here.Close() }() // closed twice
	ended := make(chan error, 1)
	go func() { ended <- p.Forward(there, 80) }()
	_, err = io.WriteString(here, "the pod waits for the rest")
	require.NoError(t, err)
	cancel()
	<-p.Done()
	t.Logf("error of the interrupted stream: %v", <-ended)
	_, err = here.Read(make([]byte, 1))
	require.Error(t, err)
	p.Close()
}

// A terminal works without a size, and when no further sizes come.
func TestExec_TerminalWithoutSizes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	closed := make(chan stream.Size)
	close(closed)
	for _, sizes := range []<-chan stream.Size{nil, closed} {
		var out bytes.Buffer
		require.NoError(t, stream.Exec(t.Context(), b.client, app, []string{"cat"}, stream.Streams{
			Stdin: strings.NewReader("input"), Stdout: &out, TTY: true, Sizes: sizes,
		}))
		require.Equal(t, "input", out.String())
	}
}
