package streaming_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/fakecri/streaming"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is a node with one running container, and its streams on a real socket.
type bed struct {
	*fakecri.Node
	t                  *testing.T
	sandbox, container string
}

func newBed(t *testing.T, program fakecri.Program, change ...func(*fakecri.Config)) *bed {
	t.Helper()
	web := httptest.NewUnstartedServer(nil)
	server := streaming.New(web.Listener.Addr().String())
	cfg := fakecri.Config{
		Images:   []fakecri.Image{{Name: "app"}},
		Programs: map[string]fakecri.Program{"app": program},
		Listen:   net.Listen,
		Streamer: server.Streamer,
	}
	for _, f := range change {
		f(&cfg)
	}
	n, err := fakecri.New(cfg)
	require.NoError(t, err)
	web.Config.Handler = server
	web.Start()
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		n.Shutdown()
	})
	b := &bed{Node: n, t: t}
	pod := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "ns", Uid: "uid"}}
	b.sandbox, err = n.RunPodSandbox(t.Context(), pod, "")
	require.NoError(t, err)
	b.container, err = n.CreateContainer(t.Context(), b.sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "app"},
	}, pod)
	require.NoError(t, err)
	require.NoError(t, n.StartContainer(t.Context(), b.container))
	return b
}

// dial opens a URL that the node has returned, like kubectl.
func (b *bed) dial(url string) *websocket.Conn {
	b.t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{"v4.channel.k8s.io"}}
	conn, answer, err := dialer.DialContext(b.t.Context(), strings.Replace(url, "http", "ws", 1), nil)
	require.NoError(b.t, err)
	require.NoError(b.t, answer.Body.Close())
	b.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// read returns the data of each channel until the other side closes the stream.
func read(conn *websocket.Conn) map[byte]string {
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

const (
	stdout = 1
	stderr = 2
	status = 3
)

func TestExec(t *testing.T) {
	t.Parallel()
	b := newBed(t, fakecri.Program{Exec: map[string]fakecri.Exec{
		"cat x": {Stdout: "hello", Stderr: "oops", ExitCode: 3},
		"true":  {},
	}})
	exec := func(cmd ...string) map[byte]string {
		answer, err := b.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: b.container, Cmd: cmd, Stdout: true, Stderr: true})
		require.NoError(t, err)
		return read(b.dial(answer.GetUrl()))
	}
	got := exec("cat", "x")
	require.Equal(t, "hello", got[stdout])
	require.Equal(t, "oops", got[stderr])
	require.Contains(t, got[status], `"reason":"NonZeroExitCode"`)
	require.Contains(t, got[status], `"message":"3"`)
	require.Contains(t, exec("true")[status], `"status":"Success"`)
	require.Contains(t, exec("no", "such")[status], `"status":"Failure"`)
}

func TestExec_WithoutARequestedStream(t *testing.T) {
	t.Parallel()
	b := newBed(t, fakecri.Program{Exec: map[string]fakecri.Exec{"cat x": {Stdout: "hello", Stderr: "oops"}}})
	answer, err := b.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: b.container, Cmd: []string{"cat", "x"}, Stdout: true})
	require.NoError(t, err)
	got := read(b.dial(answer.GetUrl()))
	require.Equal(t, "hello", got[stdout])
	require.Empty(t, got[stderr])
}

func TestAttach_StreamsTheOutput(t *testing.T) {
	t.Parallel()
	b := newBed(t, fakecri.Program{Log: []string{"one", "two"}, Runtime: 1e9})
	answer, err := b.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: b.container, Stdout: true})
	require.NoError(t, err)
	require.Contains(t, read(b.dial(answer.GetUrl()))[status], `"status":"Success"`, "the stream must end with the container")
}

func TestPortForward(t *testing.T) {
	t.Parallel()
	b := newBed(t, fakecri.Program{Ports: []fakecri.Port{{Number: 8080}}})
	answer, err := b.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: b.sandbox, Port: []int32{8080}})
	require.NoError(t, err)
	conn := b.dial(answer.GetUrl() + "?ports=8080")
	require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, []byte("\x00GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")))
	require.Contains(t, read(conn)[0], "200 OK")
}

func TestURL_SecondRequestIsNotFound(t *testing.T) {
	t.Parallel()
	b := newBed(t, fakecri.Program{})
	answer, err := b.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: b.container, Cmd: []string{"true"}, Stdout: true})
	require.NoError(t, err)
	read(b.dial(answer.GetUrl()))
	again := httptest.NewRequestWithContext(t.Context(), http.MethodGet, answer.GetUrl(), nil)
	again.RequestURI = ""
	second, err := http.DefaultTransport.RoundTrip(again)
	require.NoError(t, err)
	require.NoError(t, second.Body.Close())
	require.Equal(t, http.StatusNotFound, second.StatusCode)
	http.DefaultClient.CloseIdleConnections()
}

func TestServer_ServesOneNode(t *testing.T) {
	t.Parallel()
	server := streaming.New("127.0.0.1:1")
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/exec/x", nil))
	require.Equal(t, http.StatusNotFound, w.Code, "without a node, the response must be 404")
	_, err := fakecri.New(fakecri.Config{Streamer: server.Streamer})
	require.NoError(t, err)
	_, err = fakecri.New(fakecri.Config{Streamer: server.Streamer})
	require.ErrorContains(t, err, "another node")
}
