package fakecri

import (
	"context"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeServer is the node as a gRPC service.
type runtimeServer struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	n *Node
}

// Version serves [Node.Version].
func (s *runtimeServer) Version(ctx context.Context, r *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return s.n.Version(ctx, r.GetVersion())
}

// RunPodSandbox serves [Node.RunPodSandbox].
func (s *runtimeServer) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	id, err := s.n.RunPodSandbox(ctx, r.GetConfig(), r.GetRuntimeHandler())
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, err
}

// StopPodSandbox serves [Node.StopPodSandbox].
func (s *runtimeServer) StopPodSandbox(ctx context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	return &runtimeapi.StopPodSandboxResponse{}, s.n.StopPodSandbox(ctx, r.GetPodSandboxId())
}

// RemovePodSandbox serves [Node.RemovePodSandbox].
func (s *runtimeServer) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	return &runtimeapi.RemovePodSandboxResponse{}, s.n.RemovePodSandbox(ctx, r.GetPodSandboxId())
}

// PodSandboxStatus serves [Node.PodSandboxStatus].
func (s *runtimeServer) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return s.n.PodSandboxStatus(ctx, r.GetPodSandboxId(), r.GetVerbose())
}

// ListPodSandbox serves [Node.ListPodSandbox].
func (s *runtimeServer) ListPodSandbox(ctx context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	items, err := s.n.ListPodSandbox(ctx, r.GetFilter())
	return &runtimeapi.ListPodSandboxResponse{Items: items}, err
}

// CreateContainer serves [Node.CreateContainer].
func (s *runtimeServer) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	id, err := s.n.CreateContainer(ctx, r.GetPodSandboxId(), r.GetConfig(), r.GetSandboxConfig())
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, err
}

// StartContainer serves [Node.StartContainer].
func (s *runtimeServer) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	return &runtimeapi.StartContainerResponse{}, s.n.StartContainer(ctx, r.GetContainerId())
}

// StopContainer serves [Node.StopContainer].
func (s *runtimeServer) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	return &runtimeapi.StopContainerResponse{}, s.n.StopContainer(ctx, r.GetContainerId(), r.GetTimeout())
}

// RemoveContainer serves [Node.RemoveContainer].
func (s *runtimeServer) RemoveContainer(ctx context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	return &runtimeapi.RemoveContainerResponse{}, s.n.RemoveContainer(ctx, r.GetContainerId())
}

// ListContainers serves [Node.ListContainers].
func (s *runtimeServer) ListContainers(ctx context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	items, err := s.n.ListContainers(ctx, r.GetFilter())
	return &runtimeapi.ListContainersResponse{Containers: items}, err
}

// ContainerStatus serves [Node.ContainerStatus].
func (s *runtimeServer) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return s.n.ContainerStatus(ctx, r.GetContainerId(), r.GetVerbose())
}

// UpdateContainerResources serves [Node.UpdateContainerResources].
func (s *runtimeServer) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	resources := &runtimeapi.ContainerResources{Linux: r.GetLinux(), Windows: r.GetWindows()}
	return &runtimeapi.UpdateContainerResourcesResponse{}, s.n.UpdateContainerResources(ctx, r.GetContainerId(), resources)
}

// ReopenContainerLog serves [Node.ReopenContainerLog].
func (s *runtimeServer) ReopenContainerLog(ctx context.Context, r *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	return &runtimeapi.ReopenContainerLogResponse{}, s.n.ReopenContainerLog(ctx, r.GetContainerId())
}

// ExecSync serves [Node.ExecSync].
func (s *runtimeServer) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	answer, err := s.n.runExec(ctx, r.GetContainerId(), r.GetCmd(), seconds(r.GetTimeout()))
	return &runtimeapi.ExecSyncResponse{
		Stdout: []byte(answer.Stdout), Stderr: []byte(answer.Stderr), ExitCode: answer.ExitCode,
	}, err
}

// Exec serves [Node.Exec].
func (s *runtimeServer) Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return s.n.Exec(ctx, r)
}

// Attach serves [Node.Attach].
func (s *runtimeServer) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return s.n.Attach(ctx, r)
}

// PortForward serves [Node.PortForward].
func (s *runtimeServer) PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return s.n.PortForward(ctx, r)
}

// ContainerStats serves [Node.ContainerStats].
func (s *runtimeServer) ContainerStats(ctx context.Context, r *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	stats, err := s.n.ContainerStats(ctx, r.GetContainerId())
	return &runtimeapi.ContainerStatsResponse{Stats: stats}, err
}

// ListContainerStats serves [Node.ListContainerStats].
func (s *runtimeServer) ListContainerStats(ctx context.Context, r *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	items, err := s.n.ListContainerStats(ctx, r.GetFilter())
	return &runtimeapi.ListContainerStatsResponse{Stats: items}, err
}

// PodSandboxStats serves [Node.PodSandboxStats].
func (s *runtimeServer) PodSandboxStats(ctx context.Context, r *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	stats, err := s.n.PodSandboxStats(ctx, r.GetPodSandboxId())
	return &runtimeapi.PodSandboxStatsResponse{Stats: stats}, err
}

// ListPodSandboxStats serves [Node.ListPodSandboxStats].
func (s *runtimeServer) ListPodSandboxStats(ctx context.Context, r *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	items, err := s.n.ListPodSandboxStats(ctx, r.GetFilter())
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: items}, err
}

// UpdateRuntimeConfig serves [Node.UpdateRuntimeConfig].
func (s *runtimeServer) UpdateRuntimeConfig(ctx context.Context, r *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, s.n.UpdateRuntimeConfig(ctx, r.GetRuntimeConfig())
}

// Status serves [Node.Status].
func (s *runtimeServer) Status(ctx context.Context, r *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return s.n.Status(ctx, r.GetVerbose())
}

// CheckpointContainer serves [Node.CheckpointContainer].
func (s *runtimeServer) CheckpointContainer(ctx context.Context, r *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	return &runtimeapi.CheckpointContainerResponse{}, s.n.CheckpointContainer(ctx, r)
}

// ListMetricDescriptors serves [Node.ListMetricDescriptors].
func (s *runtimeServer) ListMetricDescriptors(ctx context.Context, _ *runtimeapi.ListMetricDescriptorsRequest) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	items, err := s.n.ListMetricDescriptors(ctx)
	return &runtimeapi.ListMetricDescriptorsResponse{Descriptors: items}, err
}

// ListPodSandboxMetrics serves [Node.ListPodSandboxMetrics].
func (s *runtimeServer) ListPodSandboxMetrics(ctx context.Context, _ *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	items, err := s.n.ListPodSandboxMetrics(ctx)
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: items}, err
}

// RuntimeConfig serves [Node.RuntimeConfig].
func (s *runtimeServer) RuntimeConfig(ctx context.Context, _ *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return s.n.RuntimeConfig(ctx)
}

// UpdatePodSandboxResources serves [Node.UpdatePodSandboxResources].
func (s *runtimeServer) UpdatePodSandboxResources(ctx context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return s.n.UpdatePodSandboxResources(ctx, r)
}

// GetContainerEvents serves [Node.GetContainerEvents].
func (s *runtimeServer) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	return s.n.subscribe(stream.Context(), func() {}, stream.Send)
}

// imageServer is the node's image store as a gRPC service.
type imageServer struct {
	runtimeapi.UnimplementedImageServiceServer
	n *Node
}

// ListImages serves [Node.ListImages].
func (s *imageServer) ListImages(ctx context.Context, r *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	items, err := s.n.ListImages(ctx, r.GetFilter())
	return &runtimeapi.ListImagesResponse{Images: items}, err
}

// ImageStatus serves [Node.ImageStatus].
func (s *imageServer) ImageStatus(ctx context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return s.n.ImageStatus(ctx, r.GetImage(), r.GetVerbose())
}

// PullImage serves [Node.PullImage].
func (s *imageServer) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	ref, err := s.n.PullImage(ctx, r.GetImage(), r.GetAuth(), r.GetSandboxConfig())
	return &runtimeapi.PullImageResponse{ImageRef: ref}, err
}

// RemoveImage serves [Node.RemoveImage].
func (s *imageServer) RemoveImage(ctx context.Context, r *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	return &runtimeapi.RemoveImageResponse{}, s.n.RemoveImage(ctx, r.GetImage())
}

// ImageFsInfo serves [Node.ImageFsInfo].
func (s *imageServer) ImageFsInfo(ctx context.Context, _ *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return s.n.ImageFsInfo(ctx)
}
