package cri

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"
)

// CreateContainer creates a container in a sandbox and returns its ID.
func (c *Client) CreateContainer(ctx context.Context, podSandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	r, err := call(ctx, callTimeout, c.runtime.CreateContainer, &runtimeapi.CreateContainerRequest{
		PodSandboxId: podSandboxID, Config: config, SandboxConfig: sandboxConfig,
	})
	return r.GetContainerId(), err
}

// StartContainer starts a created container.
func (c *Client) StartContainer(ctx context.Context, containerID string) error {
	_, err := call(ctx, callTimeout, c.runtime.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: containerID})
	return err
}

// StopContainer stops a container: the runtime kills it if it still runs after timeout seconds.
// This time is added to the timeout of the call.
func (c *Client) StopContainer(ctx context.Context, containerID string, timeout int64) error {
	limit := callTimeout + time.Duration(min(timeout, math.MaxInt32))*time.Second // a pod's grace period may exceed the range of a Duration
	_, err := call(ctx, limit, c.runtime.StopContainer, &runtimeapi.StopContainerRequest{ContainerId: containerID, Timeout: timeout})
	return err
}

// RemoveContainer removes a container, even if it is running.
func (c *Client) RemoveContainer(ctx context.Context, containerID string) error {
	_, err := call(ctx, callTimeout, c.runtime.RemoveContainer, &runtimeapi.RemoveContainerRequest{ContainerId: containerID})
	return err
}

// ListContainers returns the containers that match the filter. A nil filter matches all.
func (c *Client) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r, err := call(ctx, callTimeout, c.runtime.ListContainers, &runtimeapi.ListContainersRequest{Filter: filter})
	return r.GetContainers(), err
}

// ContainerStatus returns the status of a container. The error has the code NotFound if the
// container does not exist.
func (c *Client) ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	return call(ctx, callTimeout, c.runtime.ContainerStatus, &runtimeapi.ContainerStatusRequest{ContainerId: containerID, Verbose: verbose})
}

// ListContainerStats returns the resource usage of the containers that match the filter.
func (c *Client) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	r, err := call(ctx, callTimeout, c.runtime.ListContainerStats, &runtimeapi.ListContainerStatsRequest{Filter: filter})
	return r.GetStats(), err
}

// UpdateContainerResources changes the limits of a container.
func (c *Client) UpdateContainerResources(ctx context.Context, containerID string, resources *runtimeapi.ContainerResources) error {
	_, err := call(ctx, callTimeout, c.runtime.UpdateContainerResources, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: containerID, Linux: resources.GetLinux(), Windows: resources.GetWindows(),
	})
	return err
}

// ReopenContainerLog makes the runtime reopen the log of a container after a rotation.
func (c *Client) ReopenContainerLog(ctx context.Context, containerID string) error {
	_, err := call(ctx, callTimeout, c.runtime.ReopenContainerLog, &runtimeapi.ReopenContainerLogRequest{ContainerId: containerID})
	return err
}

// ExecSync runs a command in a container and returns its output. For an exit code other than 0
// it also returns a [utilexec.CodeExitError]. The timeout is rounded up to whole seconds. If the
// timeout is 0, the call has no timeout.
func (c *Client) ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	seconds := int64((timeout + time.Second - 1) / time.Second)
	if seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout+timeout)
		defer cancel()
	}
	r, err := c.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: containerID, Cmd: cmd, Timeout: seconds})
	if err == nil && r.GetExitCode() != 0 {
		err = utilexec.CodeExitError{
			Err:  fmt.Errorf("command '%s' exited with %d: %s", strings.Join(cmd, " "), r.GetExitCode(), r.GetStderr()),
			Code: int(r.GetExitCode()),
		}
	}
	return r.GetStdout(), r.GetStderr(), err
}

// Exec returns the URL of a stream to a command in a container.
func (c *Client) Exec(ctx context.Context, request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return call(ctx, callTimeout, c.runtime.Exec, request)
}

// Attach returns the URL of a stream to a running container.
func (c *Client) Attach(ctx context.Context, request *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return call(ctx, callTimeout, c.runtime.Attach, request)
}

// CheckpointContainer writes a checkpoint of a running container to the file Location. If Timeout
// is less than two minutes, the time limit is two minutes, as in the kubelet.
func (c *Client) CheckpointContainer(ctx context.Context, request *runtimeapi.CheckpointContainerRequest) error {
	limit := max(callTimeout, time.Duration(min(request.GetTimeout(), math.MaxInt32))*time.Second)
	_, err := call(ctx, limit, c.runtime.CheckpointContainer, &runtimeapi.CheckpointContainerRequest{
		ContainerId: request.GetContainerId(), Location: request.GetLocation(), Timeout: int64(limit / time.Second),
	})
	return err
}
