package commands_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	utilexec "k8s.io/utils/exec"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/commands"
	"github.com/kubeparts/kubeparts/podcache"
)

// host is a runtime that runs the commands of containers on this machine.
type host struct {
	mu    sync.Mutex
	sizes []remotecommand.TerminalSize
	seen  chan struct{} // receives a message after each size
	web   string        // HOST:PORT to which ports are forwarded
}

func (h *host) Exec(ctx context.Context, _ string, cmd []string, in io.Reader, out, errOut io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize) error {
	if cmd[0] == "sizes" {
		for size := range resize {
			h.mu.Lock()
			h.sizes = append(h.sizes, size)
			done := len(h.sizes) == 2
			h.mu.Unlock()
			h.seen <- struct{}{}
			if done {
				return nil
			}
		}
	}
	c := exec.CommandContext(ctx, cmd[0], cmd[1:]...)
	c.Stdin, c.Stdout, c.WaitDelay = in, out, time.Second
	if errOut != nil {
		c.Stderr = errOut
	}
	err := c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

func (h *host) Attach(_ context.Context, _ string, in io.Reader, out, _ io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize) error {
	if tty {
		_, _ = io.WriteString(out, "on a terminal: ")
	}
	if in == nil {
		return nil
	}
	_, err := io.Copy(out, in)
	return err
}

func (h *host) PortForward(ctx context.Context, _ string, port int32, client io.ReadWriteCloser) error {
	defer client.Close()
	if port != 80 {
		return errors.New("connection refused")
	}
	pod, err := new(net.Dialer).DialContext(ctx, "tcp", h.web)
	if err != nil {
		return err
	}
	defer pod.Close()
	go func() { _, _ = io.Copy(pod, client) }()
	_, err = io.Copy(client, pod)
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

// onePod is an agent with the pod default/web-node1, which has the containers app and shell. The
// container shell has a terminal.
type onePod struct{}

func (onePod) Pods() []agent.Pod {
	runs := func(name string) *runtimeapi.ContainerStatus {
		return &runtimeapi.ContainerStatus{
			Id: name, Metadata: &runtimeapi.ContainerMetadata{Name: name}, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			Labels: map[string]string{"io.kubernetes.container.name": name},
		}
	}
	return []agent.Pod{{
		Spec: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node1", UID: "uid"}, Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "app", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}, {Name: "shell", TTY: true},
		}}},
		Source: "file", State: agent.Admitted,
		Runtime: &podcache.Status{
			UID: "uid", Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: "box"}},
			Containers: []*runtimeapi.ContainerStatus{runs("app"), runs("shell")},
			SandboxOf:  map[string]string{"app": "box", "shell": "box"},
		},
	}}
}

func (o onePod) Pod(types.UID) (agent.Pod, bool)        { return o.Pods()[0], true }
func (onePod) Probes(types.UID) []agent.Probe           { return nil }
func (onePod) Health() []agent.Check                    { return nil }
func (onePod) Node() *corev1.Node                       { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}} }
func (onePod) Plan(context.Context) (agent.Plan, error) { return agent.Plan{}, nil }

func (onePod) Explain(context.Context, types.UID) (agent.Explanation, error) {
	return agent.Explanation{}, agent.ErrUnknownPod
}

func (onePod) Summary(context.Context) (*statsapi.Summary, error) {
	return nil, errors.New("nothing is measured")
}

func (onePod) PlanEviction(context.Context) (eviction.Decision, error) {
	return eviction.Decision{}, nil
}

// Changes returns a channel without changes, which is closed when ctx is done.
func (onePod) Changes(ctx context.Context) <-chan struct{} {
	changes := make(chan struct{})
	context.AfterFunc(ctx, func() { close(changes) })
	return changes
}

// serveStreams serves an agent with one pod until the test ends, and returns its URL.
func serveStreams(t *testing.T) (*host, string) {
	t.Helper()
	h := &host{seen: make(chan struct{}, 10)}
	web := httptest.NewUnstartedServer(nil)
	cfg := streaming.DefaultConfig
	cfg.BaseURL = &url.URL{Scheme: "http", Host: web.Listener.Addr().String()}
	// If a client disconnects early, the runtime waits for its streams for this time.
	cfg.StreamCreationTimeout = 10 * time.Second
	runtime, err := streaming.NewServer(cfg, h)
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
	return h, front.URL
}

// result is the result of a command.
type result struct {
	stdout, stderr string
	code           int
}

func run(t *testing.T, server, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := program(server, &stdout, &stderr)
	p.Stdin = strings.NewReader(stdin)
	code := p.Main(t.Context(), args)
	return result{stdout.String(), stderr.String(), code}
}

func TestExec(t *testing.T) {
	_, server := serveStreams(t)
	defaulted := "Defaulted container \"app\" out of: app, shell\n"
	require.Equal(t, result{"hello\n", defaulted, 0}, run(t, server, "ignored", "exec", "web", "--", "echo", "hello"))
	require.Equal(t, result{"", "to stderr\n", 0}, run(t, server, "", "exec", "web", "-c", "app", "--", "sh", "-c", "echo to stderr >&2"))
	require.Equal(t, result{"input", "", 0}, run(t, server, "input", "exec", "-i", "web", "-c", "app", "--", "cat"))
	require.Equal(t, result{"", "command terminated with exit code 7\n", 7}, run(t, server, "", "exec", "web", "-c", "app", "--", "sh", "-c", "exit 7"))
	r := run(t, server, "", "exec", "web", "-c", "app", "--", "/does/not/exist")
	require.Equal(t, commands.ExitFailed, r.code)
	require.Contains(t, r.stderr, "no such file or directory")
	// If standard input is not a terminal, exec -t runs the command without a terminal, as in kubectl.
	r = run(t, server, "input", "exec", "-it", "web", "-c", "app", "--", "cat")
	require.Equal(t, result{"input", "Unable to use a TTY - input is not a terminal or the right kind of file\n", 0}, r)
}

// The container gets the size of the user's terminal and each new size, and the mode of the user's
// terminal is restored.
func TestExec_Terminal(t *testing.T) {
	h, server := serveStreams(t)
	var stdout, stderr bytes.Buffer
	p := program(server, &stdout, &stderr)
	p.Stdin = strings.NewReader("")
	width, raw, resized := 80, 0, make(chan struct{})
	p.Terminal = func() (int, int, bool) { return width, 25, true }
	p.RawTerminal = func() (func(), error) {
		raw++
		return func() { raw-- }, nil
	}
	p.Resized = func(context.Context) <-chan struct{} { return resized }
	code := make(chan int, 1)
	go func() { code <- p.Main(t.Context(), []string{"exec", "-it", "web", "-c", "app", "--", "sizes"}) }()
	<-h.seen
	width = 132
	resized <- struct{}{}
	require.Zero(t, <-code, &stderr)
	require.Equal(t, []remotecommand.TerminalSize{{Width: 80, Height: 25}, {Width: 132, Height: 25}}, h.sizes)
	require.Zero(t, raw, "the terminal is restored")
}

func TestExec_Interrupted(t *testing.T) {
	_, server := serveStreams(t)
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	p := program(server, w, io.Discard)
	code := make(chan int, 1)
	go func() {
		code <- p.Main(ctx, []string{"exec", "web", "--", "sh", "-c", "echo started; exec sleep 1000"})
	}()
	_, err := r.Read(make([]byte, 100))
	require.NoError(t, err)
	cancel()
	require.Equal(t, commands.ExitFailed, <-code)
}

func TestAttach(t *testing.T) {
	_, server := serveStreams(t)
	require.Equal(t, result{"input", "", 0}, run(t, server, "input", "attach", "-i", "web", "-c", "app"))
	// The container decides whether it has a terminal.
	require.Equal(t, result{"on a terminal: ", "If you don't see a command prompt, try pressing enter.\n", 0}, run(t, server, "", "attach", "web", "-c", "shell"))
	require.Equal(t, result{"", "Unable to use a TTY - container app did not allocate one\n", 0}, run(t, server, "", "attach", "-t", "web", "-c", "app"))
}

func TestPortForward(t *testing.T) {
	h, server := serveStreams(t)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "path "+r.URL.Path) }))
	t.Cleanup(web.Close)
	h.web = web.Listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	errReader, errWriter := io.Pipe()
	failures := newLines(errReader)
	p := program(server, w, errWriter)
	code := make(chan int, 1)
	go func() {
		defer errWriter.Close()
		code <- p.Main(ctx, []string{"port-forward", "web", ":http", ":81"})
		_ = w.Close()
	}()
	lines := newLines(r)
	var ports []string
	for len(ports) < 2 { // the command prints one line for each address of each port
		found := regexp.MustCompile(`^Forwarding from 127\.0\.0\.1:(\d+) -> \d+$`).FindStringSubmatch(lines.next(t))
		if found != nil {
			ports = append(ports, found[1])
		}
	}
	go lines.drain()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/one", "/two"} {
		answer, err := client.Get("http://127.0.0.1:" + ports[0] + path)
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, "path "+path, string(text))
	}
	_, err := client.Get("http://127.0.0.1:" + ports[1])
	require.Error(t, err)
	require.Contains(t, failures.next(t), "forward port 81: ")
	cancel()
	require.Equal(t, commands.ExitOK, <-code)
}

// lines reads the output lines of a running command.
type lines struct{ all chan string }

func newLines(r io.Reader) lines {
	l := lines{make(chan string, 100)}
	go func() {
		defer close(l.all)
		var text []byte
		for b := make([]byte, 1); ; {
			if _, err := r.Read(b); err != nil {
				return
			}
			if b[0] == '\n' {
				l.all <- string(text)
				text = nil
				continue
			}
			text = append(text, b[0])
		}
	}()
	return l
}

func (l lines) next(t *testing.T) string {
	t.Helper()
	line, ok := <-l.all
	require.True(t, ok, "the command has ended")
	return line
}

func (l lines) drain() {
	for range l.all {
	}
}

func TestPortForward_PortIsInUse(t *testing.T) {
	_, server := serveStreams(t)
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	r := run(t, server, "", "port-forward", "--address", "127.0.0.1", "web", port+":80")
	require.Equal(t, commands.ExitFailed, r.code)
	require.Contains(t, r.stderr, "listen on the local port: listen tcp 127.0.0.1:"+port)
}

func TestCp(t *testing.T) {
	_, server := serveStreams(t)
	local, remote := t.TempDir(), t.TempDir()
	write := func(parts ...string) {
		file := filepath.Join(parts[:len(parts)-1]...)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(parts[len(parts)-1]), 0o600))
	}
	read := func(parts ...string) string {
		text, err := os.ReadFile(filepath.Join(parts...))
		require.NoError(t, err)
		return string(text)
	}
	cp := func(from, to string) {
		t.Helper()
		require.Equal(t, result{}, run(t, server, "", "cp", "-c", "app", from, to))
	}
	big := strings.Repeat("0123456789", 100_000)
	write(local, "tree", "a.txt", "a")
	write(local, "tree", "sub", "b.txt", big)
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(local, "tree", "link")))

	cp(filepath.Join(local, "tree"), "web:"+remote+"/copy")
	require.Equal(t, "a", read(remote, "copy", "a.txt"))
	require.Equal(t, big, read(remote, "copy", "sub", "b.txt"))
	cp(filepath.Join(local, "tree", "a.txt"), "default/web:"+remote+"/")
	require.Equal(t, "a", read(remote, "a.txt"))

	cp("web:"+remote+"/copy", filepath.Join(local, "back"))
	require.Equal(t, big, read(local, "back", "sub", "b.txt"))
	cp("web:"+remote+"/a.txt", local)
	require.Equal(t, "a", read(local, "a.txt"))

	r := run(t, server, "", "cp", "-c", "app", "web:"+remote+"/missing", local)
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "missing: Cannot stat")
	r = run(t, server, "", "cp", "-c", "app", "web:"+remote+"/a.txt", filepath.Join(local, "no", "folder"))
	require.Equal(t, commands.ExitFailed, r.code)
	require.Contains(t, r.stderr, "no such file or directory")
}
