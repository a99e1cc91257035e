package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"
)

const (
	requestTimeout = 10 * time.Second // for a client to say what it wants
	answerTimeout  = 30 * time.Second // to compute and write an answer that is no stream
	pageTimeout    = 5 * time.Second  // to write the page, a verdict on health or a refusal
	pieceTimeout   = 10 * time.Second // to write a piece of a stream
	idleTimeout    = time.Minute
	maxHeaderBytes = 16 << 10
	shutdownGrace  = 2 * time.Second
)

// Server serves a [Config]. Make it with New.
type Server struct {
	cfg     Config
	token   *fileToken // nil: none is needed
	cert    *fileCert  // nil: no TLS
	streams chan struct{}
}

// New returns a Server, or an error that names every problem with cfg. It reads the
// files of its Access, and starts nothing.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("server: invalid config: %w", err)
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
		return nil, fmt.Errorf("server: %w", err)
	}
	return s, nil
}

// Run serves on the listener, which it closes, until ctx is done.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	conns := newConnections(s.cfg.MaxConnections)
	server := &http.Server{
		Handler:        s.guard(s.Handler(), isLoopback(listener.Addr())),
		ReadTimeout:    requestTimeout, // of a body too, that nobody here wants
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		Protocols:      new(http.Protocols),
		ConnState:      conns.changed,
		ConnContext:    conns.label,
		// It would answer OPTIONS * before anybody was asked for a token.
		DisableGeneralOptionsHandler: true,
		// So that streams end when ctx is done.
		BaseContext: func(net.Listener) context.Context { return ctx },
		// What net/http has to say is about clients that went away and failed handshakes.
		ErrorLog: log.New(debugWriter{s.cfg.Logger}, "", 0),
	}
	server.Protocols.SetHTTP1(true) // the limits here are about connections
	stopped := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-done: // it could not serve
		}
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		err := server.Shutdown(grace)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close() // a client that reads too slowly holds up nobody
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
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http: %w", err)
	}
	return shutdown
}

// Handler answers all endpoints, without the limits and without asking for a token.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, e := range s.endpoints() {
		mux.Handle("GET "+e.pattern, e.handler)
	}
	return mux
}

// endpoint is a pattern of paths, as [http.ServeMux] reads it, and who answers there.
type endpoint struct {
	pattern string
	handler http.Handler
}

// endpoints are those that the config has something for.
func (s *Server) endpoints() (all []endpoint) {
	c := s.cfg
	mounted := func(pattern string, h http.Handler) {
		if h != nil {
			all = append(all, endpoint{pattern, h})
		}
	}
	on := func(there bool, pattern string, h http.HandlerFunc) {
		if there {
			mounted(pattern, slowly(h))
		}
	}
	mounted("/livez", healthHandler("livez", []Check{Alive()}))
	mounted("/healthz", healthHandler("healthz", append([]Check{Alive()}, healthzChecks(c.Checks)...)))
	mounted("/readyz", healthHandler("readyz", append([]Check{Alive()}, c.Checks...)))
	on(c.Pods != nil, "/pods", s.pods)
	on(c.RunningPods != nil, "/runningpods", s.runningPods)
	on(c.RunningPods != nil, "/runningpods/{$}", s.runningPods)
	on(c.Summary != nil, "/stats/summary", s.summary)
	on(c.Configz != nil, "/configz", s.configz)
	on(c.Logs != nil, "/logs/{namespace}/{pod}/{container}", s.stream(s.logs))
	on(c.Status != nil, "/status", s.status)
	on(c.Explain != nil, "/explain/{namespace}/{pod}", s.explain)
	on(c.Events != nil, "/events", s.events)
	on(c.EvictionPlan != nil, "/plan/eviction", s.plan(c.EvictionPlan))
	on(c.GCPlan != nil, "/plan/gc", s.plan(c.GCPlan))
	mounted("/metrics", slowly(c.Metrics))
	mounted("/metrics/probes", slowly(c.ProbeMetrics))
	mounted("/metrics/resource", slowly(c.ResourceMetrics))
	mounted("/{$}", c.Page)
	if c.Pprof {
		all = append(all, s.profiles()...)
	}
	return all
}
