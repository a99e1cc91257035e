package kubeletapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	requestTimeout = 10 * time.Second // for the client to send a request
	answerTimeout  = 30 * time.Second // to compute and write a response that is not a stream
	pageTimeout    = 5 * time.Second  // to write the page, a health check or a refusal
	pieceTimeout   = 10 * time.Second // to write a piece of a stream
	idleTimeout    = time.Minute
	maxHeaderBytes = 16 << 10
	shutdownGrace  = 2 * time.Second
)

// Server serves an [Agent] over HTTP. Create it with [New].
type Server struct {
	cfg     Config
	users   *authenticator // nil: requests need no user
	refused *refusalLog
	streams chan struct{}
}

// New returns a Server. It reads the files of [Config].Access and starts nothing. The error
// reports every problem with cfg.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("kubeletapi: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, streams: make(chan struct{}, cfg.MaxStreams), refused: &refusalLog{to: cfg.Logger, clock: cfg.Clock}}
	var errs []error
	if cfg.Access.Authenticates() {
		u, err := newAuthenticator(cfg.Access, cfg.Clock, cfg.Logger)
		errs, s.users = append(errs, err), u
	}
	if cfg.Access.CertFile != "" {
		c, err := newFileCert(cfg.Access.CertFile, cfg.Access.KeyFile, cfg.Logger)
		errs, s.cfg.Access.GetCertificate = append(errs, err), c.get
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("kubeletapi: %w", err)
	}
	return s, nil
}

// Run serves all endpoints on the listener until ctx is done, and then returns nil. It closes the
// listener. It returns an error if [Server.Listen] would refuse the address of the listener.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	if err := s.mayListen(listener.Addr()); err != nil {
		return errors.Join(fmt.Errorf("serve HTTP: %w", err), listener.Close())
	}
	admit := s.admitUsers
	if s.users == nil {
		admit = admitHost
	}
	var encryption *tls.Config
	if s.cfg.Access.encrypts() {
		encryption = s.cfg.Access.tlsConfig()
	}
	return s.serve(ctx, listener, s.observed("readwrite", s.guard(s.Handler(), admit)), encryption)
}

// RunHealth serves only /livez, /readyz, /healthz and the paths below /healthz. It uses no
// encryption and no authentication, and accepts a listener on any address, like the kubelet's
// healthzPort. It does not call [Observer].Request. In all other respects, RunHealth is like
// [Server.Run]. The response to a failed check contains the error of the check, so prefer a
// listener on a loopback address.
func (s *Server) RunHealth(ctx context.Context, listener net.Listener) error {
	return s.serve(ctx, listener, s.guard(s.handler(onHealthPort), admitPlain(listener.Addr())), nil)
}

// RunReadOnly serves the paths of the kubelet's readOnlyPort without encryption and authentication:
// the paths of [Server.RunHealth], /pods, and all paths below /stats and /metrics. As in the
// kubelet, the paths of streams, logs, running pods and profiles respond with 405, and all other
// paths with 404. The listener may have any address. In all other respects, RunReadOnly is like
// [Server.Run]. Each client that can reach the listener can read the specs of all pods, and their
// environment variables.
func (s *Server) RunReadOnly(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("/", s.handler(onReadOnlyPort))
	for _, path := range []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/"} {
		mux.Handle(path, disabled(debuggingDisabled))
	}
	return s.serve(ctx, listener, s.observed("readonly", s.guard(mux, admitPlain(listener.Addr()))), nil)
}

// admitPlain returns the function that admits requests on a listener without authentication.
func admitPlain(addr net.Addr) func(*http.Request) *refusal {
	if isLoopback(addr) {
		return admitHost
	}
	return admitAll
}

// serve serves requests on the listener until ctx is done.
func (s *Server) serve(ctx context.Context, listener net.Listener, handler http.Handler, encryption *tls.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conns := newConnections(s.cfg.MaxConnections)
	conns.invalid = func(conn net.Conn) { s.refused.invalid(ctx, conn.RemoteAddr().String()) }
	server := &http.Server{
		Handler:        handler,
		TLSConfig:      encryption,
		ReadTimeout:    requestTimeout, // includes the body
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		Protocols:      new(http.Protocols),
		ConnState:      conns.changed,
		ConnContext:    conns.label,
		// By default, net/http responds to OPTIONS * without checking a token.
		DisableGeneralOptionsHandler: true,
		// Streams end when ctx is done.
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(serverLog{s.cfg.Logger.Handler()}, slog.LevelDebug),
	}
	server.Protocols.SetHTTP1(true) // HTTP/2 allows many requests per connection, but only connections are limited
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		err := server.Shutdown(grace)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close() // do not wait longer for a client that reads too slowly
		}
		stopped <- err
	}()
	var err error
	if encryption != nil {
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	cancel() // also ends streams if the listener has failed
	shutdown := <-stopped
	conns.wait()
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return shutdown
}

// serverLog logs the messages of net/http with the level Debug, for example messages about
// disconnected clients and failed handshakes. A panic of a handler gets the level Error.
type serverLog struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (h serverLog) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelError)
}

// Handle implements [slog.Handler].
func (h serverLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "http: panic serving") {
		r.Level = slog.LevelError
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// Handler returns the handler of all endpoints. The handler does not check users and hosts,
// and does not limit connections.
func (s *Server) Handler() http.Handler {
	return s.handler(func(string) bool { return true })
}

// onHealthPort reports whether RunHealth serves a path.
func onHealthPort(path string) bool {
	switch firstSegment(path) {
	case "healthz", "livez", "readyz":
		return true
	default:
		return false
	}
}

// onReadOnlyPort reports whether RunReadOnly serves a path.
func onReadOnlyPort(path string) bool {
	switch firstSegment(path) {
	case "pods", "stats", "metrics":
		return true
	default:
		return onHealthPort(path)
	}
}

// handler returns the handler of the endpoints whose patterns the given function accepts.
func (s *Server) handler(served func(path string) bool) http.Handler {
	mux := http.NewServeMux()
	for _, e := range s.endpoints() {
		if !served(e.pattern) {
			continue
		}
		if e.methods == nil {
			mux.Handle(e.pattern, e.handler)
		}
		for _, method := range e.methods {
			mux.Handle(method+" "+e.pattern, e.handler)
		}
	}
	return mux
}

// endpoint is a pattern of [http.ServeMux] and its handler.
type endpoint struct {
	pattern string
	handler http.Handler
	methods []string // GET includes HEAD; nil means any method
}

// endpoints returns the endpoints that exist with this configuration.
func (s *Server) endpoints() (all []endpoint) {
	c := s.cfg
	mounted := func(pattern string, h http.Handler) {
		if h != nil {
			all = append(all, endpoint{pattern, h, methodsOf(pattern)})
		}
	}
	mounted("/livez", s.healthHandler("livez", s.livezChecks))
	mounted("/healthz", s.healthHandler("healthz", s.healthzChecks))
	mounted("/healthz/{check}", http.HandlerFunc(s.healthCheck))
	mounted("/readyz", s.healthHandler("readyz", s.readyzChecks))
	mounted("/pods", withTimeLimit(http.HandlerFunc(s.pods)))
	mounted("/pods/{$}", withTimeLimit(http.HandlerFunc(s.pods)))
	mounted("/runningpods", withTimeLimit(http.HandlerFunc(s.runningPods)))
	mounted("/runningpods/{$}", withTimeLimit(http.HandlerFunc(s.runningPods)))
	all = append(all, endpoint{"/stats/summary", withTimeLimit(http.HandlerFunc(s.summary)), []string{http.MethodGet, http.MethodPost}})
	mounted("/agent/status", withTimeLimit(http.HandlerFunc(s.status)))
	mounted("/agent/explain/{namespace}/{pod}", withTimeLimit(http.HandlerFunc(s.explain)))
	mounted("/agent/plan/eviction", withTimeLimit(s.plan(s.evictionPlan)))
	mounted("/agent/plan/gc", withTimeLimit(s.plan(s.gcPlan)))
	mounted("/agent/images", withTimeLimit(http.HandlerFunc(s.images)))
	if c.Configz != nil {
		mounted("/configz", withTimeLimit(http.HandlerFunc(s.configz)))
	}
	if c.PodLogs != "" {
		mounted("/containerLogs/{namespace}/{pod}/{container}", withTimeLimit(s.stream(s.logs)))
	}
	if c.Events != nil {
		mounted("/agent/events", withTimeLimit(http.HandlerFunc(s.events)))
	}
	mounted("/metrics", withTimeLimit(c.Metrics))
	mounted("/metrics/probes", withTimeLimit(c.ProbeMetrics))
	mounted("/metrics/resource", withTimeLimit(c.ResourceMetrics))
	mounted("/metrics/slis", withTimeLimit(c.SLIMetrics))
	mounted("/metrics/cadvisor", withTimeLimit(c.CadvisorMetrics))
	if c.Page != nil {
		mounted("/agent/{$}", c.Page)
		mounted("/{$}", http.RedirectHandler("/agent/", http.StatusFound))
	}
	all = append(all, s.streamEndpoints()...)
	all = append(all, s.debugEndpoints()...)
	all = append(all, s.operationEndpoints()...)
	if c.Pprof {
		all = append(all, s.profiles()...)
	}
	if c.NoDebugging {
		return withoutDebugging(all)
	}
	return all
}
