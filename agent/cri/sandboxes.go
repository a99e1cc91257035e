package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version returns the name and the version of the runtime.
func (c *Client) Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error) {
	return call(ctx, callTimeout, c.runtime.Version, &runtimeapi.VersionRequest{Version: apiVersion})
}

// Status returns the conditions of the runtime. If verbose is true, it also returns the
// configuration of the runtime.
func (c *Client) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	return call(ctx, callTimeout, c.runtime.Status, &runtimeapi.StatusRequest{Verbose: verbose})
}

// RunPodSandbox creates and starts a sandbox and returns its ID. The timeout is twice the
// timeout of other calls, because the runtime may have to pull the sandbox's image.
func (c *Client) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, runtimeHandler string) (string, error) {
	r, err := call(ctx, 2*callTimeout, c.runtime.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: runtimeHandler})
	return r.GetPodSandboxId(), err
}

// StopPodSandbox stops a sandbox and kills its containers.
func (c *Client) StopPodSandbox(ctx context.Context, podSandboxID string) error {
	_, err := call(ctx, callTimeout, c.runtime.StopPodSandbox, &runtimeapi.StopPodSandboxRequest{PodSandboxId: podSandboxID})
	return err
}

// RemovePodSandbox removes a sandbox and its containers, even if they are running.
func (c *Client) RemovePodSandbox(ctx context.Context, podSandboxID string) error {
	_, err := call(ctx, callTimeout, c.runtime.RemovePodSandbox, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: podSandboxID})
	return err
}

// PodSandboxStatus returns the status of a sandbox. The error has the code NotFound if the
// sandbox does not exist.
func (c *Client) PodSandboxStatus(ctx context.Context, podSandboxID string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return call(ctx, callTimeout, c.runtime.PodSandboxStatus, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: podSandboxID, Verbose: verbose})
}

// ListPodSandbox returns the sandboxes that match the filter. A nil filter matches all.
func (c *Client) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r, err := call(ctx, callTimeout, c.runtime.ListPodSandbox, &runtimeapi.ListPodSandboxRequest{Filter: filter})
	return r.GetItems(), err
}

// ListPodSandboxStats returns the resource usage of the sandboxes that match the filter.
func (c *Client) ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	r, err := call(ctx, callTimeout, c.runtime.ListPodSandboxStats, &runtimeapi.ListPodSandboxStatsRequest{Filter: filter})
	return r.GetStats(), err
}

// UpdatePodSandboxResources informs the runtime that the resources of a pod have changed.
func (c *Client) UpdatePodSandboxResources(ctx context.Context, request *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return call(ctx, callTimeout, c.runtime.UpdatePodSandboxResources, request)
}

// PortForward returns the URL of a stream to ports of a sandbox.
func (c *Client) PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return call(ctx, callTimeout, c.runtime.PortForward, request)
}

// GetContainerEvents sends the events of containers to the channel. If opened is not nil,
// GetContainerEvents calls it when the stream is open. GetContainerEvents returns when the
// stream breaks or ctx is done. It has no timeout.
func (c *Client) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, opened func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // releases the stream
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
