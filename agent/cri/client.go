package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/pleg/wirelist"
)

const (
	// connectTimeout is the time limit for establishing a connection.
	connectTimeout = 5 * time.Second
	// callTimeout is the time limit of a call, as in the kubelet.
	callTimeout = 2 * time.Minute
	// maxMessageBytes is the maximum size of a received message, as in the kubelet.
	maxMessageBytes = 16 << 20
	// windowBytes is the size of the flow control windows. With a fixed window that is large
	// enough for any message, gRPC does not measure the bandwidth of the socket.
	windowBytes = maxMessageBytes
)

// Config configures a [Client].
type Config struct {
	// Endpoint is the address of the runtime, such as unix:///run/containerd/containerd.sock.
	// Any gRPC target is valid. Required.
	Endpoint string
	// DialOptions are added to the options of the client, and override them. Examples are a
	// dialer, and the interceptor of package metrics, which counts calls. Optional.
	DialOptions []grpc.DialOption
}

// Validate reports every problem with c.
func (c Config) Validate() error {
	if c.Endpoint == "" {
		return errors.New("field Endpoint is required")
	}
	return nil
}

// Client calls a container runtime. Create it with [New]. All methods are safe for concurrent
// use.
type Client struct {
	conn    *grpc.ClientConn
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	lister  *wirelist.Lister
}

// New returns a Client that has not connected yet. The caller must close it.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("cri: invalid config: %w", err)
	}
	conn, err := grpc.NewClient(cfg.Endpoint, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		grpc.WithStaticStreamWindowSize(windowBytes),
		grpc.WithStaticConnWindowSize(windowBytes),
		grpc.WithDisableRetry(), // no retries are configured, so gRPC need not prepare for retries
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: connectTimeout, // otherwise gRPC uses the back-off delay as the time limit
		}),
	}, cfg.DialOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("cri: endpoint %s: %w", cfg.Endpoint, err)
	}
	lister, err := wirelist.New(wirelist.Config{Conn: conn, MaxMessageBytes: maxMessageBytes, Timeout: callTimeout})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cri: %w", err), conn.Close())
	}
	return &Client{
		conn: conn, runtime: runtimeapi.NewRuntimeServiceClient(conn), images: runtimeapi.NewImageServiceClient(conn), lister: lister,
	}, nil
}

// Close closes the connection. Calls in progress and later calls return the code Canceled.
func (c *Client) Close() error { return c.conn.Close() }

// Lister returns the lister of this client. All calls return the same lister. The lister is for
// a single caller that lists repeatedly with the same filter. All other callers use
// [Client.ListPodSandbox] and [Client.ListContainers].
func (c *Client) Lister() *wirelist.Lister { return c.lister }

// call makes one RPC with a time limit.
func call[Req, Resp any](ctx context.Context, limit time.Duration, rpc func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return rpc(ctx, req)
}
