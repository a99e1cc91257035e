package grpcprobe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/prober"
)

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
	var errs []error
	if c.IdleTimeout < 0 {
		errs = append(errs, fmt.Errorf("field IdleTimeout: %v is negative", c.IdleTimeout))
	}
	if !httpguts.ValidHeaderFieldValue(c.UserAgent) {
		errs = append(errs, fmt.Errorf("field UserAgent: %q cannot be the value of a header", c.UserAgent))
	}
	return errors.Join(errs...)
}

// Checker checks health by gRPC. Make it with [New].
type Checker struct {
	cfg Config

	mu sync.Mutex
	// kept are the connections that wait for a check, the one used last at the end;
	// taken are those in use.
	kept   map[target][]*conn
	taken  map[*conn]struct{}
	swept  time.Time
	timer  clock.Timer // of the next sweep, if anything is kept
	closed bool
}

// target is what a connection is for.
type target struct {
	address string
	tls     bool
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
	return &Checker{
		cfg: cfg, kept: map[target][]*conn{}, taken: map[*conn]struct{}{}, swept: cfg.Clock.Now(),
	}, nil
}

// Close closes all connections, also those in use. Checks fail from then on. There is
// never an error.
func (c *Checker) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	for k := range c.taken {
		k.abort()
	}
	for _, conns := range c.kept {
		for _, k := range conns {
			k.abort()
		}
	}
	clear(c.kept)
	return nil
}

// errClosed says that Close was called.
var errClosed = errors.New("grpcprobe: the checker is closed")

// Check asks for the health of r.Service and returns [prober.Succeeded] or
// [prober.Failed] with the kubelet's text. It returns when ctx is done at the
// latest, which is a failure too.
func (c *Checker) Check(ctx context.Context, r prober.GRPCRequest) (prober.Outcome, string) {
	switch h, err := c.ask(ctx, r); {
	case err != nil:
		return prober.Failed, explain(ctx, r, err)
	case h != serving:
		return prober.Failed, fmt.Sprintf("service unhealthy (responded with %q)", h)
	default:
		return prober.Succeeded, "service healthy"
	}
}

// ask asks over a kept connection or, if there is none, over a new one. If it turns
// out that nobody heard, it asks once more, over a new one.
func (c *Checker) ask(ctx context.Context, r prober.GRPCRequest) (health, error) {
	request, err := newRequest(r.Service)
	if err != nil {
		return 0, err
	}
	k, err := c.take(r)
	if k == nil && err == nil {
		k, err = c.connect(ctx, r)
	}
	if err != nil {
		return 0, err
	}
	h, err := c.over(ctx, k, request)
	if refused, is := errors.AsType[*rpcError](err); !is || !refused.unheard || ctx.Err() != nil {
		return h, err
	}
	if k, err = c.connect(ctx, r); err != nil {
		return 0, err
	}
	return c.over(ctx, k, request)
}

// connectError says that there was nobody to ask.
type connectError struct{ error }

// connect returns a new connection, to be released.
func (c *Checker) connect(ctx context.Context, r prober.GRPCRequest) (*conn, error) {
	k, err := c.dial(ctx, target{address: r.Address, tls: r.TLS})
	if err != nil {
		return nil, connectError{err}
	}
	k.last = r.Fresh
	if err = c.own(k); err == nil {
		stop := context.AfterFunc(ctx, k.abort)
		err = k.hello()
		if !stop() && err == nil {
			err = ctx.Err()
		}
	}
	if err != nil {
		k.last = true
		c.release(k)
		return nil, connectError{err}
	}
	return k, nil
}

// over asks over k, and releases it.
func (c *Checker) over(ctx context.Context, k *conn, request []byte) (h health, err error) {
	defer c.release(k)
	timeout := ""
	if deadline, limited := ctx.Deadline(); limited {
		timeout = encodeTimeout(deadline.Sub(clock.RealClock{}.Now()))
	}
	stop := context.AfterFunc(ctx, k.abort)
	broken := k.ask(request, timeout)
	k.last = !stop() || broken != nil || k.last
	switch {
	case broken == nil:
		return k.call.answer()
	case isLate(ctx):
		return 0, failf(deadlineExceeded, "%v", context.DeadlineExceeded)
	case ctx.Err() != nil:
		return 0, failf(canceled, "%v", ctx.Err())
	default:
		failure := failf(unavailable, "error reading from server: %v", broken)
		// That a kept one has ended says nothing of the server yet.
		failure.unheard = k.call.id > 1 && !k.call.begun
		return 0, failure
	}
}

// explain says why there was no answer, in the kubelet's words.
func explain(ctx context.Context, r prober.GRPCRequest, err error) string {
	if failure, is := errors.AsType[connectError](err); is {
		var t net.Error
		switch {
		case isLate(ctx), errors.As(failure.error, &t) && t.Timeout():
			return fmt.Sprintf("timeout: failed to connect service %q within %s: %v", r.Address, r.Timeout, context.DeadlineExceeded)
		case ctx.Err() != nil:
			failure.error = context.Cause(ctx)
		}
		return fmt.Sprintf("error: failed to connect service at %q: %v", r.Address, failure.error)
	}
	failure, _ := errors.AsType[*rpcError](err)
	switch {
	case failure.code == unimplemented:
		return "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + failure.message
	case failure.code == deadlineExceeded, failure.code == canceled && isLate(ctx):
		return fmt.Sprintf("timeout: health rpc did not complete within %s", r.Timeout)
	default:
		return fmt.Sprintf("error: health rpc probe failed: %v", err)
	}
}

// isLate says whether the deadline is over. A server, which knows it too, may have
// noticed before ctx has.
func isLate(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return limited && !clock.RealClock{}.Now().Before(deadline)
}

// take returns a kept connection, to be released, or nil if there is none or it is
// not to be used.
func (c *Checker) take(r prober.GRPCRequest) (*conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, connectError{errClosed}
	}
	c.sweep()
	t := target{address: r.Address, tls: r.TLS}
	conns := c.kept[t]
	if r.Fresh || len(conns) == 0 {
		return nil, nil
	}
	k := conns[len(conns)-1]
	conns[len(conns)-1] = nil
	c.kept[t] = conns[:len(conns)-1]
	c.taken[k] = struct{}{}
	return k, nil
}

// own notes a new connection.
func (c *Checker) own(k *conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken[k] = struct{}{}
	if c.closed {
		return errClosed
	}
	return nil
}

// release gives a connection back: to be kept, or closed if it is of no more use.
func (c *Checker) release(k *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.taken, k)
	if k.last || c.closed {
		k.abort()
		return
	}
	k.used = c.cfg.Clock.Now()
	c.kept[k.target] = append(c.kept[k.target], k)
	if c.timer == nil {
		c.timer = clock.RealClock{}.AfterFunc(c.cfg.IdleTimeout, c.tick)
	}
}

// tick sweeps when nobody else does.
func (c *Checker) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = nil
	c.sweep()
	if len(c.kept) > 0 {
		c.timer = clock.RealClock{}.AfterFunc(c.cfg.IdleTimeout, c.tick)
	}
}

// sweep closes what has not been used for long, now and then. It needs mu.
func (c *Checker) sweep() {
	now := c.cfg.Clock.Now()
	if now.Sub(c.swept) < c.cfg.IdleTimeout {
		return
	}
	c.swept = now
	for t, conns := range c.kept {
		conns = slices.DeleteFunc(conns, func(k *conn) bool {
			old := now.Sub(k.used) >= c.cfg.IdleTimeout
			if old {
				k.abort()
			}
			return old
		})
		if c.kept[t] = conns; len(conns) == 0 {
			delete(c.kept, t)
		}
	}
}
