package kubeletapi

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// endGrace is how long the server waits for the runtime to end a stream after the agent has
// observed that the container or sandbox has ended. The runtime sends the exit code in this time.
const endGrace = 2 * time.Second

// stream is a stream of the runtime that a client requests.
type stream struct {
	subresource string // exec, attach or portforward
	// open returns the URL at which the runtime serves the stream.
	open func(context.Context) (target string, err error)
	// runs reports whether the container or sandbox of the stream still runs.
	runs   func() bool
	wanted streams // of exec and attach
}

// connect connects the client with a stream of the runtime. It returns when the client or the
// runtime has closed the stream, or when the request's context is done. It also returns endGrace
// after the agent has observed that the container or sandbox has ended. It refuses a request
// without the header Upgrade and does not call the runtime for it.
func (s *Server) connect(w http.ResponseWriter, r *http.Request, wanted stream) {
	if r.Header.Get("Upgrade") == "" {
		refuse(w, &statusError{code: http.StatusInternalServerError, message: "Upgrade request required"}) // as in the kubelet
		return
	}
	text, err := wanted.open(r.Context())
	if err != nil {
		refuse(w, runtimeError(err))
		return
	}
	target, err := url.Parse(text)
	if err != nil {
		refuse(w, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	var watch sync.WaitGroup
	watch.Go(func() { s.awaitEnd(ctx, wanted.runs, cancel) })
	defer watch.Wait()
	defer cancel()
	upgrade := &hijacker{ResponseWriter: w, ctx: ctx, end: cancel, idle: s.cfg.StreamIdleTimeout}
	defer upgrade.release()
	s.serveStream(upgrade, r.WithContext(ctx), target, wanted)
}

// serveStream serves a stream in the protocol that the client requests. Runtimes serve SPDY and old
// versions of the WebSocket protocol. serveStream forwards these protocols without translation.
func (s *Server) serveStream(w *hijacker, r *http.Request, target *url.URL, wanted stream) {
	var serve func(http.ResponseWriter, *http.Request, *url.URL, streams) error
	switch {
	case wanted.subresource == "portforward" && tunnelProtocol(r) != "":
		serve = serveTunnel
	case wanted.subresource != "portforward" && wantsChannels(r):
		serve = serveChannels
	default:
		s.forward(w, r, target)
		return
	}
	s.cfg.WebSocketStream(wanted.subresource)
	if err := serve(w, r, target, wanted.wanted); err != nil {
		s.logStream(r, err)
		if w.stop == nil { // the client has no response yet
			refuse(w, err)
		}
	}
}

// awaitEnd calls runs() after each change of the agent's pods. When runs() returns false, awaitEnd
// waits for endGrace and calls end(). If ctx is done before that, awaitEnd does not call end().
func (s *Server) awaitEnd(ctx context.Context, runs func() bool, end func()) {
	for range s.cfg.Agent.Changes(ctx) {
		if runs() {
			continue
		}
		grace := s.cfg.Clock.NewTimer(endGrace)
		defer grace.Stop()
		select {
		case <-grace.C():
			end()
		case <-ctx.Done():
		}
		return
	}
}

// forward forwards the bytes of the client and of the runtime unchanged.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, target *url.URL) {
	transport := newTransport()
	defer transport.CloseIdleConnections()
	(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = target, target.Host
			p.Out.Header.Del("Authorization") // the token is not for the runtime
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			s.logStream(r, err)
			refuse(w, err)
		},
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug), // about connections that the client or the runtime closes
	}).ServeHTTP(w, r)
}

func (s *Server) logStream(r *http.Request, err error) {
	s.cfg.Logger.WarnContext(r.Context(), "could not connect a client of exec, attach or port-forward with the runtime", "path", r.URL.Path, "err", err)
}

// newTransport returns a transport for a single request to the runtime.
func newTransport() *http.Transport { return &http.Transport{DisableKeepAlives: true} }

// hijacker is a response writer that closes a hijacked connection when ctx is done. net/http does
// not close hijacked connections.
type hijacker struct {
	http.ResponseWriter
	ctx  context.Context
	end  context.CancelFunc // of ctx
	idle time.Duration      // see idleConn
	conn *idleConn          // nil until the connection is hijacked
	stop func() bool        // nil until the connection is hijacked
	done func()
}

// Hijack implements [http.Hijacker].
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	done := holdConnection(h.ctx)
	conn, buffer, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		done()
		return nil, nil, err
	}
	h.conn = newIdleConn(conn, h.idle, h.end)
	h.done, h.stop = done, context.AfterFunc(h.ctx, func() { _ = conn.Close() }) // ignore the error: the closed connection ends the stream
	return h.conn, buffer, nil
}

// release stops watching ctx, and lets Run return.
func (h *hijacker) release() {
	if h.stop != nil {
		h.conn.timer.Stop()
		h.stop()
		h.done()
	}
}

// idleConn is a connection that calls a function when no byte was sent or received for the duration
// in the field idle. Deadlines of the connection are not enough: while a stream waits for the
// runtime, nothing reads from or writes to the client.
type idleConn struct {
	net.Conn
	idle  time.Duration
	timer clock.Timer
}

func newIdleConn(conn net.Conn, idle time.Duration, end func()) *idleConn {
	return &idleConn{Conn: conn, idle: idle, timer: clock.RealClock{}.AfterFunc(idle, end)}
}

// Read implements [net.Conn].
func (c *idleConn) Read(data []byte) (int, error) {
	n, err := c.Conn.Read(data)
	if n > 0 {
		c.timer.Reset(c.idle)
	}
	return n, err
}

// Write implements [net.Conn].
func (c *idleConn) Write(data []byte) (int, error) {
	n, err := c.Conn.Write(data)
	if n > 0 {
		c.timer.Reset(c.idle)
	}
	return n, err
}
