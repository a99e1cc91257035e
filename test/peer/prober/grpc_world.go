package prober

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A health is a gRPC health check that runs a few times, and its server.
type health struct {
	Service string
	Meets   meets
	Runs    [][]frame // what the server sends for each request; the last entry is repeated
}

// meets is the kind of server behind a connection.
type meets string

const (
	serving meets = "a server"
	refused meets = "no server"
	hangup  meets = "a server that closes the connection"
	garbage meets = "a server of another protocol"
	silent  meets = "a server that does not answer"
)

// A frame is one thing that a server sends.
type frame struct {
	Kind   string
	Fields [][2]string
	Data   []byte
	Pad    int
	End    bool
	Code   uint32
}

func drawHealth(d *judge.Draw) health {
	w := health{Meets: serving, Service: judge.Pick(d, "", "db", "ü", strings.Repeat("s", 300), "bad \xff")}
	if d.Chance(5) {
		w.Meets = judge.Pick(d, refused, refused, refused, hangup, garbage, silent)
		w.Service = ""
	}
	for range d.Between(1, 3) {
		w.Runs = append(w.Runs, drawFrames(d))
	}
	return w
}

// drawFrames draws a response: a valid one, with one or two unusual things.
func drawFrames(d *judge.Draw) (all []frame) {
	head := [][2]string{{":status", "200"}, {"content-type", "application/grpc"}}
	if d.Chance(10) {
		head[0][1] = judge.Pick(d, "404", "500", "503", "403", "401", "429", "301", "204", "abc", "799", "400", "502", "504")
	}
	if d.Chance(12) {
		head[1][1] = judge.Pick(d, "application/grpc+proto", "application/grpc;x", "application/grpcx", "text/plain", "")
	}
	if d.Chance(4) {
		i := d.Int(2)
		head = slices.Delete(head, i, i+1)
	}
	encoded := d.Chance(8)
	if encoded {
		head = append(head, [2]string{"grpc-encoding", judge.Pick(d, "gzip", "identity", "snappy", "")})
	}
	if d.Chance(8) {
		all = append(all, frame{Kind: judge.Pick(d, "ping", "settings", "window", "unknown", "hint")})
	}
	trailers := drawTrailers(d)
	if d.Chance(12) { // trailers only
		return append(all, frame{Kind: "headers", Fields: append(head, trailers...), End: true})
	}
	all = append(all, frame{Kind: "headers", Fields: head, End: d.Chance(3)})
	messages := judge.Pick(d, 1, 1, 1, 1, 1, 1, 0, 2)
	for range messages {
		all = append(all, drawMessage(d, encoded)...)
	}
	if messages == 2 { // the kubelet names one of several faults at random
		return append(all, frame{Kind: "headers", Fields: trailers, End: true})
	}
	if d.Chance(6) {
		all = append(all, frame{Kind: judge.Pick(d, "ping", "settings", "window", "unknown", "headers"), Fields: head})
	}
	switch {
	case d.Chance(10):
		code := uint32(d.Int(16))
		if code == uint32(http2.ErrCodeRefusedStream) {
			all = nil // before anything else
		}
		return append(all, frame{Kind: "reset", Code: code})
	case d.Chance(4):
		return append(all, frame{Kind: "close"})
	case d.Chance(4):
		return append(all, frame{Kind: "data", End: true})
	default:
		return append(all, frame{Kind: "headers", Fields: trailers, End: true})
	}
}

func drawTrailers(d *judge.Draw) [][2]string {
	trailers := [][2]string{{"grpc-status", "0"}}
	if d.Chance(30) {
		trailers[0][1] = judge.Pick(d, "12", "4", "1", "2", "3", "5", "6", "7", "8", "9", "10", "11", "13", "14", "15", "16", "17", "99", "-1", "x", "", "00", "4294967296", "1:", "2147483648", "+5")
	}
	if d.Chance(25) {
		trailers = append(trailers, [2]string{"grpc-message", judge.Pick(d, "so it is", "w%C3%B6rter%0A", "100%", "%zz%4", "%", "", "%25")})
	}
	if d.Chance(4) {
		trailers = trailers[1:]
	}
	return append(trailers, [2]string{"x-more", "1"})
}

// drawMessage draws a message, in one or more frames. An encoded message is more often marked
// as compressed.
func drawMessage(d *judge.Draw, encoded bool) (all []frame) {
	body := []byte{8, byte(judge.Pick(d, 1, 1, 1, 1, 2, 0, 3, 4, 100))}
	if d.Chance(12) {
		body = judge.Pick(d, []byte{}, []byte{8}, []byte{8, 2, 8, 1}, []byte{18, 1, 'x', 8, 1}, []byte{10, 1, 1}, []byte{0xff}, []byte{8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
			[]byte{0, 1}, []byte{11, 12}, []byte{8, 0x80, 0x80, 0x80, 0x80, 0x10}, []byte{0x80, 0x80, 0x80, 0x80, 0x10, 1}, bytes.Repeat([]byte{16, 1}, 4000))
	}
	message := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	message = append(message, body...)
	if d.Chance(8) || encoded && d.Chance(50) {
		message[0] = byte(judge.Pick(d, 1, 2, 255))
	}
	if d.Chance(3) { // the length in the message's prefix is too large
		binary.BigEndian.PutUint32(message[1:], judge.Pick[uint32](d, 20000, 16<<10, 16<<10+1, 5<<20, 1<<31))
	}
	if d.Chance(6) {
		message = message[:d.Int(len(message)+1)]
	}
	pieces := judge.Pick(d, 1, 1, 1, 2, 3)
	for i := range pieces {
		n := len(message) / (pieces - i)
		all = append(all, frame{Kind: "data", Data: message[:n], Pad: judge.Pick(d, 0, 0, 0, 100)})
		message = message[n:]
	}
	return all
}

// A healthServer serves a world on loopback.
type healthServer struct {
	w        health
	listener net.Listener
	serving  sync.WaitGroup

	mu       sync.Mutex
	run      int
	requests []string
	conns    []net.Conn
}

func newHealthServer(t *testing.T, w health) *healthServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &healthServer{w: w, listener: l}
	if w.Meets == refused {
		require.NoError(t, l.Close())
		return s
	}
	s.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			s.serving.Go(func() { s.serve(c); _ = c.Close() })
		}
	})
	return s
}

func (s *healthServer) port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// begin begins a run.
func (s *healthServer) begin(run int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run, s.requests = run, nil
}

func (s *healthServer) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *healthServer) close() {
	_ = s.listener.Close() // it may be closed
	s.mu.Lock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
}

func (s *healthServer) serve(c net.Conn) {
	switch s.w.Meets {
	case hangup:
		return
	case garbage:
		_, _ = io.WriteString(c, "220 ready\r\n")
		_, _ = io.Copy(io.Discard, c)
		return
	case silent:
		_, _ = io.Copy(io.Discard, c)
		return
	case serving, refused:
	}
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var block bytes.Buffer
	w := &frameWriter{f: f, block: &block, encoder: hpack.NewEncoder(&block), conn: c}
	if f.WriteSettings() != nil {
		return
	}
	for w.serveFrame(s) == nil {
	}
}

// A frameWriter answers the requests of one connection.
type frameWriter struct {
	f       *http2.Framer
	block   *bytes.Buffer
	encoder *hpack.Encoder
	conn    net.Conn
	head    string
	body    []byte
}

// serveFrame reads a frame, and answers if it is the end of a request.
func (w *frameWriter) serveFrame(s *healthServer) error {
	next, err := w.f.ReadFrame()
	if err != nil {
		return err
	}
	switch f := next.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return w.f.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return w.f.WritePing(true, f.Data)
		}
	case *http2.MetaHeadersFrame:
		var lines []string
		for _, field := range f.Fields {
			if field.Name != "grpc-timeout" && field.Name != ":authority" {
				lines = append(lines, field.Name+": "+field.Value)
			}
		}
		slices.Sort(lines)
		w.head, w.body = strings.Join(lines, "\n"), nil
	case *http2.DataFrame:
		w.body = append(w.body, f.Data()...)
		if f.StreamEnded() {
			for _, answer := range s.next(w.head + "\n" + strconv.Quote(short(string(w.body)))) {
				if err := w.send(f.StreamID, answer); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// next records a request and returns the response.
func (s *healthServer) next(request string) []frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, request)
	return s.w.Runs[s.run]
}

// send sends one frame of an answer.
func (w *frameWriter) send(id uint32, f frame) error {
	switch f.Kind {
	case "headers", "hint":
		if f.Kind == "hint" {
			f.Fields = [][2]string{{":status", "103"}, {"link", "a"}}
		}
		w.block.Reset()
		for _, field := range f.Fields {
			if err := w.encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
				return err
			}
		}
		return w.f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.block.Bytes(), EndHeaders: true, EndStream: f.End})
	case "data":
		if f.Pad > 0 {
			return w.f.WriteDataPadded(id, f.End, f.Data, make([]byte, f.Pad))
		}
		return w.f.WriteData(id, f.End, f.Data)
	case "reset":
		return w.f.WriteRSTStream(id, http2.ErrCode(f.Code))
	case "ping":
		return w.f.WritePing(false, [8]byte{1})
	case "settings":
		return w.f.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	case "window":
		return w.f.WriteWindowUpdate(id, 1000)
	case "unknown":
		return w.f.WriteRawFrame(0x42, 7, 0, []byte("what is this"))
	default:
		if tcp, isTCP := w.conn.(*net.TCPConn); isTCP {
			_ = tcp.CloseWrite() // the client may have disconnected
		}
		_, _ = io.Copy(io.Discard, w.conn) // unread data would turn the close into a reset
		return io.EOF
	}
}
