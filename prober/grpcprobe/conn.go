package grpcprobe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// maxFrame is the size of the largest frame, which every server must read and
	// none may exceed unless it was told otherwise.
	maxFrame = 16 << 10
	// maxHead bounds the headers of an answer.
	maxHead = 16 << 10
	// window is what may be sent at first, on a connection or a stream.
	window = 64<<10 - 1
	// table is the size of the table by which headers are compressed.
	table = 4 << 10
)

// conn is an HTTP/2 connection with one call at a time, made by whoever has taken it:
// nobody reads from it in between. What a server says then is heard by the next call.
type conn struct {
	target target
	agent  string
	used   time.Time

	raw    net.Conn // without TLS
	writer *bufio.Writer
	framer *http2.Framer

	block   bytes.Buffer // of headers, encoded
	encoder *hpack.Encoder

	// next is the number of the next stream, window what may be sent on the
	// connection, initial what may be on each new stream, unread what has been
	// received and the server not told of.
	next            uint32
	window, initial int64
	unread          uint32
	// last says that there can be no other call.
	last bool

	call call // the current one, or that before
}

// abort closes the connection by a reset, which leaves nothing in TIME_WAIT. It also
// ends a call.
func (k *conn) abort() { _ = k.raw.Close() } // nobody is left to be told

// dial makes a connection that has not said anything yet.
func (c *Checker) dial(ctx context.Context, t target) (*conn, error) {
	raw, err := c.cfg.Dial(ctx, "tcp", t.address)
	if err != nil {
		return nil, err
	}
	if tcp, isTCP := raw.(*net.TCPConn); isTCP {
		_ = tcp.SetLinger(0) // if it cannot, it is closed the slow way
	}
	return &conn{target: t, agent: c.cfg.UserAgent, raw: raw, next: 1, window: window, initial: window}, nil
}

// hello opens the connection. It is open when the server has answered that it speaks
// HTTP/2.
func (k *conn) hello() error {
	stream := k.raw
	if k.target.tls {
		secure, err := k.secure()
		if err != nil {
			return err
		}
		stream = secure
	}
	k.writer = bufio.NewWriterSize(stream, 1<<10)
	k.framer = http2.NewFramer(k.writer, bufio.NewReaderSize(stream, 1<<10))
	k.framer.SetReuseFrames()
	k.framer.SetMaxReadFrameSize(maxFrame)
	k.framer.MaxHeaderListSize = maxHead
	k.framer.ReadMetaHeaders = hpack.NewDecoder(table, nil)
	k.encoder = hpack.NewEncoder(&k.block)

	// What the writer cannot write, it says when it is flushed.
	_, _ = k.writer.WriteString(http2.ClientPreface)
	_ = k.framer.WriteSettings(
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxHead})
	if err := k.writer.Flush(); err != nil {
		return err
	}
	frame, err := k.framer.ReadFrame()
	if err != nil {
		return fmt.Errorf("error reading server preface: %w", err)
	}
	settings, isSettings := frame.(*http2.SettingsFrame)
	if !isSettings || settings.IsAck() {
		return fmt.Errorf("initial http2 frame from server is not a settings frame: %T", frame)
	}
	return k.settings(settings)
}

// secure shakes hands for TLS. Who the server is does not matter (KEP-4939), but that
// it speaks HTTP/2 does, which it must say as part of it.
func (k *conn) secure() (net.Conn, error) {
	host, _, err := net.SplitHostPort(k.target.address)
	if err != nil {
		host = k.target.address
	}
	secure := tls.Client(k.raw, &tls.Config{InsecureSkipVerify: true, ServerName: host, NextProtos: []string{"h2"}})
	if err := secure.Handshake(); err != nil {
		return nil, fmt.Errorf("authentication handshake failed: %w", err)
	}
	if secure.ConnectionState().NegotiatedProtocol != "h2" {
		return nil, errors.New("authentication handshake failed: the server did not choose h2 by ALPN")
	}
	return secure, nil
}

// read reads one frame and does what it asks for.
func (k *conn) read() error {
	if err := k.writer.Flush(); err != nil {
		return err
	}
	frame, err := k.framer.ReadFrame()
	if _, isStream := errors.AsType[http2.StreamError](err); isStream {
		return k.malformed(err)
	}
	if err != nil {
		return err
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		return k.settings(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			return k.framer.WritePing(true, f.Data)
		}
	case *http2.WindowUpdateFrame:
		return k.widen(f)
	case *http2.GoAwayFrame:
		k.last = true
		if f.LastStreamID < k.call.id {
			k.call.end(&rpcError{code: unavailable, message: "the connection is draining", unheard: true})
		}
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case *http2.MetaHeadersFrame:
		if f.StreamID == k.call.id {
			k.call.head(f)
		}
	case *http2.DataFrame:
		return k.data(f)
	case *http2.RSTStreamFrame:
		if f.StreamID == k.call.id {
			k.call.reset(f.ErrCode)
		}
	default: // nothing that one must know
	}
	return nil
}

// malformed ends a call whose answer is against the rules. It costs the connection,
// though it need not.
func (k *conn) malformed(err error) error {
	if detail := k.framer.ErrorDetail(); detail != nil {
		err = detail
	}
	k.call.end(failf(internal, "%v", err))
	return nil
}

// settings takes those of the server that matter to one who says as little.
func (k *conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		switch s.ID {
		case http2.SettingInitialWindowSize:
			if err := s.Valid(); err != nil {
				return err
			}
			k.call.window += int64(s.Val) - k.initial
			k.initial = int64(s.Val)
		case http2.SettingHeaderTableSize:
			k.encoder.SetMaxDynamicTableSize(min(s.Val, table))
		default:
		}
		return nil
	})
	if err != nil {
		return err
	}
	return k.framer.WriteSettingsAck()
}

// widen notes that more may be sent.
func (k *conn) widen(f *http2.WindowUpdateFrame) error {
	switch f.StreamID {
	case 0:
		k.window += int64(f.Increment)
	case k.call.id:
		k.call.window += int64(f.Increment)
	}
	if max(k.window, k.call.window) > math.MaxInt32 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	return nil
}

// data takes a part of an answer, and lets the server send as much on other streams.
// It does not on the same, whose window suffices.
func (k *conn) data(f *http2.DataFrame) error {
	if f.StreamID == k.call.id {
		k.call.data(f)
	}
	if k.unread += f.Length; k.unread > window/2 {
		unread := k.unread
		k.unread = 0
		return k.framer.WriteWindowUpdate(0, unread)
	}
	return nil
}

// head sends the headers of the current call.
func (k *conn) head(timeout string) error {
	k.block.Reset()
	scheme := "http"
	if k.target.tls {
		scheme = "https"
	}
	for _, f := range [...]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: scheme},
		{Name: ":path", Value: "/grpc.health.v1.Health/Check"},
		{Name: ":authority", Value: k.target.address},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: k.agent},
		{Name: "te", Value: "trailers"},
		// It is never the same, so it is kept out of the table, for whose sake
		// it counts as sensitive.
		{Name: "grpc-timeout", Value: timeout, Sensitive: true},
	} {
		if f.Value == "" {
			continue
		}
		if err := k.encoder.WriteField(f); err != nil {
			return err
		}
	}
	if k.block.Len() > maxFrame {
		k.call.end(failf(internal, "the headers are larger than a frame (%d vs. %d)", k.block.Len(), maxFrame))
		return nil
	}
	return k.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: k.call.id, BlockFragment: k.block.Bytes(), EndHeaders: true,
	})
}

// ask makes a call and returns when it has ended, and how the call then says. An
// error is one of the connection. If there is a timeout, the server is told.
func (k *conn) ask(request []byte, timeout string) error {
	k.call = call{id: k.next, window: k.initial, body: k.call.body[:0]}
	k.next += 2
	k.last = k.last || k.next > math.MaxInt32
	if err := k.head(timeout); err != nil {
		return err
	}
	for len(request) > 0 && !k.call.ended {
		n := min(int64(len(request)), maxFrame, k.window, k.call.window)
		if n <= 0 {
			if err := k.read(); err != nil {
				return err
			}
			continue
		}
		if err := k.framer.WriteData(k.call.id, n == int64(len(request)), request[:n]); err != nil {
			return err
		}
		request, k.window, k.call.window = request[n:], k.window-n, k.call.window-n
	}
	for !k.call.ended {
		if err := k.read(); err != nil {
			return err
		}
	}
	// A stream that only one side has ended is not worth ending.
	k.last = k.last || len(request) > 0 || !k.call.clean
	return nil
}
