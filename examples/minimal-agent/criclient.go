package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// connectTimeout is what a runtime may take to accept a connection.
	connectTimeout = 5 * time.Second
	// rpcTimeout bounds each call but pulls, as the kubelet's does.
	rpcTimeout = 2 * time.Minute
	// maxMessageBytes is the largest answer that is taken, as the kubelet's.
	maxMessageBytes = 16 << 20
	// windowBytes is what may be under way unread. A fixed size that holds any answer
	// spares gRPC to measure the bandwidth of a socket.
	windowBytes = maxMessageBytes
)

// criClient has the methods of cri.RuntimeService and cri.ImageManagerService
// that the managers ask for, over a gRPC connection. It is meant to be copied:
// k8s.io/cri-client does the same and brings 34 packages more.
type criClient struct {
	conn    *grpc.ClientConn
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
}

// dialCRI returns a client of the runtime at a unix:// address. It connects when
// first used, and again whenever the runtime comes back.
func dialCRI(endpoint string, with ...grpc.DialOption) (*criClient, error) {
	conn, err := grpc.NewClient(endpoint, append(with,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		grpc.WithStaticStreamWindowSize(windowBytes),
		grpc.WithStaticConnWindowSize(windowBytes),
		grpc.WithDisableRetry(), // nobody configures any; gRPC would prepare for them
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: connectTimeout, // or it would be the backoff's delay
		}))...)
	if err != nil {
		return nil, fmt.Errorf("cri endpoint %s: %w", endpoint, err)
	}
	return &criClient{conn: conn, runtime: runtimeapi.NewRuntimeServiceClient(conn), images: runtimeapi.NewImageServiceClient(conn)}, nil
}

func (c *criClient) close() error { return c.conn.Close() }

// call makes one RPC within limit.
func call[Req, Resp any](ctx context.Context, limit time.Duration, rpc func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return rpc(ctx, req)
}

func (c *criClient) Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error) {
	return call(ctx, rpcTimeout, c.runtime.Version, &runtimeapi.VersionRequest{Version: apiVersion})
}

func (c *criClient) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	return call(ctx, rpcTimeout, c.runtime.Status, &runtimeapi.StatusRequest{Verbose: verbose})
}

func (c *criClient) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	// Twice the time: a sandbox may have to pull its image.
	r, err := call(ctx, 2*rpcTimeout, c.runtime.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	return r.GetPodSandboxId(), err
}

func (c *criClient) StopPodSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, rpcTimeout, c.runtime.StopPodSandbox, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

func (c *criClient) RemovePodSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, rpcTimeout, c.runtime.RemovePodSandbox, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

func (c *criClient) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return call(ctx, rpcTimeout, c.runtime.PodSandboxStatus, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: verbose})
}

func (c *criClient) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r, err := call(ctx, rpcTimeout, c.runtime.ListPodSandbox, &runtimeapi.ListPodSandboxRequest{Filter: filter})
	return r.GetItems(), err
}

func (c *criClient) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	r, err := call(ctx, rpcTimeout, c.runtime.CreateContainer, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandboxID, Config: config, SandboxConfig: sandbox,
	})
	return r.GetContainerId(), err
}

func (c *criClient) StartContainer(ctx context.Context, id string) error {
	_, err := call(ctx, rpcTimeout, c.runtime.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

func (c *criClient) StopContainer(ctx context.Context, id string, seconds int64) error {
	limit := rpcTimeout + time.Duration(seconds)*time.Second
	_, err := call(ctx, limit, c.runtime.StopContainer, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds})
	return err
}

func (c *criClient) RemoveContainer(ctx context.Context, id string) error {
	_, err := call(ctx, rpcTimeout, c.runtime.RemoveContainer, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}

func (c *criClient) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r, err := call(ctx, rpcTimeout, c.runtime.ListContainers, &runtimeapi.ListContainersRequest{Filter: filter})
	return r.GetContainers(), err
}

func (c *criClient) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	return call(ctx, rpcTimeout, c.runtime.ContainerStatus, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: verbose})
}

// GetContainerEvents has no limit: it lasts until ctx is done or the stream breaks.
func (c *criClient) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, opened func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // frees the stream
	stream, err := c.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	if opened != nil {
		opened(stream)
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case events <- event:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *criClient) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	return call(ctx, rpcTimeout, c.images.ImageStatus, &runtimeapi.ImageStatusRequest{Image: image, Verbose: verbose})
}

// PullImage has no limit of its own: the caller knows how long an image may take.
func (c *criClient) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	r, err := c.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: sandbox})
	return r.GetImageRef(), err
}
