package kubeletapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/utils/clock"
)

// The protocols of streams. Runtimes do not serve v5.channel.k8s.io, and do not serve SPDY in a
// WebSocket (a tunnel). So the server translates these two protocols to SPDY, as the kubelet does.
const (
	spdyProtocol     = "v4.channel.k8s.io" // of exec and attach over SPDY
	channelsProtocol = "v5.channel.k8s.io" // of exec and attach over WebSocket
	tunnelPrefix     = "SPDY/3.1+"         // prefix of the protocol of a port-forward over SPDY in a WebSocket
)

// The channels of v5.channel.k8s.io. The first byte of a message is the channel. A message that
// begins with closeChannel closes the channel in the second byte of the message.
const (
	stdinChannel = iota
	stdoutChannel
	stderrChannel
	errorChannel // gets the status when the command has ended
	resizeChannel
	closeChannel = 255
)

const (
	handshakeTimeout = 10 * time.Second // for a client or a runtime to change the protocol
	closeTimeout     = 2 * time.Second  // for a client to close a stream that has ended
	maxRefusalBytes  = 4 << 10          // of a runtime's response that refuses a stream
	maxStatusBytes   = 64 << 10         // of the status of a command
	copyBytes        = 32 << 10         // read and written at once
)

func isWebSocket(r *http.Request) bool { return websocket.IsWebSocketUpgrade(r) }

// wantsChannels reports whether the client requests v5.channel.k8s.io.
func wantsChannels(r *http.Request) bool {
	return isWebSocket(r) && slices.Contains(websocket.Subprotocols(r), channelsProtocol)
}

// tunnelProtocol returns the protocol that the client requests inside of a tunnel, such as
// portforward.k8s.io, or "" if the client requests no tunnel.
func tunnelProtocol(r *http.Request) string {
	for _, protocol := range websocket.Subprotocols(r) {
		if inner, ok := strings.CutPrefix(protocol, tunnelPrefix); ok && strings.HasSuffix(inner, ".k8s.io") && isWebSocket(r) {
			return inner
		}
	}
	return ""
}

// accept changes the protocol of the client's connection to WebSocket. If this fails, accept
// responds to the client with the error.
func accept(w http.ResponseWriter, r *http.Request, protocol string) (*websocket.Conn, error) {
	upgrader := websocket.Upgrader{Subprotocols: []string{protocol}, HandshakeTimeout: handshakeTimeout}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil, fmt.Errorf("change the protocol of the client to WebSocket: %w", err)
	}
	return conn, nil
}

// spdyRequest returns a request to the runtime for a SPDY connection.
func spdyRequest(ctx context.Context, target *url.URL, protocol string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), http.NoBody)
	if err == nil {
		r.Header.Set(httpstream.HeaderProtocolVersion, protocol)
	}
	return r, err
}

// serveTunnel connects the client's WebSocket, which contains a SPDY connection, with the SPDY
// connection of the runtime.
func serveTunnel(w http.ResponseWriter, r *http.Request, target *url.URL, _ streams) error {
	request, err := spdyRequest(r.Context(), target, tunnelProtocol(r))
	if err != nil {
		return err
	}
	request.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	request.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	transport := newTransport()
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	runtime, ok := answer.Body.(io.ReadWriteCloser)
	if !ok {
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxRefusalBytes))
		return errors.Join(fmt.Errorf("the runtime refused the port-forward: %s: %s", answer.Status, strings.TrimSpace(string(text))), err)
	}
	client, err := accept(w, r, tunnelPrefix+answer.Header.Get(httpstream.HeaderProtocolVersion))
	if err != nil {
		return err
	}
	var copies sync.WaitGroup
	copies.Go(func() {
		_ = eachMessage(client, func(message io.Reader, buffer []byte) error {
			_, err := io.CopyBuffer(onlyWriter{runtime}, message, buffer)
			return err
		})
		_, _ = runtime.Close(), client.Close() // the client or the runtime has disconnected
	})
	_ = copyMessages(client, runtime, nil)
	endConnection(client, copies.Wait)
	return nil
}

// onlyWriter hides the method ReadFrom of a writer, because [io.CopyBuffer] does not use its buffer
// for a writer with this method.
type onlyWriter struct{ io.Writer }

// eachMessage passes each message of the client to a function, until the function returns an error
// or the client closes the connection. The function may copy the message with the buffer.
func eachMessage(client *websocket.Conn, use func(message io.Reader, buffer []byte) error) error {
	buffer := make([]byte, copyBytes)
	for {
		_, message, err := client.NextReader()
		if err != nil {
			return err
		}
		if err := use(message, buffer); err != nil {
			return err
		}
	}
}

// copyMessages sends the data of the runtime to the client until the client or the runtime closes
// its connection. Each message begins with the prefix.
func copyMessages(client messageWriter, runtime io.Reader, prefix []byte) error {
	buffer := make([]byte, len(prefix)+copyBytes)
	copy(buffer, prefix)
	for {
		n, err := runtime.Read(buffer[len(prefix):])
		if n > 0 {
			if err := client.WriteMessage(websocket.BinaryMessage, buffer[:len(prefix)+n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

type messageWriter interface {
	WriteMessage(kind int, data []byte) error
}

// endConnection informs the client that the stream has ended. It closes the connection when the
// client has closed its side, and at the latest after closeTimeout. An earlier close could discard
// data that the client has not received yet. During the call, another goroutine must read the
// client's messages until the connection is closed. readerEnded waits for this goroutine.
func endConnection(client *websocket.Conn, readerEnded func()) {
	late := clock.RealClock{}.AfterFunc(closeTimeout, func() { _ = client.Close() })
	normal := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	if client.WriteControl(websocket.CloseMessage, normal, clock.RealClock{}.Now().Add(closeTimeout)) != nil {
		_ = client.Close() // the client has disconnected
	}
	readerEnded()
	late.Stop()
	_ = client.Close()
}

// serveChannels connects the channels of the client's WebSocket with the streams of a SPDY
// connection of the runtime.
func serveChannels(w http.ResponseWriter, r *http.Request, target *url.URL, wanted streams) error {
	runtime, err := dialRuntime(r.Context(), target)
	if err != nil {
		return fmt.Errorf("connect to the runtime's stream: %w", err)
	}
	defer runtime.close()
	if err := runtime.openStreams(wanted); err != nil {
		return err
	}
	client, err := accept(w, r, channelsProtocol)
	if err != nil {
		return err
	}
	to := &channelWriter{conn: client}
	var input, outputs sync.WaitGroup
	input.Go(func() {
		_ = eachMessage(client, runtime.receive)
		runtime.close() // the client has disconnected
		_ = client.Close()
	})
	for _, channel := range []byte{stdoutChannel, stderrChannel} {
		if from := runtime.streams[channel]; from != nil {
			outputs.Go(func() {
				if errors.Is(copyMessages(to, from, []byte{channel}), errClient) {
					runtime.close()
				}
				drain(from)
			})
		}
	}
	// Read the status before waiting for the outputs. The runtime may send the status while the
	// client still receives output, and an unread status would block the output streams: see drain.
	status, err := io.ReadAll(io.LimitReader(runtime.streams[errorChannel], maxStatusBytes))
	drain(runtime.streams[errorChannel])
	outputs.Wait()
	if len(status) == 0 {
		status = lostStatus(err)
	}
	_ = to.WriteMessage(websocket.BinaryMessage, append([]byte{errorChannel}, status...)) // fails if the client has disconnected
	endConnection(client, input.Wait)
	return nil
}

// drain reads a stream to its end. While the data of one stream is not read, the SPDY library
// handles no other frame of the connection, not even the end of the connection.
func drain(stream io.Reader) { _, _ = io.Copy(io.Discard, stream) }

// lostStatus returns the status of a command whose runtime has closed the stream without a status.
// Without a status, the client would report success.
func lostStatus(err error) []byte {
	message := "the runtime closed the stream before the command ended"
	if err != nil {
		message = fmt.Sprintf("%s: %v", message, err)
	}
	data, _ := json.Marshal(metav1.Status{ // can't fail: JSON can encode every value of this type
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError,
		Message: message,
	})
	return data
}

// errClient is returned by a channelWriter that can't write.
var errClient = errors.New("could not send data to the client")

// channelWriter writes messages of several goroutines.
type channelWriter struct {
	mu   sync.Mutex
	conn *websocket.Conn
}

// WriteMessage implements messageWriter.
func (c *channelWriter) WriteMessage(kind int, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.conn.WriteMessage(kind, data); err != nil {
		return errors.Join(errClient, err)
	}
	return nil
}

// runtimeConn is a SPDY connection to the runtime.
type runtimeConn struct {
	conn    net.Conn
	spdy    httpstream.Connection
	streams [resizeChannel + 1]httpstream.Stream // by channel; nil: not requested
	stop    func() bool
}

// dialRuntime opens a SPDY connection for exec or attach. The connection is closed when ctx is
// done.
func dialRuntime(ctx context.Context, target *url.URL) (*runtimeConn, error) {
	c := &runtimeConn{stop: func() bool { return false }}
	tripper, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err == nil {
				c.conn, c.stop = conn, context.AfterFunc(ctx, func() { _ = conn.Close() })
			}
			return conn, err
		},
	}})
	if err != nil {
		return nil, err
	}
	request, err := spdyRequest(ctx, target, spdyProtocol)
	if err != nil {
		return nil, err
	}
	answer, err := tripper.RoundTrip(request)
	if err == nil {
		c.spdy, err = tripper.NewConnection(answer)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// close closes the connection, which ends all reads and writes. It may be called several times.
func (c *runtimeConn) close() {
	c.stop()
	if c.conn != nil {
		_ = c.conn.Close() // not spdy.Close, which waits for blocked writes
	}
}

// openStreams opens the streams that the client wants, and the stream of the status.
func (c *runtimeConn) openStreams(wanted streams) error {
	for _, s := range []struct {
		channel int
		kind    string
		wanted  bool
	}{
		{errorChannel, corev1.StreamTypeError, true},
		{stdinChannel, corev1.StreamTypeStdin, wanted.stdin},
		{stdoutChannel, corev1.StreamTypeStdout, wanted.stdout},
		{stderrChannel, corev1.StreamTypeStderr, wanted.stderr},
		{resizeChannel, corev1.StreamTypeResize, wanted.tty},
	} {
		if !s.wanted {
			continue
		}
		stream, err := c.spdy.CreateStream(http.Header{corev1.StreamType: {s.kind}})
		if err != nil {
			return fmt.Errorf("open the runtime's stream %s: %w", s.kind, err)
		}
		c.streams[s.channel] = stream
	}
	return nil
}

// receive passes a message of the client to the runtime's stream for the channel of the message. It
// discards the data if there is no such stream, or if the runtime has closed the stream.
func (c *runtimeConn) receive(message io.Reader, buffer []byte) error {
	var head [2]byte
	if _, err := io.ReadFull(message, head[:1]); err != nil {
		return ignoreEOF(err) // an empty message
	}
	if head[0] == closeChannel {
		if _, err := io.ReadFull(message, head[1:]); err != nil {
			return ignoreEOF(err)
		}
		if to := c.input(head[1]); to != nil {
			_ = to.Close() // fails if the runtime has closed the stream
		}
		return nil
	}
	to := io.Discard
	if stream := c.input(head[0]); stream != nil {
		to = stream
	}
	if _, err := io.CopyBuffer(onlyWriter{to}, message, buffer); err == nil {
		return nil
	}
	_, err := io.CopyBuffer(onlyWriter{io.Discard}, message, buffer)
	return err
}

// input returns the stream of a channel to which clients may write. It returns nil for other
// channels, and for streams that the client has not requested.
func (c *runtimeConn) input(channel byte) httpstream.Stream {
	if channel == stdinChannel || channel == resizeChannel {
		return c.streams[channel]
	}
	return nil
}

// ignoreEOF returns nil for the end of a message, and otherwise err.
func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
