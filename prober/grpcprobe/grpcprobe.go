package grpcprobe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/prober"
)

// window is more than an answer needs.
const window = 64 << 10

// Config configures a [Checker].
type Config struct {
	// Dial makes connections. Default: a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// UserAgent is what servers are told. Default "kube-probe/1.36".
	UserAgent string
	// IdleTimeout is how long a connection is kept after its last check. Default
	// 1m.
	IdleTimeout time.Duration
	// Clock is the time source for IdleTimeout. Default the system clock.
	Clock clock.PassiveClock
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	if c.IdleTimeout < 0 {
		return fmt.Errorf("field IdleTimeout: %v is negative", c.IdleTimeout)
	}
	return nil
}

// Checker checks health by gRPC. Make it with [New].
type Checker struct {
	cfg Config

	mu     sync.Mutex
	conns  map[target]*conn
	swept  time.Time
	closed bool
}

// target is what a connection is for.
type target struct {
	address string
	tls     bool
}

// conn is a connection that may be in use.
type conn struct {
	*grpc.ClientConn
	target target
	// users are the checks that use it, used is when the last one ended; gone says
	// that nobody else is to.
	users int
	used  time.Time
	gone  bool

	mu   sync.Mutex
	dead error // of the last attempt to connect
}

// New returns a checker without connections.
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
	return &Checker{cfg: cfg, conns: map[target]*conn{}, swept: cfg.Clock.Now()}, nil
}

// Close closes all connections, also those in use. Checks fail from then on.
func (c *Checker) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var errs []error
	for t, k := range c.conns {
		errs = append(errs, k.Close())
		delete(c.conns, t)
	}
	return errors.Join(errs...)
}

// errClosed says that Close was called.
var errClosed = errors.New("grpcprobe: the checker is closed")

// Check asks for the health of r.Service and returns [prober.Succeeded] or
// [prober.Failed] with the kubelet's text. It returns when ctx is done at the
// latest, which is a failure too.
func (c *Checker) Check(ctx context.Context, r prober.GRPCRequest) (prober.Outcome, string) {
	request := &grpc_health_v1.HealthCheckRequest{Service: r.Service}
	response := &grpc_health_v1.HealthCheckResponse{}
	for {
		k, kept, err := c.take(r)
		if err != nil {
			return prober.Failed, failedToConnect(r.Address, err)
		}
		err = k.Invoke(ctx, grpc_health_v1.Health_Check_FullMethodName, request, response)
		// One that has failed would make others wait before it tried again. If it
		// was a kept one, that says nothing of the server yet.
		unavailable := grpcstatus.Code(err) == codes.Unavailable
		connecting := err != nil && k.GetState() != connectivity.Ready
		c.release(k, unavailable || connecting)
		if kept && unavailable && ctx.Err() == nil {
			continue // once, as the next one is new
		}
		if err != nil {
			return prober.Failed, explain(ctx, r, k, connecting, err)
		}
		break
	}
	if s := response.GetStatus(); s != grpc_health_v1.HealthCheckResponse_SERVING {
		return prober.Failed, fmt.Sprintf("service unhealthy (responded with %q)", s)
	}
	return prober.Succeeded, "service healthy"
}

// explain says why there was no answer, in the kubelet's words.
func explain(ctx context.Context, r prober.GRPCRequest, k *conn, connecting bool, err error) string {
	if why := k.failure(); why != nil && grpcstatus.Code(err) == codes.Unavailable {
		return failedToConnect(r.Address, why)
	}
	switch grpcstatus.Code(err) {
	case codes.Unimplemented:
		return fmt.Sprintf("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s",
			grpcstatus.Convert(err).Message())
	case codes.DeadlineExceeded:
		if connecting {
			return fmt.Sprintf("timeout: failed to connect service %q within %s: %v", r.Address, r.Timeout, context.Cause(ctx))
		}
		return fmt.Sprintf("timeout: health rpc did not complete within %s", r.Timeout)
	default:
		return fmt.Sprintf("error: health rpc probe failed: %v", err)
	}
}

func failedToConnect(address string, err error) string {
	return fmt.Sprintf("error: failed to connect service at %q: %v", address, err)
}

// take returns a connection, to be released, and whether it is a kept one.
func (c *Checker) take(r prober.GRPCRequest) (k *conn, kept bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false, errClosed
	}
	now := c.cfg.Clock.Now()
	c.sweep(now)
	key := target{address: r.Address, tls: r.TLS}
	k, kept = c.conns[key]
	if r.Fresh || !kept {
		kept = false
		if k, err = c.dial(key); err != nil {
			return nil, false, err
		}
		if k.gone = r.Fresh; !k.gone {
			c.conns[key] = k
		}
	}
	k.users++
	return k, kept, nil
}

// release gives a connection back, for good if it is of no more use.
func (c *Checker) release(k *conn, useless bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.users--
	k.used = c.cfg.Clock.Now()
	if useless && c.conns[k.target] == k {
		k.gone = true
		delete(c.conns, k.target)
	}
	if k.gone && k.users == 0 {
		_ = k.Close() // nobody is left to be told
	}
}

// sweep closes what has not been used for long, now and then. It needs mu.
func (c *Checker) sweep(now time.Time) {
	if now.Sub(c.swept) < c.cfg.IdleTimeout {
		return
	}
	c.swept = now
	for t, k := range c.conns {
		if k.users == 0 && now.Sub(k.used) >= c.cfg.IdleTimeout {
			_ = k.Close() // nobody uses it
			delete(c.conns, t)
		}
	}
}

// dial returns a connection that connects when it is used.
func (c *Checker) dial(t target) (*conn, error) {
	k := &conn{target: t}
	security := insecure.NewCredentials()
	if t.tls {
		security = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	var err error
	k.ClientConn, err = grpc.NewClient("passthrough:///"+t.address,
		grpc.WithTransportCredentials(security),
		grpc.WithUserAgent(c.cfg.UserAgent),
		grpc.WithIdleTimeout(c.cfg.IdleTimeout),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		// Fixed windows spare the pings that would find out better ones.
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(window),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := c.cfg.Dial(ctx, "tcp", address)
			k.dialed(err)
			if raw, ok := conn.(*net.TCPConn); ok {
				_ = raw.SetLinger(0) // closed by a reset, it leaves nothing in TIME_WAIT
			}
			return conn, err
		}))
	return k, err
}

// dialed notes how the last attempt to connect ended.
func (k *conn) dialed(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = err
}

func (k *conn) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead
}
