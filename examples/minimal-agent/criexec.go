package main

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecSync runs a command in a container. As with every CRI client an exit code
// other than 0 is an error.
func (c *criClient) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	limit := rpcTimeout + timeout
	r, err := call(ctx, limit, c.runtime.ExecSync, &runtimeapi.ExecSyncRequest{
		ContainerId: id, Cmd: cmd, Timeout: int64(timeout / time.Second),
	})
	if err == nil && r.GetExitCode() != 0 {
		err = fmt.Errorf("command '%v' exited with %d: %s", cmd, r.GetExitCode(), r.GetStderr())
	}
	return r.GetStdout(), r.GetStderr(), err
}

func (c *criClient) UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error {
	_, err := call(ctx, rpcTimeout, c.runtime.UpdateContainerResources, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: resources.GetLinux(), Windows: resources.GetWindows(),
	})
	return err
}

func (c *criClient) UpdatePodSandboxResources(ctx context.Context, request *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return call(ctx, rpcTimeout, c.runtime.UpdatePodSandboxResources, request)
}
