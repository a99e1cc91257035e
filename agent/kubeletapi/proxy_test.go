package kubeletapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/podcache"
)

// streamRuntime is a runtime that serves streams over WebSocket. Every stream begins with the
// message hello. If hang is set, a stream stays open until the client closes it.
type streamRuntime struct {
	url    string
	hang   bool
	refuse bool // rejects every stream
	err    error

	mu      sync.Mutex
	asked   []any         // requests of the agent
	headers []http.Header // HTTP headers of the streams
	got     []string      // messages of clients
}

func (f *streamRuntime) ask(request any) (url string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, request)
	return f.url + "/stream/1", f.err
}

func (f *streamRuntime) Exec(_ context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	url, err := f.ask(r)
	return &runtimeapi.ExecResponse{Url: url}, err
}

func (f *streamRuntime) Attach(_ context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	url, err := f.ask(r)
	return &runtimeapi.AttachResponse{Url: url}, err
}

func (f *streamRuntime) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	url, err := f.ask(r)
	return &runtimeapi.PortForwardResponse{Url: url}, err
}

func (f *streamRuntime) ExecSync(_ context.Context, id string, command []string, timeout time.Duration) ([]byte, []byte, error) {
	if timeout != 0 {
		return nil, nil, errors.New("the command has a time limit")
	}
	_, err := f.ask(append([]string{id}, command...))
	return []byte("out"), []byte("err"), err
}

func (f *streamRuntime) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.refuse {
		http.Error(w, "not today", http.StatusForbidden)
		return
	}
	if r.Header.Get("Upgrade") == spdyName {
		f.echo(w)
		return
	}
	upgrader := websocket.Upgrader{Subprotocols: []string{"v4.channel.k8s.io"}}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // the response contains the reason
	}
	defer conn.Close()
	f.mu.Lock()
	f.headers = append(f.headers, r.Header.Clone())
	f.mu.Unlock()
	_ = conn.WriteMessage(websocket.BinaryMessage, []byte("hello"))
	for f.hang {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.got = append(f.got, string(message))
		f.mu.Unlock()
		_ = conn.WriteMessage(websocket.BinaryMessage, message)
	}
}

// spdyName is the protocol that kubectl requests if WebSocket is not available.
const spdyName = "SPDY/3.1"

// echo switches to SPDY, and sends back the client's data until the client closes its side.
// The proxy does not interpret the protocol.
func (f *streamRuntime) echo(w http.ResponseWriter) {
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+spdyName+"\r\n\r\n")
	_, _ = io.Copy(conn, buffer)
}

// streamBed is a server with one pod in front of a streamRuntime.
type streamBed struct {
	t       *testing.T
	runtime *streamRuntime
	cfg     kubeletapi.Config
	url     string
	stop    func() error
}

func newStreamBed(t *testing.T, runtime *streamRuntime, change ...func(*kubeletapi.Config)) *streamBed {
	t.Helper()
	return newStreamBedOf(t, runtime, runtime, change...)
}

// newStreamBedOf returns a server in front of a runtime. The handler serves the streams of the
// runtime.
func newStreamBedOf(t *testing.T, runtime *streamRuntime, streams http.Handler, change ...func(*kubeletapi.Config)) *streamBed {
	t.Helper()
	web := httptest.NewServer(streams)
	t.Cleanup(web.Close)
	runtime.url = web.URL
	container := func(id, name string, state runtimeapi.ContainerState) *runtimeapi.ContainerStatus {
		return &runtimeapi.ContainerStatus{Id: id, Labels: map[string]string{"io.kubernetes.container.name": name}, State: state}
	}
	pod := agent.Pod{
		Spec: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid"}},
		Runtime: &podcache.Status{
			Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: "sandbox", State: runtimeapi.PodSandboxState_SANDBOX_READY}},
			Containers: []*runtimeapi.ContainerStatus{
				container("running", "c", runtimeapi.ContainerState_CONTAINER_RUNNING),
				container("dead", "d", runtimeapi.ContainerState_CONTAINER_EXITED),
			},
		},
	}
	stopped := agent.Pod{
		Spec:    &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "stopped", UID: "2"}},
		Runtime: &podcache.Status{Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: "old", State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}}},
	}
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	cfg := kubeletapi.Config{
		Agent: &fake{pods: []agent.Pod{pod, stopped}}, Streams: runtime, Access: kubeletapi.Access{TokenFile: token},
	}
	for _, f := range change {
		f(&cfg)
	}
	b := &streamBed{t: t, runtime: runtime, cfg: withAgent(cfg)}
	b.url, b.stop = run(t, cfg)
	return b
}

// dial opens a stream as kubectl does.
func (b *streamBed) dial(path string) (*websocket.Conn, *http.Response, error) {
	b.t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{"v4.channel.k8s.io"}, HandshakeTimeout: 10 * time.Second}
	conn, answer, err := dialer.DialContext(b.t.Context(), strings.Replace(b.url, "http", "ws", 1)+path,
		http.Header{"Authorization": {"Bearer secret"}})
	if conn != nil {
		b.t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, answer, err
}

// open opens a stream that the server must accept, and requires its first message.
func (b *streamBed) open(path string) *websocket.Conn {
	b.t.Helper()
	conn, answer, err := b.dial(path)
	require.NoError(b.t, err)
	require.NoError(b.t, answer.Body.Close())
	require.Equal(b.t, "v4.channel.k8s.io", conn.Subprotocol())
	_, message, err := conn.ReadMessage()
	require.NoError(b.t, err)
	require.Equal(b.t, "hello", string(message))
	return conn
}

// refused opens a stream that the server must reject, and returns its response.
func (b *streamBed) refused(path string) (code int, body string) {
	b.t.Helper()
	_, answer, err := b.dial(path)
	require.ErrorIs(b.t, err, websocket.ErrBadHandshake, path)
	data, err := io.ReadAll(answer.Body)
	require.NoError(b.t, err)
	require.NoError(b.t, answer.Body.Close())
	return answer.StatusCode, string(data)
}

func TestStreams_PassTheRequestToTheRuntime(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]any{
		"/exec/ns/p/c?command=cat&command=x&output=1&error=1": &runtimeapi.ExecRequest{
			ContainerId: "running", Cmd: []string{"cat", "x"}, Stdout: true, Stderr: true,
		},
		"/exec/ns/p/uid/c?command=sh&input=1&output=1&error=1&tty=1": &runtimeapi.ExecRequest{
			ContainerId: "running", Cmd: []string{"sh"}, Stdin: true, Stdout: true, Tty: true, // a terminal has no stderr
		},
		"/attach/ns/p/c?output=1":          &runtimeapi.AttachRequest{ContainerId: "running", Stdout: true},
		"/attach/ns/p/uid/c?input=1&tty=1": &runtimeapi.AttachRequest{ContainerId: "running", Stdin: true, Tty: true},
		"/portForward/ns/p?port=80,81":     &runtimeapi.PortForwardRequest{PodSandboxId: "sandbox", Port: []int32{80, 81}},
		"/portForward/ns/p/uid?port=8080":  &runtimeapi.PortForwardRequest{PodSandboxId: "sandbox", Port: []int32{8080}},
	} {
		runtime := &streamRuntime{}
		b := newStreamBed(t, runtime)
		conn := b.open(path)
		_, _, err := conn.ReadMessage()
		require.Error(t, err, "the runtime must have closed the stream")
		require.NoError(t, b.stop())
		require.Equal(t, []any{want}, runtime.asked, path)
		require.Len(t, runtime.headers, 1)
		require.Empty(t, runtime.headers[0].Get("Authorization"), "the runtime must not receive the agent's token")
	}
}

func TestStreams_CopyBothDirectionsUntilTheClientCloses(t *testing.T) {
	t.Parallel()
	runtime := &streamRuntime{hang: true}
	b := newStreamBed(t, runtime)
	conn := b.open("/attach/ns/p/c?input=1&output=1")
	for _, text := range []string{"one", "two"} {
		require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, []byte(text)))
		_, message, err := conn.ReadMessage()
		require.NoError(t, err)
		require.Equal(t, text, string(message))
	}
	require.NoError(t, conn.Close())
	require.NoError(t, b.stop())
	require.Equal(t, []string{"one", "two"}, runtime.got)
}

func TestStreams_SPDY(t *testing.T) {
	t.Parallel()
	b := newStreamBed(t, &streamRuntime{})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /exec/ns/p/c?command=true&output=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n"+
		"Connection: Upgrade\r\nUpgrade: "+spdyName+"\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n")
	require.NoError(t, err)
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusSwitchingProtocols, answer.StatusCode)
	require.Equal(t, spdyName, answer.Header.Get("Upgrade"))
	for _, text := range []string{"one", "two"} {
		_, err = io.WriteString(conn, text)
		require.NoError(t, err)
		got := make([]byte, len(text))
		_, err = io.ReadFull(reader, got)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
}

func TestRun_ReturnsTheOutput(t *testing.T) {
	t.Parallel()
	runtime := &streamRuntime{}
	b := newStreamBed(t, runtime)
	post := func(path string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer secret")
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		data, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(data)
	}
	code, body := post("/run/ns/p/c?cmd=cat+x")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "outerr", body)
	require.Equal(t, []any{[]string{"running", "cat", "x"}}, runtime.asked)
	code, body = post("/run/ns/p/d?cmd=cat+x")
	require.Equal(t, http.StatusNotFound, code)
	require.Contains(t, body, "no running container")
	runtime.err = errors.New("it failed")
	code, body = post("/run/ns/p/c?cmd=cat+x")
	require.Equal(t, http.StatusInternalServerError, code)
	require.Equal(t, "it failed\n", body)
}

func TestStreams_RefuseInvalidRequests(t *testing.T) {
	t.Parallel()
	runtime := &streamRuntime{}
	b := newStreamBed(t, runtime)
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/exec/ns/p/c?command=true":          {400, "you must specify at least 1 of stdin, stdout, stderr"},
		"/exec/ns/q/c?output=1":              {404, `pod "q" not found in namespace "ns"`},
		"/exec/ns/p/other/c?output=1":        {404, `pod "p" not found in namespace "ns"`},
		"/exec/ns/p/d?output=1":              {404, `container not found ("d")`},
		"/exec/ns/p/..%2Fc?output=1":         {404, `container not found ("../c")`},
		"/attach/ns/p/c":                     {400, "you must specify at least 1 of stdin, stdout, stderr"},
		"/attach/ns/p/x?output=1":            {404, `container not found ("x")`},
		"/portForward/ns/p?port=99999":       {400, `unable to parse "99999" as a port`},
		"/portForward/ns/p?port=0":           {400, `unable to parse "0" as a port`},
		"/portForward/ns/q?port=80":          {404, `pod "q" not found`},
		"/portForward/ns/stopped?port=80":    {404, `pod "stopped" has no ready sandbox`},
		"/portForward/ns/p/other?port=80":    {404, `pod "p" not found`},
		"/portForward/ns/p/uid/more?port=80": {404, "not found"},
	} {
		code, body := b.refused(path)
		require.Equal(t, want.code, code, path)
		require.Contains(t, body, want.body, path)
	}
	require.Empty(t, runtime.asked)
	code, _, body := get(t, http.DefaultClient, b.url+"/exec/ns/p/c?command=true&output=1", "Authorization", "Bearer secret")
	require.Equal(t, http.StatusInternalServerError, code, "the code must be the kubelet's")
	require.Equal(t, "Upgrade request required\n", body)
	require.Empty(t, runtime.asked, "the runtime must receive no request for a rejected stream")
}

func TestStreams_RuntimeErrorsHaveTheKubeletsCodes(t *testing.T) {
	t.Parallel()
	runtime := &streamRuntime{}
	b := newStreamBed(t, runtime)
	for code, want := range map[codes.Code]int{
		codes.NotFound: http.StatusNotFound, codes.ResourceExhausted: http.StatusTooManyRequests, codes.Unavailable: http.StatusInternalServerError,
	} {
		runtime.err = grpcstatus.Error(code, "as it is")
		got, body := b.refused("/exec/ns/p/c?command=true&output=1")
		require.Equal(t, want, got, code)
		require.Contains(t, body, "as it is", code)
	}
}

func TestStreams_RuntimeWithoutAServer(t *testing.T) {
	t.Parallel()
	var log lines
	runtime := &streamRuntime{}
	b := newStreamBed(t, runtime, func(c *kubeletapi.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	runtime.url = "http://127.0.0.1:1"
	code, body := b.refused("/exec/ns/p/c?command=true&output=1")
	require.Equal(t, http.StatusInternalServerError, code)
	require.Contains(t, body, "connection refused")
	require.NoError(t, b.stop())
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "path=/exec/ns/p/c")
}

func TestStreams_NeedAToken(t *testing.T) {
	t.Parallel()
	_, err := kubeletapi.New(kubeletapi.Config{Agent: &fake{}, Streams: &streamRuntime{}})
	require.ErrorContains(t, err, "field Streams: requires Access.TokenFile")
	runtime := &streamRuntime{}
	b := newStreamBed(t, runtime)
	code, _, _ := get(t, http.DefaultClient, b.url+"/exec/ns/p/c?command=true&output=1")
	require.Equal(t, http.StatusUnauthorized, code)
	require.Empty(t, runtime.asked)
	for _, path := range []string{"/exec/ns/p/c", "/attach/ns/p/uid/c", "/portForward/ns/p"} {
		code, body := ask(t, kubeletapi.Config{}, path)
		require.Equal(t, http.StatusMethodNotAllowed, code, path)
		require.Equal(t, "Debug endpoints are disabled.\n", body, path)
	}
}

// TestStreams_EndWithTheServer fails if Run returns while a stream is open, or never returns.
// The HTTP server does not close a connection that was hijacked.
func TestStreams_EndWithTheServer(t *testing.T) {
	t.Parallel()
	b := newStreamBed(t, &streamRuntime{hang: true})
	conn := b.open("/attach/ns/p/c?output=1")
	require.NoError(t, b.stop())
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, _, err := conn.ReadMessage()
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestStreams_EndWithTheListener fails if Run waits for an open stream after its listener has
// failed, because the program does not learn that nothing is served any more.
func TestStreams_EndWithTheListener(t *testing.T) {
	t.Parallel()
	b := newStreamBed(t, &streamRuntime{hang: true})
	s, err := kubeletapi.New(b.cfg)
	require.NoError(t, err)
	listener, err := s.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context(), listener) }()
	b.url = "http://" + listener.Addr().String()
	b.open("/attach/ns/p/c?output=1")
	require.NoError(t, listener.Close())
	select {
	case err := <-ended:
		require.ErrorContains(t, err, "serve HTTP: ")
	case <-time.After(10 * time.Second):
		require.Fail(t, "Run must return")
	}
}

func TestStreams_AreLimited(t *testing.T) {
	t.Parallel()
	b := newStreamBed(t, &streamRuntime{hang: true}, func(c *kubeletapi.Config) { c.MaxStreams = 1 })
	b.open("/attach/ns/p/c?output=1")
	code, _ := b.refused("/attach/ns/p/c?output=1")
	require.Equal(t, http.StatusServiceUnavailable, code)
}
