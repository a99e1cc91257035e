package grpcprobe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/prober"
)

const (
	// maxAnswer is the maximum size of the message of a response, and of its headers.
	maxAnswer = 16 << 10
	// bufferSize is the size of the read buffer and of the write buffer of a connection. By
	// default, gRPC allocates 32 KiB for each.
	bufferSize = 1 << 10
)

// Config configures a [Checker].
type Config struct {
	// Dial opens connections. Default: a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// UserAgent is the user agent, to which gRPC appends the name and version of its
	// client. Default "kube-probe/1.36".
	UserAgent string
	// IdleTimeout is how long the Checker keeps an idle connection after its last check.
	// Default 1m.
	IdleTimeout time.Duration
	// Clock is the time source of a check, which first closes the connections that have
	// reached IdleTimeout. Between checks, gRPC closes such connections, and measures
	// IdleTimeout in real time. Default the system clock.
	Clock clock.PassiveClock
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	if c.IdleTimeout < 0 {
		errs = append(errs, fmt.Errorf("field IdleTimeout: %v is negative", c.IdleTimeout))
	}
	if !httpguts.ValidHeaderFieldValue(c.UserAgent) {
		errs = append(errs, fmt.Errorf("field UserAgent: %q is not a valid header value", c.UserAgent))
	}
	return errors.Join(errs...)
}

// Checker does gRPC health checks. Create it with [New]. It is safe for concurrent use.
type Checker struct {
	cfg Config

	mu     sync.Mutex
	conns  []*conn
	closed bool
}

// conn is a connection. Only one check at a time uses it, so that a failed check can close
// it.
type conn struct {
	*grpc.ClientConn
	address string
	tls     bool
	busy    bool
	used    time.Time   // when its last check ended
	ended   atomic.Bool // gRPC has closed the network connection during the current check
}

// trackedConn is a network connection that records when gRPC closes it. gRPC closes a
// connection before it returns an error to the calls in progress.
type trackedConn struct {
	net.Conn
	ended *atomic.Bool
}

// Close implements [net.Conn].
func (w trackedConn) Close() error {
	w.ended.Store(true)
	return w.Conn.Close()
}

// New returns a checker without connections, or an error if cfg is invalid.
func New(cfg Config) (*Checker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("grpcprobe: invalid config: %w", err)
	}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "kube-probe/1.36"
	}
	if cfg.IdleTimeout == 0 {
		cfg.IdleTimeout = time.Minute
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Checker{cfg: cfg}, nil
}

// Close closes all connections, including those in use. Later checks fail.
func (c *Checker) Close() error {
	c.mu.Lock()
	conns := c.conns
	c.conns, c.closed = nil, true
	c.mu.Unlock()
	var errs []error
	for _, k := range conns {
		errs = append(errs, k.Close())
	}
	return errors.Join(errs...)
}

// Check checks the health of r.Service and returns [prober.Succeeded] or [prober.Failed]
// with the kubelet's text. If ctx is done before the server responds, the check has failed.
func (c *Checker) Check(ctx context.Context, r prober.GRPCRequest) (prober.Outcome, string) {
	if k := c.idleConn(r); k != nil {
		outcome, text, ended := c.check(ctx, k, r)
		if !ended || ctx.Err() != nil {
			return outcome, text
		}
		// The end of a reused connection is not a failure of the server: repeat the check over
		// a new connection.
	}
	k, err := c.connect(r)
	if err != nil {
		return prober.Failed, fmt.Sprintf("error: failed to connect service at %q: %v", r.Address, err)
	}
	outcome, text, _ := c.check(ctx, k, r)
	return outcome, text
}

// idleConn returns an idle connection for r, marked as busy for one check, or nil.
func (c *Checker) idleConn(r prober.GRPCRequest) *conn {
	c.closeExpired()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.conns {
		if !r.Fresh && !k.busy && k.address == r.Address && k.tls == r.TLS {
			k.busy = true
			return k
		}
	}
	return nil
}

// closeExpired closes the connections that have been idle for IdleTimeout.
func (c *Checker) closeExpired() {
	var expired []*conn
	c.mu.Lock()
	now := c.cfg.Clock.Now()
	c.conns = slices.DeleteFunc(c.conns, func(k *conn) bool {
		old := !k.busy && now.Sub(k.used) >= c.cfg.IdleTimeout
		if old {
			expired = append(expired, k)
		}
		return old
	})
	c.mu.Unlock()
	for _, k := range expired { // without the lock, because Close may take time
		_ = k.Close() // an error does not matter, because no check uses k
	}
}

// connect returns a new connection for r, marked as busy for one check.
func (c *Checker) connect(r prober.GRPCRequest) (*conn, error) {
	security := insecure.NewCredentials()
	if r.TLS {
		// The server's certificate is not verified (KEP-4939).
		security = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	k := &conn{address: r.Address, tls: r.TLS, busy: true}
	var err error
	k.ClientConn, err = grpc.NewClient("passthrough:///"+r.Address,
		grpc.WithTransportCredentials(security),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := c.cfg.Dial(ctx, "tcp", address)
			if t, ok := conn.(*net.TCPConn); ok {
				_ = t.SetLinger(0) // the connection is closed by a reset and leaves no socket in TIME_WAIT
			}
			return trackedConn{conn, &k.ended}, err
		}),
		grpc.WithNoProxy(),
		grpc.WithUserAgent(c.cfg.UserAgent),
		grpc.WithIdleTimeout(c.cfg.IdleTimeout),
		grpc.WithReadBufferSize(bufferSize),
		grpc.WithWriteBufferSize(bufferSize),
		grpc.WithMaxHeaderListSize(maxAnswer),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // k has not connected, so closing it takes no time
		return nil, errors.Join(errors.New("grpcprobe: the checker is closed"), k.Close())
	}
	c.conns = append(c.conns, k)
	return k, nil
}

// check does a check over k and releases k. The result ended reports whether k ended before
// the server responded.
func (c *Checker) check(ctx context.Context, k *conn, r prober.GRPCRequest) (outcome prober.Outcome, text string, ended bool) {
	k.ended.Store(false)
	connected := k.waitUntilReady(ctx)
	var header, trailer metadata.MD
	response, err := grpc_health_v1.NewHealthClient(k).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: r.Service},
		grpc.Header(&header), grpc.Trailer(&trailer))
	answered := len(header)+len(trailer) > 0
	ended = !answered && k.ended.Load()
	c.release(k, answered && !r.Fresh)
	switch {
	case err != nil:
		return prober.Failed, errorText(r, connected, err), ended
	case response.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return prober.Failed, fmt.Sprintf("service unhealthy (responded with %q)", response.GetStatus().String()), false
	default:
		return prober.Succeeded, "service healthy", false
	}
}

// waitUntilReady waits until k is connected, has failed to connect, or ctx is done. It
// reports whether k is connected.
func (k *conn) waitUntilReady(ctx context.Context) bool {
	for {
		state := k.GetState()
		switch state {
		case connectivity.Ready:
			return true
		case connectivity.TransientFailure, connectivity.Shutdown:
			return false
		case connectivity.Idle:
			k.Connect()
		case connectivity.Connecting:
		}
		if !k.WaitForStateChange(ctx, state) {
			return false
		}
	}
}

// release keeps k for the next check, or closes it.
func (c *Checker) release(k *conn, keep bool) {
	c.mu.Lock()
	k.busy, k.used = false, c.cfg.Clock.Now()
	if !keep {
		c.conns = slices.DeleteFunc(c.conns, func(other *conn) bool { return other == k })
	}
	c.mu.Unlock()
	if !keep {
		_ = k.Close() // an error does not matter, because no check uses k
	}
}

// errorText returns the kubelet's text for a check that ended in an error.
func errorText(r prober.GRPCRequest, connected bool, err error) string {
	status := grpcstatus.Convert(err)
	late := status.Code() == codes.DeadlineExceeded
	switch {
	case !connected && late:
		return fmt.Sprintf("timeout: failed to connect service %q within %s: %v", r.Address, r.Timeout, context.DeadlineExceeded)
	case !connected:
		return fmt.Sprintf("error: failed to connect service at %q: %s", r.Address, status.Message())
	case late:
		return fmt.Sprintf("timeout: health rpc did not complete within %s", r.Timeout)
	case status.Code() == codes.Unimplemented:
		return "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + status.Message()
	default:
		return fmt.Sprintf("error: health rpc probe failed: %v", err)
	}
}
