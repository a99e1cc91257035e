package grpcprobe_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/prober/grpcprobe"
)

// patience is the time limit for fast operations on a busy machine.
const patience = 20 * time.Second

// reset makes a connection end by a reset when it is closed.
func reset(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) }

// hang returns when the other end has given up.
func hang(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// If a server does not use HTTP/2, the check fails at once, not at the timeout.
func TestCheck_NotAGRPCServer(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	plainTLS := httptest.NewUnstartedServer(http.NotFoundHandler())
	plainTLS.StartTLS() // this server supports only HTTP/1.1
	t.Cleanup(plainTLS.Close)
	saying := func(text string) string {
		return listen(t, func(conn net.Conn, _ int) { _, _ = io.WriteString(conn, text); hang(conn) })
	}
	for name, c := range map[string]struct {
		address string
		tls     bool
		want    string
	}{
		"HTTP/1.1":                 {web.Listener.Addr().String(), false, "HTTP/1.1 header"},
		"SSH":                      {saying("SSH-2.0-OpenSSH_9\r\n"), false, "frame too large"},
		"another frame":            {saying("\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"), false, "initial http2 frame from server is not a settings frame: *http2.PingFrame"},
		"an odd window":            {saying("\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\xff\xff\xff\xff"), false, "FLOW_CONTROL_ERROR"},
		"closed at once":           {listen(t, func(net.Conn, int) {}), false, ""},
		"reset at once":            {listen(t, func(conn net.Conn, _ int) { reset(conn) }), false, ""},
		"no TLS":                   {web.Listener.Addr().String(), true, "authentication handshake failed: tls: first record does not look like a TLS handshake"},
		"TLS, no HTTP/2":           {plainTLS.Listener.Addr().String(), true, "authentication handshake failed: "},
		"TLS, unexpected":          {plainTLS.Listener.Addr().String(), false, "error reading server preface"},
		"not an address":           {"nowhere", false, "missing port in address"},
		"not an address, with TLS": {"nowhere", true, "missing port in address"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := checker(t, grpcprobe.Config{})
			for range 2 {
				outcome, output := ask(t, k, prober.GRPCRequest{Address: c.address, TLS: c.tls}, patience)
				require.Equal(t, prober.Failed, outcome)
				require.Contains(t, output, `error: failed to connect service at "`+c.address+`": `)
				require.Contains(t, output, c.want)
			}
		})
	}
}

// If a server is slow, the check fails at the timeout, with the kubelet's text.
func TestCheck_StallingServers(t *testing.T) {
	t.Parallel()
	const connect, rpc = "timeout: failed to connect service \"ADDRESS\" within 1s: context deadline exceeded",
		"timeout: health rpc did not complete within 1s"
	for name, c := range map[string]struct {
		address string
		tls     bool
		want    string
	}{
		"nothing":            {listen(t, func(conn net.Conn, _ int) { hang(conn) }), false, connect},
		"no handshake":       {listen(t, func(conn net.Conn, _ int) { hang(conn) }), true, connect},
		"half a hello":       {listen(t, func(conn net.Conn, _ int) { _, _ = io.WriteString(conn, "\x00\x00\x06\x04"); hang(conn) }), false, connect},
		"no head":            {scripted(t, func(*wire, uint32) {}), false, rpc},
		"no message":         {scripted(t, func(w *wire, id uint32) { w.begin(id) }), false, rpc},
		"half a message":     {scripted(t, func(w *wire, id uint32) { w.begin(id); w.data(id, message(0, 8, 1)[:6]) }), false, rpc},
		"no trailers":        {scripted(t, func(w *wire, id uint32) { w.begin(id); w.data(id, message(0, 8, 1)) }), false, rpc},
		"no room":            {scripted(t, (*wire).well, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3}), false, rpc},
		"early hints, alone": {scripted(t, func(w *wire, id uint32) { w.head(id, false, ":status", "103") }), false, rpc},
		"its own deadline":   {scripted(t, func(w *wire, id uint32) { w.begin(id); w.end(id, "grpc-status", "4") }), false, rpc},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := checker(t, grpcprobe.Config{})
			for range 2 {
				began := time.Now()
				outcome, output := ask(t, k, prober.GRPCRequest{Address: c.address, TLS: c.tls}, time.Second)
				require.Equal(t, prober.Failed, outcome)
				require.Equal(t, strings.ReplaceAll(c.want, "ADDRESS", c.address), output)
				require.Less(t, time.Since(began), patience)
			}
		})
	}
}

// If a response is malformed, the check fails at once.
func TestCheck_MisbehavingServers(t *testing.T) {
	t.Parallel()
	serving := message(0, 8, 1)
	for name, c := range map[string]struct {
		answer func(w *wire, id uint32)
		want   string
	}{
		"closed":        {func(w *wire, _ uint32) { _ = w.Close() }, "code = Unavailable desc = error reading from server: EOF"},
		"reset":         {func(w *wire, _ uint32) { reset(w.Conn); _ = w.Close() }, "connection reset by peer"},
		"closed midway": {func(w *wire, id uint32) { w.begin(id); w.data(id, serving); _ = w.Close() }, "code = Unavailable desc = error reading from server: EOF"},
		"half a frame":  {func(w *wire, _ uint32) { _, _ = w.Write([]byte{0, 0, 9, 1}); _ = w.Close() }, "code = Unavailable desc = error reading from server: unexpected EOF"},
		"no frame":      {func(w *wire, _ uint32) { _, _ = w.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }, "code = Unavailable"},
		"huge":          {func(w *wire, id uint32) { w.begin(id); w.data(id, []byte{0, 1, 0, 0, 0}); hang(w.Conn) }, "code = ResourceExhausted desc = grpc: received message larger than max (16777216 vs. 16384)"},
		"huge, compressed": {func(w *wire, id uint32) {
			w.begin(id, "grpc-encoding", "gzip")
			w.data(id, []byte{1, 255, 255, 255, 255})
			hang(w.Conn)
		}, "code = ResourceExhausted desc = grpc: received message larger than max (4294967295 vs. 16384)"},
		"headers, huge": {func(w *wire, id uint32) {
			w.begin(id, "a", strings.Repeat("0", 10_000), "b", strings.Repeat("1", 10_000))
		}, "code = Internal desc = peer header list size exceeded limit"},
		"headers, no end": {func(w *wire, id uint32) {
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id})
			for w.WriteContinuation(id, false, make([]byte, 0x2000)) == nil {
			}
		}, "code = "},
		"data, no head": {func(w *wire, id uint32) { w.data(id, serving); w.end(id) }, "code = Internal desc = malformed header: missing HTTP status"},
		"a bad name":    {func(w *wire, id uint32) { w.begin(id, "Bad", "x") }, "code = Internal desc = invalid header field name"},
		"a late pseudo": {func(w *wire, id uint32) { w.begin(id, ":status", "200") }, "code = Internal desc = "},
		"no compression": {func(w *wire, id uint32) {
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0xff, 0xff, 0xff}, EndHeaders: true})
		}, "COMPRESSION_ERROR"},
		"no stream":     {func(w *wire, _ uint32) { _ = w.WriteRawFrame(http2.FrameData, 0, 0, serving) }, "PROTOCOL_ERROR"},
		"a large frame": {func(w *wire, id uint32) { w.begin(id); w.data(id, make([]byte, 20_000)) }, "frame too large"},
		"another's reset": {func(w *wire, id uint32) {
			_ = w.WriteRSTStream(id+2, http2.ErrCodeCancel)
			w.data(id+2, serving)
			w.begin(id)
			w.end(id, "grpc-status", "5")
		}, "code = NotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := scripted(t, func(w *wire, id uint32) {
				if w.number%2 == 1 && id == 1 {
					w.well(id) // so that the next request uses the same connection
					return
				}
				c.answer(w, id)
			})
			k := checker(t, grpcprobe.Config{})
			outcome, output := ask(t, k, prober.GRPCRequest{Address: address}, patience)
			require.Equal(t, prober.Succeeded, outcome, output)
			outcome, output = ask(t, k, prober.GRPCRequest{Address: address}, patience)
			require.Equal(t, prober.Failed, outcome)
			require.Contains(t, output, "error: health rpc probe failed: rpc error: ")
			require.Contains(t, output, c.want)
		})
	}
}

// A request that the server has not processed is repeated once.
func TestCheck_RepeatedOnceOverANewConnection(t *testing.T) {
	t.Parallel()
	goAway := func(w *wire, id uint32) { _ = w.WriteGoAway(max(id, 2)-2, http2.ErrCodeNo, nil) }
	refuse := func(w *wire, id uint32) { _ = w.WriteRSTStream(id, http2.ErrCodeRefusedStream) }
	last := func(w *wire, id uint32) { _ = w.WriteGoAway(id, http2.ErrCodeNo, nil); w.well(id) }
	closes := func(w *wire, _ uint32) { _ = w.Close() }
	resets := func(w *wire, _ uint32) { reset(w.Conn); _ = w.Close() }
	begins := func(w *wire, id uint32) { w.begin(id); _ = w.Close() }
	farewell := func(w *wire, id uint32) { w.well(id); _ = w.WriteGoAway(id, http2.ErrCodeNo, nil); _ = w.Close() }
	well := (*wire).well
	type step = func(w *wire, id uint32)
	for name, c := range map[string]struct {
		steps []step   // one step for each request
		want  []string // result of each check
		conns int
	}{
		"goes away":                        {[]step{goAway, well, well}, []string{"service healthy", "service healthy"}, 2},
		"goes away again":                  {[]step{goAway, goAway, well}, []string{"the connection is draining", "service healthy"}, 3},
		"goes away later":                  {[]step{well, goAway, well}, []string{"service healthy", "service healthy"}, 2},
		"goes away after this":             {[]step{last, last, well}, []string{"service healthy", "service healthy", "service healthy"}, 3},
		"went away":                        {[]step{farewell, well}, []string{"service healthy", "service healthy"}, 2},
		"refuses":                          {[]step{refuse, well, refuse, well}, []string{"service healthy", "service healthy"}, 1},
		"refuses again":                    {[]step{refuse, refuse, well}, []string{"REFUSED_STREAM", "service healthy"}, 2},
		"refuses over a reused connection": {[]step{well, refuse, refuse, well}, []string{"service healthy", "REFUSED_STREAM", "service healthy"}, 2},
		"closes a reused connection":       {[]step{well, closes, well}, []string{"service healthy", "service healthy"}, 2},
		"resets a reused connection":       {[]step{well, resets, well}, []string{"service healthy", "service healthy"}, 2},
		"closes two connections":           {[]step{well, closes, closes, well}, []string{"service healthy", "error reading from server", "service healthy"}, 3},
		"closes a new connection":          {[]step{closes, well}, []string{"error reading from server: ", "service healthy"}, 2},
		"closes during a response":         {[]step{well, begins, well}, []string{"service healthy", "error reading from server: ", "service healthy"}, 2},
		"responds Unavailable":             {[]step{well, func(w *wire, id uint32) { w.begin(id); w.end(id, "grpc-status", "14") }, well}, []string{"service healthy", "code = Unavailable", "service healthy"}, 1},
		"responds 404":                     {[]step{func(w *wire, id uint32) { w.head(id, true, ":status", "404") }, well}, []string{"does not implement", "service healthy"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked, conns atomic.Int32
			address := scripted(t, func(w *wire, id uint32) {
				conns.Store(int32(w.number))
				c.steps[asked.Add(1)-1](w, id)
			})
			k := checker(t, grpcprobe.Config{})
			for i, want := range c.want {
				_, output := ask(t, k, prober.GRPCRequest{Address: address}, patience)
				require.Contains(t, output, want, i)
			}
			require.EqualValues(t, len(c.steps), asked.Load())
			require.EqualValues(t, c.conns, conns.Load())
		})
	}
}

func TestCheck_RequestHeaders(t *testing.T) {
	t.Parallel()
	fields := make(chan map[string]string, 1)
	address := scripted(t, func(w *wire, id uint32) { fields <- w.fields; w.well(id) })
	for agent, want := range map[string]string{"": "kube-probe/1.36", "me/1": "me/1"} {
		k := checker(t, grpcprobe.Config{UserAgent: agent})
		for range 3 { // the later requests have compressed headers
			outcome, output := ask(t, k, prober.GRPCRequest{Address: address, Service: "a"}, patience)
			require.Equal(t, prober.Succeeded, outcome, output)
			told := <-fields
			require.Regexp(t, `^(1\d|20)\d{6}u$`, told["grpc-timeout"])
			delete(told, "grpc-timeout")
			require.Equal(t, map[string]string{
				":method": "POST", ":scheme": "http", ":path": "/grpc.health.v1.Health/Check", ":authority": address,
				"content-type": "application/grpc", "te": "trailers", "user-agent": want + " grpc-go/" + grpc.Version,
			}, told)
		}
		_, _ = k.Check(t.Context(), prober.GRPCRequest{Address: address})
		require.NotContains(t, <-fields, "grpc-timeout") // without a deadline the request has no timeout
	}
}

// If several checks of one address run at the same time, each has its own connection,
// and all connections are reused.
func TestCheck_Concurrent(t *testing.T) {
	t.Parallel()
	const at = 8
	var conns atomic.Int32
	var all sync.WaitGroup
	address := scripted(t, func(w *wire, id uint32) {
		conns.Store(max(conns.Load(), int32(w.number)))
		all.Done()
		all.Wait()
		w.well(id)
	})
	k := checker(t, grpcprobe.Config{})
	for range 3 {
		all.Add(at)
		var checks sync.WaitGroup
		for range at {
			checks.Go(func() {
				outcome, output := ask(t, k, prober.GRPCRequest{Address: address}, patience)
				if outcome != prober.Succeeded {
					t.Error(output)
				}
			})
		}
		checks.Wait()
	}
	require.EqualValues(t, at, conns.Load())
}

func TestCheck_Cancelled(t *testing.T) {
	t.Parallel()
	for want, server := range map[string]func(asked chan<- struct{}) string{
		"error: health rpc probe failed: rpc error: code = Canceled desc = context canceled": func(asked chan<- struct{}) string {
			return scripted(t, func(*wire, uint32) { asked <- struct{}{} })
		},
		`error: failed to connect service at "ADDRESS": context canceled`: func(asked chan<- struct{}) string {
			return listen(t, func(conn net.Conn, _ int) { asked <- struct{}{}; hang(conn) })
		},
	} {
		asked := make(chan struct{}, 2)
		address := server(asked)
		k := checker(t, grpcprobe.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-asked; cancel() }()
		outcome, output := k.Check(ctx, prober.GRPCRequest{Address: address})
		require.Equal(t, prober.Failed, outcome)
		require.Equal(t, strings.ReplaceAll(want, "ADDRESS", address), output)
		// When Close is called, the check fails as well.
		closed := make(chan error, 1)
		go func() { <-asked; closed <- k.Close() }()
		outcome, output = k.Check(t.Context(), prober.GRPCRequest{Address: address})
		require.Equal(t, prober.Failed, outcome, output)
		require.NoError(t, <-closed)
	}
	// A connection that is still being opened when Close is called is not used.
	dialing, dialed := make(chan struct{}), make(chan struct{})
	k := checker(t, grpcprobe.Config{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		close(dialing)
		<-dialed
		return new(net.Dialer).DialContext(ctx, network, address)
	}})
	go func() { <-dialing; _ = k.Close(); close(dialed) }()
	_, output := k.Check(t.Context(), prober.GRPCRequest{Address: "127.0.0.1:1"})
	require.Contains(t, output, "grpc: the client connection is closing")
}

// Idle connections are closed even if there is no further check.
func TestChecker_IdleConnectionsEnd(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{}, 10)
	address := listen(t, func(conn net.Conn, _ int) {
		defer func() { ended <- struct{}{} }()
		for w := newWire(conn); w.serveFrame((*wire).well); {
		}
	})
	k := checker(t, grpcprobe.Config{IdleTimeout: 500 * time.Millisecond})
	outcome, output := ask(t, k, prober.GRPCRequest{Address: address}, patience)
	require.Equal(t, prober.Succeeded, outcome, output)
	<-ended
}

func TestCheck_TLSEqualsPlaintext(t *testing.T) {
	t.Parallel()
	var hellos atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		_, _ = w.Write(message(0, 8, 1))
		w.Header().Set("Grpc-Status", "0")
		if r.URL.Scheme == "" && r.TLS.ServerName != "" {
			w.Header().Set("Grpc-Message", r.TLS.ServerName)
		}
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { hellos.Add(1); return nil, nil }}
	server.StartTLS()
	defer server.Close()
	k := checker(t, grpcprobe.Config{})
	for range 3 {
		outcome, output := ask(t, k, prober.GRPCRequest{Address: server.Listener.Addr().String(), TLS: true}, patience)
		require.Equal(t, prober.Succeeded, outcome, output)
	}
	require.EqualValues(t, 1, hellos.Load())
}
