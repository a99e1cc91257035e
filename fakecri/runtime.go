package fakecri

import (
	"context"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version returns the name and version of the runtime, whatever version the caller passes.
func (n *Node) Version(ctx context.Context, _ string) (*runtimeapi.VersionResponse, error) {
	if err := n.enter(ctx, "Version", "", ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: "fakecri", RuntimeVersion: "0.1.0", RuntimeApiVersion: "v1",
	}, nil
}

// Status reports the runtime and its network as ready. A verbose status contains no
// additional information.
func (n *Node) Status(ctx context.Context, _ bool) (*runtimeapi.StatusResponse, error) {
	if err := n.enter(ctx, "Status", "", ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	handlers := []*runtimeapi.RuntimeHandler{{Features: &runtimeapi.RuntimeHandlerFeatures{}}}
	for _, name := range n.cfg.RuntimeHandlers {
		handlers = append(handlers, &runtimeapi.RuntimeHandler{Name: name, Features: &runtimeapi.RuntimeHandlerFeatures{}})
	}
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Status: true},
		}},
		RuntimeHandlers: handlers,
	}, nil
}

// RuntimeConfig returns cgroupfs as the cgroup driver.
func (n *Node) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	if err := n.enter(ctx, "RuntimeConfig", "", ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	return &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS},
	}, nil
}

// UpdateRuntimeConfig ignores the range of the pod network, like a containerd that has its
// own network config.
func (n *Node) UpdateRuntimeConfig(ctx context.Context, _ *runtimeapi.RuntimeConfig) error {
	if err := n.enter(ctx, "UpdateRuntimeConfig", "", ""); err != nil {
		return err
	}
	n.mu.Unlock()
	return nil
}

// CheckpointContainer returns Unimplemented.
func (n *Node) CheckpointContainer(ctx context.Context, options *runtimeapi.CheckpointContainerRequest) error {
	if err := n.enter(ctx, "CheckpointContainer", options.GetContainerId(), ""); err != nil {
		return err
	}
	n.mu.Unlock()
	return grpcstatus.Error(codes.Unimplemented, "method CheckpointContainer not implemented")
}
