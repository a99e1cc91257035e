package kubeletapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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
	token   *fileToken // nil: requests need no token
	cert    *fileCert  // nil: no TLS
	streams chan struct{}
}

// New returns a Server. It reads the files of [Config].Access and starts nothing. The error
// reports every problem with cfg.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("kubeletapi: invalid config: %w", err)
	}
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, streams: make(chan struct{}, cfg.MaxStreams)}
	var errs []error
	if cfg.Access.TokenFile != "" {
		t, err := newFileToken(cfg.Access.TokenFile, cfg.Logger)
		errs, s.token = append(errs, err), t
	}
	if cfg.Access.CertFile != "" {
		c, err := newFileCert(cfg.Access.CertFile, cfg.Access.KeyFile, cfg.Logger)
		errs, s.cert = append(errs, err), c
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("kubeletapi: %w", err)
	}
	return s, nil
}

// Run serves requests on the listener until ctx is done, and then returns nil. It closes the
// listener. It returns an error if [Server.Listen] would refuse the address of the listener.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	if err := s.mayListen(listener.Addr()); err != nil {
		return errors.Join(fmt.Errorf("serve HTTP: %w", err), listener.Close())
	}
	conns := newConnections(s.cfg.MaxConnections)
	server := &http.Server{
		Handler:        s.guard(s.Handler(), isLoopback(listener.Addr())),
		ReadTimeout:    requestTimeout, // includes the body, which no endpoint reads
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		Protocols:      new(http.Protocols),
		ConnState:      conns.changed,
		ConnContext:    conns.label,
		// By default, net/http responds to OPTIONS * without checking a token.
		DisableGeneralOptionsHandler: true,
		// Streams end when ctx is done.
		BaseContext: func(net.Listener) context.Context { return ctx },
		// net/http logs disconnected clients and failed handshakes.
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	server.Protocols.SetHTTP1(true) // HTTP/2 allows many requests per connection, but only connections are limited
	stopped := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-done: // Serve has returned
		}
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		err := server.Shutdown(grace)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close() // do not wait longer for a client that reads too slowly
		}
		stopped <- err
	}()
	var err error
	if s.cert != nil {
		server.TLSConfig = s.cert.config()
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	close(done)
	shutdown := <-stopped
	conns.wait()
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return shutdown
}

// Handler returns the handler of all endpoints. The handler does not check tokens and hosts,
// and does not limit connections.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, e := range s.endpoints() {
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
	methods []string // GET includes HEAD
}

// endpoints returns the endpoints that exist with this configuration.
func (s *Server) endpoints() (all []endpoint) {
	c := s.cfg
	mounted := func(pattern string, h http.Handler) {
		if h != nil {
			all = append(all, endpoint{pattern, h, []string{http.MethodGet}})
		}
	}
	mounted("/livez", healthHandler("livez", s.livezChecks))
	mounted("/healthz", healthHandler("healthz", s.healthzChecks))
	mounted("/healthz/{check}", http.HandlerFunc(s.healthCheck))
	mounted("/readyz", healthHandler("readyz", s.readyzChecks))
	mounted("/pods", withTimeLimit(http.HandlerFunc(s.pods)))
	mounted("/pods/{$}", withTimeLimit(http.HandlerFunc(s.pods)))
	mounted("/runningpods", withTimeLimit(http.HandlerFunc(s.runningPods)))
	mounted("/runningpods/{$}", withTimeLimit(http.HandlerFunc(s.runningPods)))
	mounted("/stats/summary", withTimeLimit(http.HandlerFunc(s.summary)))
	mounted("/agent/status", withTimeLimit(http.HandlerFunc(s.status)))
	mounted("/agent/explain/{namespace}/{pod}", withTimeLimit(http.HandlerFunc(s.explain)))
	mounted("/agent/plan/eviction", withTimeLimit(s.plan(s.evictionPlan)))
	mounted("/agent/plan/gc", withTimeLimit(s.plan(s.gcPlan)))
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
	if c.Page != nil {
		mounted("/agent/{$}", c.Page)
		mounted("/{$}", http.RedirectHandler("/agent/", http.StatusFound))
	}
	all = append(all, s.streamEndpoints()...)
	if c.Pprof {
		all = append(all, s.profiles()...)
	}
	return all
}
