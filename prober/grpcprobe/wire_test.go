package grpcprobe_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// listen starts a server that calls serve for each connection. serve must return when the
// connection is closed. Connections are numbered from 1.
func listen(tb testing.TB, serve func(conn net.Conn, number int)) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		conns []net.Conn
	)
	group.Go(func() {
		for number := 1; ; number++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			group.Go(func() {
				defer conn.Close()
				serve(conn, number)
			})
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		group.Wait()
	})
	return l.Addr().String()
}

// wire is the server's end of an HTTP/2 connection, frame by frame.
type wire struct {
	*http2.Framer
	net.Conn
	number  int // number of the connection
	block   bytes.Buffer
	encoder *hpack.Encoder
	// fields are the headers of the last request, and body is its message.
	fields map[string]string
	body   []byte
}

// scripted starts a server that does the HTTP/2 handshake and then answers each request with
// the given function. Write errors are ignored, because the client has disconnected.
func scripted(tb testing.TB, answer func(w *wire, id uint32), settings ...http2.Setting) string {
	tb.Helper()
	return listen(tb, func(conn net.Conn, number int) {
		w := newWire(conn, settings...)
		w.number = number
		for w.serveFrame(answer) {
		}
	})
}

// newWire does the HTTP/2 handshake.
func newWire(conn net.Conn, settings ...http2.Setting) *wire {
	w := &wire{Conn: conn, Framer: http2.NewFramer(conn, conn)}
	w.encoder, w.ReadMetaHeaders = hpack.NewEncoder(&w.block), hpack.NewDecoder(4096, nil)
	_, _ = io.ReadFull(conn, make([]byte, len(http2.ClientPreface))) // at the end of the connection there is nothing to read
	_ = w.WriteSettings(settings...)
	return w
}

// serveFrame serves one frame, and reports whether there may be another frame.
func (w *wire) serveFrame(answer func(w *wire, id uint32)) bool {
	frame, err := w.ReadFrame()
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			_ = w.WriteSettingsAck()
		}
	case *http2.MetaHeadersFrame:
		w.fields, w.body = map[string]string{}, nil
		for _, field := range f.Fields {
			w.fields[field.Name] = field.Value
		}
	case *http2.DataFrame:
		w.body = append(w.body, f.Data()...)
		_ = w.WriteWindowUpdate(0, max(f.Length, 1))
		if f.StreamEnded() {
			answer(w, f.StreamID)
		}
	}
	return err == nil
}

// head writes headers or trailers: pairs of names and values.
func (w *wire) head(id uint32, last bool, pairs ...string) {
	w.block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		_ = w.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.block.Bytes(), EndHeaders: true, EndStream: last})
}

// begin writes the headers of a response, data writes a part of its body, and end writes its
// trailers.
func (w *wire) begin(id uint32, pairs ...string) {
	w.head(id, false, append([]string{":status", "200", "content-type", "application/grpc"}, pairs...)...)
}

func (w *wire) end(id uint32, pairs ...string) {
	if pairs == nil {
		pairs = []string{"grpc-status", "0"}
	}
	w.head(id, true, pairs...)
}

func (w *wire) data(id uint32, b []byte) { _ = w.WriteData(id, false, b) }

// well writes a complete valid response.
func (w *wire) well(id uint32) {
	w.begin(id)
	w.data(id, message(0, 8, 1))
	w.end(id)
}

// message returns a message with its prefix.
func message(format byte, payload ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{format}, uint32(len(payload))), payload...)
}
