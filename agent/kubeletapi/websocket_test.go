package kubeletapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// The channels of v5.channel.k8s.io.
const (
	toStdin = iota
	fromStdout
	fromStderr
	fromStatus
	toResize
	toClose = 255
)

// spdyRuntime is a runtime that serves streams over SPDY.
type spdyRuntime struct {
	streamRuntime
	// command runs with the streams of a client, by their type. The connection is closed when it
	// returns.
	command func(conn httpstream.Connection, streams map[string]httpstream.Stream)
	// streams is the number of streams that a client opens before the command runs.
	streams int

	lock      sync.Mutex
	protocols []string // protocols that clients requested
}

// ServeHTTP accepts a connection and runs the command.
func (f *spdyRuntime) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.lock.Lock()
	f.protocols = append(f.protocols, r.Header.Get(httpstream.HeaderProtocolVersion))
	f.lock.Unlock()
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io", "portforward.k8s.io"}); err != nil {
		return // the response contains the reason
	}
	opened := make(chan httpstream.Stream, 10)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			opened <- s
		}()
		return nil
	})
	if conn == nil {
		return
	}
	streams := map[string]httpstream.Stream{}
	for range f.streams {
		select {
		case s := <-opened:
			streams[s.Headers().Get(corev1.StreamType)] = s
		case <-conn.CloseChan():
			return
		}
	}
	f.command(conn, streams)
	_ = conn.Close()
	<-conn.CloseChan()
}

// newSPDYBed returns a server in front of a runtime that runs a command with the given number of
// streams.
func newSPDYBed(t *testing.T, streams int, command func(httpstream.Connection, map[string]httpstream.Stream), change ...func(*kubeletapi.Config)) (*streamBed, *spdyRuntime) {
	t.Helper()
	runtime := &spdyRuntime{command: command, streams: streams}
	b := newStreamBedOf(t, &runtime.streamRuntime, runtime, change...)
	return b, runtime
}

// sendOn sends data on a channel.
func sendOn(t *testing.T, conn *websocket.Conn, channel byte, data string) {
	t.Helper()
	require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, data...)))
}

// receiveAll returns the data of each channel until the server closes the connection, and the error
// of the close.
func receiveAll(t *testing.T, conn *websocket.Conn) (map[byte]string, error) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	got := map[byte]string{}
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return got, err
		}
		got[message[0]] += string(message[1:])
	}
}

func TestChannels_TranslateToSPDY(t *testing.T) {
	t.Parallel()
	var counted []string
	b, runtime := newSPDYBed(t, 5, func(_ httpstream.Connection, s map[string]httpstream.Stream) {
		size := make([]byte, len(`{"Width":80}`))
		_, _ = io.ReadFull(s[corev1.StreamTypeResize], size)
		input, _ := io.ReadAll(s[corev1.StreamTypeStdin])
		_, _ = s[corev1.StreamTypeStdout].Write([]byte("got " + string(input) + " at " + string(size)))
		_, _ = s[corev1.StreamTypeError].Write([]byte(`{"status":"Success"}`))
	}, func(c *kubeletapi.Config) {
		c.WebSocketStream = func(subresource string) { counted = append(counted, subresource) }
	})
	runtime.streams = 4 // a terminal has no standard error
	conn, _, err := b.dialWith("/exec/ns/p/c?command=x&input=1&output=1&tty=1", "v5.channel.k8s.io", "v4.channel.k8s.io")
	require.NoError(t, err)
	require.Equal(t, "v5.channel.k8s.io", conn.Subprotocol())
	sendOn(t, conn, toResize, `{"Width":80}`)
	require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, nil))
	sendOn(t, conn, 77, "no such channel")
	sendOn(t, conn, fromStdout, "not an input")
	sendOn(t, conn, toStdin, "one ")
	sendOn(t, conn, toStdin, "two")
	sendOn(t, conn, toClose, "")
	sendOn(t, conn, toClose, "\x09")
	sendOn(t, conn, toClose, "\x00")
	got, err := receiveAll(t, conn)
	require.True(t, websocket.IsCloseError(err, websocket.CloseNormalClosure), err)
	require.Equal(t, `got one two at {"Width":80}`, got[fromStdout])
	require.JSONEq(t, `{"status":"Success"}`, got[fromStatus])
	require.NoError(t, b.stop())
	require.Equal(t, []string{"v4.channel.k8s.io"}, runtime.protocols)
	require.Equal(t, []string{"exec"}, counted)
	require.Len(t, runtime.asked, 1)
}

func TestChannels_SeparateOutputs(t *testing.T) {
	t.Parallel()
	b, _ := newSPDYBed(t, 3, func(_ httpstream.Connection, s map[string]httpstream.Stream) {
		_, _ = s[corev1.StreamTypeStdout].Write([]byte("out"))
		_, _ = s[corev1.StreamTypeStderr].Write([]byte("err"))
		_, _ = s[corev1.StreamTypeError].Write([]byte(`{"status":"Failure"}`))
	})
	conn, _, err := b.dialWith("/attach/ns/p/c?output=1&error=1", "v5.channel.k8s.io")
	require.NoError(t, err)
	got, _ := receiveAll(t, conn)
	require.Equal(t, map[byte]string{fromStdout: "out", fromStderr: "err", fromStatus: `{"status":"Failure"}`}, got)
}

// TestChannels_LostRuntimeIsNoSuccess fails if the client receives no status: client-go
// reports a stream without a status as a success.
func TestChannels_LostRuntimeIsNoSuccess(t *testing.T) {
	t.Parallel()
	b, _ := newSPDYBed(t, 2, func(httpstream.Connection, map[string]httpstream.Stream) {})
	conn, _, err := b.dialWith("/exec/ns/p/c?command=x&output=1", "v5.channel.k8s.io")
	require.NoError(t, err)
	got, _ := receiveAll(t, conn)
	var s metav1.Status
	require.NoError(t, json.Unmarshal([]byte(got[fromStatus]), &s))
	require.Equal(t, metav1.StatusFailure, s.Status)
	require.Equal(t, "the runtime closed the stream before the command ended", s.Message)
}

func TestChannels_ClientThatDisconnectsEndsTheStream(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	b, _ := newSPDYBed(t, 3, func(conn httpstream.Connection, s map[string]httpstream.Stream) {
		_, _ = s[corev1.StreamTypeStdout].Write([]byte("ready"))
		<-conn.CloseChan()
		close(ended)
	})
	conn, _, err := b.dialWith("/exec/ns/p/c?command=x&input=1&output=1", "v5.channel.k8s.io")
	require.NoError(t, err)
	_, _, err = conn.ReadMessage()
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	<-ended
	require.NoError(t, b.stop())
}

// TestChannels_ClientThatStopsReading fails if the goroutines of the SPDY connection leak:
// while the output is not read, they handle no other frame, not even the end of the
// connection.
func TestChannels_ClientThatStopsReading(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	b, _ := newSPDYBed(t, 2, func(_ httpstream.Connection, s map[string]httpstream.Stream) {
		defer close(ended)
		for chunk := make([]byte, 32<<10); ; {
			if _, err := s[corev1.StreamTypeStdout].Write(chunk); err != nil {
				return
			}
		}
	})
	conn, _, err := b.dialWith("/exec/ns/p/c?command=x&output=1", "v5.channel.k8s.io")
	require.NoError(t, err)
	_, _, err = conn.ReadMessage()
	require.NoError(t, err)
	require.NoError(t, b.stop(), "the server must stop although the client does not read")
	<-ended
}

func TestChannels_RuntimeThatRefuses(t *testing.T) {
	t.Parallel()
	b := newStreamBed(t, &streamRuntime{refuse: true})
	for path, protocol := range map[string]string{
		"/exec/ns/p/c?command=x&output=1": "v5.channel.k8s.io",
		"/portForward/ns/p":               "SPDY/3.1+portforward.k8s.io",
	} {
		_, answer, err := b.dialWith(path, protocol)
		require.ErrorIs(t, err, websocket.ErrBadHandshake)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusInternalServerError, answer.StatusCode, path)
		require.Contains(t, string(body), "not today", path)
	}
	b.runtime.url = "http://127.0.0.1:1"
	for _, protocol := range []string{"v5.channel.k8s.io", "SPDY/3.1+portforward.k8s.io"} {
		path := map[bool]string{true: "/exec/ns/p/c?output=1", false: "/portForward/ns/p"}[protocol == "v5.channel.k8s.io"]
		_, answer, err := b.dialWith(path, protocol)
		require.ErrorIs(t, err, websocket.ErrBadHandshake)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusInternalServerError, answer.StatusCode)
	}
}

func TestChannels_InvalidUpgrade(t *testing.T) {
	t.Parallel()
	b, _ := newSPDYBed(t, 2, func(httpstream.Connection, map[string]httpstream.Stream) {})
	code, _, body := get(t, http.DefaultClient, b.url+"/exec/ns/p/c?output=1", "Authorization", "Bearer secret",
		"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Protocol", "v5.channel.k8s.io")
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, body, "Bad Request")
	require.NoError(t, b.stop())
}

// tunnel is a connection in a WebSocket.
type tunnel struct {
	*websocket.Conn
	rest io.Reader
}

func (c *tunnel) Read(data []byte) (int, error) {
	for {
		if c.rest == nil {
			_, r, err := c.NextReader()
			if err != nil {
				return 0, err
			}
			c.rest = r
		}
		n, err := c.rest.Read(data)
		if errors.Is(err, io.EOF) {
			c.rest, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (c *tunnel) Write(data []byte) (int, error) {
	return len(data), c.WriteMessage(websocket.BinaryMessage, data)
}

func (c *tunnel) SetDeadline(at time.Time) error {
	return errors.Join(c.SetReadDeadline(at), c.SetWriteDeadline(at))
}

var _ net.Conn = (*tunnel)(nil)

func TestTunnel_PortForward(t *testing.T) {
	t.Parallel()
	var counted []string
	b, runtime := newSPDYBed(t, 1, func(conn httpstream.Connection, s map[string]httpstream.Stream) {
		data := make([]byte, 4)
		_, _ = io.ReadFull(s["data"], data)
		_, _ = s["data"].Write([]byte("got " + string(data)))
		<-conn.CloseChan()
	}, func(c *kubeletapi.Config) {
		c.WebSocketStream = func(subresource string) { counted = append(counted, subresource) }
	})
	conn, _, err := b.dialWith("/portForward/ns/p", "SPDY/3.1+portforward.k8s.io")
	require.NoError(t, err)
	require.Equal(t, "SPDY/3.1+portforward.k8s.io", conn.Subprotocol())
	client, err := spdy.NewClientConnection(&tunnel{Conn: conn})
	require.NoError(t, err)
	stream, err := client.CreateStream(http.Header{corev1.StreamType: {"data"}})
	require.NoError(t, err)
	_, err = stream.Write([]byte("ping"))
	require.NoError(t, err)
	got := make([]byte, 8)
	_, err = io.ReadFull(stream, got)
	require.NoError(t, err)
	require.Equal(t, "got ping", string(got))
	require.NoError(t, conn.Close())
	<-client.CloseChan()
	require.NoError(t, b.stop())
	require.Equal(t, []string{"portforward.k8s.io"}, runtime.protocols)
	require.Equal(t, []string{"portforward"}, counted)
}

func TestTunnel_EndsWithTheRuntime(t *testing.T) {
	t.Parallel()
	b, _ := newSPDYBed(t, 0, func(httpstream.Connection, map[string]httpstream.Stream) {})
	conn, _, err := b.dialWith("/portForward/ns/p", "SPDY/3.1+portforward.k8s.io")
	require.NoError(t, err)
	_, err = receiveAll(t, conn)
	require.True(t, websocket.IsCloseError(err, websocket.CloseNormalClosure), err)
}

func TestPortForward_WebSocketNeedsAPort(t *testing.T) {
	t.Parallel()
	b := newStreamBed(t, &streamRuntime{})
	code, body := b.refused("/portForward/ns/p")
	require.Equal(t, http.StatusBadRequest, code)
	require.Equal(t, "query parameter \"port\" is required\n", body)
}

// dialWith opens a stream with WebSocket protocols.
func (b *streamBed) dialWith(path string, protocols ...string) (*websocket.Conn, *http.Response, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	dialer := websocket.Dialer{Subprotocols: protocols}
	conn, answer, err := dialer.DialContext(ctx, strings.Replace(b.url, "http", "ws", 1)+path,
		http.Header{"Authorization": {"Bearer secret"}})
	if conn != nil {
		b.t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, answer, err
}
