package kubeletapi_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/fakecri/streaming"
	"github.com/kubeparts/kubeparts/podcache"
)

// nodeStreams adapts a simulated node to kubeletapi.Streams.
type nodeStreams struct{ *fakecri.Node }

func (n nodeStreams) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, []byte, error) {
	return n.Node.ExecSync(ctx, id, command, timeout)
}

// streamBed is a server before a simulated node with one pod, whose streams are on a real socket.
type streamBed struct {
	t    *testing.T
	node *fakecri.Node
	url  string
	stop func() error
}

func newStreamBed(t *testing.T, program fakecri.Program, change ...func(*kubeletapi.Config)) *streamBed {
	t.Helper()
	web := httptest.NewUnstartedServer(nil)
	server := streaming.New(web.Listener.Addr().String())
	node, err := fakecri.New(fakecri.Config{
		Images:   []fakecri.Image{{Name: "app"}},
		Programs: map[string]fakecri.Program{"app": program},
		Listen:   net.Listen, Streamer: server.Streamer,
	})
	require.NoError(t, err)
	var withoutToken []string // paths of requests of which the runtime received a token
	web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			withoutToken = append(withoutToken, r.URL.Path)
		}
		server.ServeHTTP(w, r)
	})
	web.Start()
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		node.Shutdown()
		require.Empty(t, withoutToken, "the token of the agent is not for the runtime")
	})
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "ns", Uid: "uid"}}
	sandbox, err := node.RunPodSandbox(t.Context(), config, "")
	require.NoError(t, err)
	container, err := node.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "app"},
	}, config)
	require.NoError(t, err)
	require.NoError(t, node.StartContainer(t.Context(), container))
	pod := agent.Pod{
		Spec: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid"}},
		Runtime: &podcache.Status{
			Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: sandbox, State: runtimeapi.PodSandboxState_SANDBOX_READY}},
			Containers: []*runtimeapi.ContainerStatus{
				{Id: container, Labels: map[string]string{"io.kubernetes.container.name": "c"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING},
				{Id: "dead", Labels: map[string]string{"io.kubernetes.container.name": "d"}, State: runtimeapi.ContainerState_CONTAINER_EXITED},
			},
		},
	}
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	cfg := kubeletapi.Config{
		Agent: &fake{pods: []agent.Pod{pod}}, Streams: nodeStreams{node}, Access: kubeletapi.Access{TokenFile: token},
	}
	for _, f := range change {
		f(&cfg)
	}
	b := &streamBed{t: t, node: node}
	b.url, b.stop = run(t, cfg)
	return b
}

// dial opens a stream as kubectl does.
func (b *streamBed) dial(path string) (*websocket.Conn, *http.Response, error) {
	b.t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{"v4.channel.k8s.io", "v4.base64.channel.k8s.io"}, HandshakeTimeout: 10 * time.Second}
	conn, answer, err := dialer.DialContext(b.t.Context(), strings.Replace(b.url, "http", "ws", 1)+path,
		http.Header{"Authorization": {"Bearer secret"}})
	if conn != nil {
		b.t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, answer, err
}

// stream opens a stream and returns the data of each channel until the server closes it.
func (b *streamBed) stream(path string, send ...string) map[byte]string {
	b.t.Helper()
	conn, answer, err := b.dial(path)
	require.NoError(b.t, err)
	require.NoError(b.t, answer.Body.Close())
	for _, s := range send {
		require.NoError(b.t, conn.WriteMessage(websocket.BinaryMessage, []byte(s)))
	}
	got := map[byte]string{}
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return got
		}
		if len(message) > 0 {
			got[message[0]] += string(message[1:])
		}
	}
}

// refused opens a stream that the server must refuse, and returns its response.
func (b *streamBed) refused(path string) (code int, body string) {
	b.t.Helper()
	_, answer, err := b.dial(path)
	require.ErrorIs(b.t, err, websocket.ErrBadHandshake)
	data, err := io.ReadAll(answer.Body)
	require.NoError(b.t, err)
	require.NoError(b.t, answer.Body.Close())
	return answer.StatusCode, string(data)
}

// The channels of a stream's messages.
const (
	stdoutChannel = 1
	stderrChannel = 2
	statusChannel = 3
)

func TestExec_StreamsACommand(t *testing.T) {
	t.Parallel()
	b := newStreamBed(t, fakecri.Program{Exec: map[string]fakecri.Exec{"cat x": {Stdout: "hello", Stderr: "oops", ExitCode: 3}, "true": {}}})
	for _, path := range []string{"/exec/ns/p/c", "/exec/ns/p/uid/c"} {
		got := b.stream(path + "?command=cat&command=x&output=1&error=1")
		require.Equal(t, "hello", got[stdoutChannel])
		require.Equal(t, "oops", got[stderrChannel])
		require.Contains(t, got[statusChannel], `"message":"3"`, "the exit code")
	}
	require.Contains(t, b.stream("/exec/ns/p/c?command=true&output=1")[statusChannel], `"status":"Success"`)
}

func TestAttach_EndsWithTheContainer(t *testing.T) {
	t.Parallel()
	b := newStreamBed(t, fakecri.Program{Log: []string{"one", "two"}, Runtime: time.Second})
	require.Contains(t, b.stream("/attach/ns/p/c?output=1")[statusChannel], `"status":"Success"`)
}

func TestPortForward_ConnectsToThePod(t *testing.T) {
	t.Parallel()
	b := newStreamBed(t, fakecri.Program{Ports: []fakecri.Port{{Number: 8080}}})
	got := b.stream("/portForward/ns/p?port=8080&ports=8080", "\x00GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	require.Contains(t, got[0], "200 OK")
}

func TestRun_ReturnsTheOutput(t *testing.T) {
	t.Parallel()
	b := newStreamBed(t, fakecri.Program{Exec: map[string]fakecri.Exec{"cat x": {Stdout: "hello", Stderr: "oops"}, "false": {ExitCode: 1}}})
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
	require.Equal(t, "hellooops", body)
	code, body = post("/run/ns/p/d?cmd=cat+x")
	require.Equal(t, http.StatusNotFound, code)
	require.Contains(t, body, "no running container")
	code, _ = post("/run/ns/p/c?cmd=nosuch")
	require.Equal(t, http.StatusInternalServerError, code)
}

func TestStreams_RefuseInvalidRequests(t *testing.T) {
	t.Parallel()
	b := newStreamBed(t, fakecri.Program{})
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
		"/portForward/ns/p":                  {400, `query parameter "port" is required`},
		"/portForward/ns/q?port=80":          {404, `pod "q" not found`},
		"/portForward/ns/p/other?port=80":    {404, `pod "p" not found`},
		"/portForward/ns/p/uid/more?port=80": {404, "not found"},
	} {
		code, body := b.refused(path)
		require.Equal(t, want.code, code, path)
		require.Contains(t, body, want.body, path)
	}
	code, _, body := get(t, http.DefaultClient, b.url+"/exec/ns/p/c?command=true&output=1", "Authorization", "Bearer secret")
	require.Equal(t, http.StatusInternalServerError, code, "as in the kubelet")
	require.Equal(t, "Upgrade request required\n", body)
}

func TestStreams_RuntimeErrorsHaveTheKubeletsCodes(t *testing.T) {
	t.Parallel()
	b := newStreamBed(t, fakecri.Program{})
	require.NoError(t, b.node.StopPodSandbox(t.Context(), b.sandbox()))
	code, body := b.refused("/exec/ns/p/c?command=true&output=1")
	require.Equal(t, http.StatusInternalServerError, code, "the agent does not know yet that the container has ended")
	require.NotEmpty(t, body)
}

func (b *streamBed) sandbox() string {
	b.t.Helper()
	all, err := b.node.ListPodSandbox(b.t.Context(), nil)
	require.NoError(b.t, err)
	require.Len(b.t, all, 1)
	return all[0].GetId()
}

func TestStreams_NeedAToken(t *testing.T) {
	t.Parallel()
	_, err := kubeletapi.New(kubeletapi.Config{Agent: &fake{}, Streams: nodeStreams{}})
	require.ErrorContains(t, err, "field Streams: requires Access.TokenFile")
	b := newStreamBed(t, fakecri.Program{})
	code, _, _ := get(t, http.DefaultClient, b.url+"/exec/ns/p/c?command=true&output=1")
	require.Equal(t, http.StatusUnauthorized, code)
	for _, path := range []string{"/exec/ns/p/c", "/attach/ns/p/uid/c", "/portForward/ns/p"} {
		code, body := ask(t, kubeletapi.Config{}, path)
		require.Equal(t, http.StatusMethodNotAllowed, code, path)
		require.Equal(t, "Debug endpoints are disabled.\n", body, path)
	}
}

// TestStreams_EndWithTheServer fails if Run returns while a stream is open, or never: the
// server does not close a connection that it has handed over.
func TestStreams_EndWithTheServer(t *testing.T) {
	t.Parallel()
	b := newStreamBed(t, fakecri.Program{}) // its container runs for ever
	conn, answer, err := b.dial("/attach/ns/p/c?output=1")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.NoError(t, b.stop())
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	for err == nil {
		_, _, err = conn.ReadMessage()
	}
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestStreams_AreLimited(t *testing.T) {
	t.Parallel()
	b := newStreamBed(t, fakecri.Program{}, func(c *kubeletapi.Config) { c.MaxStreams = 1 })
	conn, answer, err := b.dial("/attach/ns/p/c?output=1")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	code, _ := b.refused("/attach/ns/p/c?output=1")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool {
		next, answer, err := b.dial("/attach/ns/p/c?output=1")
		if answer != nil {
			_ = answer.Body.Close()
		}
		if err == nil {
			_ = next.Close()
		}
		return err == nil
	}, 10*time.Second, 20*time.Millisecond)
}
