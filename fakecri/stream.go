package fakecri

import (
	"slices"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// streamBatch is the number of items in one message of a streamed list (KEP-5825). It is
// small, so that the lists of a usual test need several messages.
const streamBatch = 100

// sendAll sends the items of a list in order. It sends no message for an empty list. If err
// is not nil, it returns err.
func sendAll[T, M any](items []T, err error, send func(*M) error, wrap func([]T) *M) error {
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(items, streamBatch) {
		if err := send(wrap(batch)); err != nil {
			return err
		}
	}
	return nil
}

// StreamPodSandboxes streams what [Node.ListPodSandbox] returns.
func (s *runtimeServer) StreamPodSandboxes(r *runtimeapi.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	items, err := s.n.listPodSandbox(stream.Context(), "StreamPodSandboxes", r.GetFilter())
	return sendAll(items, err, stream.Send, func(batch []*runtimeapi.PodSandbox) *runtimeapi.StreamPodSandboxesResponse {
		return &runtimeapi.StreamPodSandboxesResponse{PodSandboxes: batch}
	})
}

// StreamContainers streams what [Node.ListContainers] returns.
func (s *runtimeServer) StreamContainers(r *runtimeapi.StreamContainersRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	items, err := s.n.listContainers(stream.Context(), "StreamContainers", r.GetFilter())
	return sendAll(items, err, stream.Send, func(batch []*runtimeapi.Container) *runtimeapi.StreamContainersResponse {
		return &runtimeapi.StreamContainersResponse{Containers: batch}
	})
}

// StreamContainerStats streams what [Node.ListContainerStats] returns.
func (s *runtimeServer) StreamContainerStats(r *runtimeapi.StreamContainerStatsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse]) error {
	items, err := s.n.listContainerStats(stream.Context(), "StreamContainerStats", r.GetFilter())
	return sendAll(items, err, stream.Send, func(batch []*runtimeapi.ContainerStats) *runtimeapi.StreamContainerStatsResponse {
		return &runtimeapi.StreamContainerStatsResponse{ContainerStats: batch}
	})
}

// StreamPodSandboxStats streams what [Node.ListPodSandboxStats] returns.
func (s *runtimeServer) StreamPodSandboxStats(r *runtimeapi.StreamPodSandboxStatsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse]) error {
	items, err := s.n.listPodSandboxStats(stream.Context(), "StreamPodSandboxStats", r.GetFilter())
	return sendAll(items, err, stream.Send, func(batch []*runtimeapi.PodSandboxStats) *runtimeapi.StreamPodSandboxStatsResponse {
		return &runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: batch}
	})
}

// StreamPodSandboxMetrics streams what [Node.ListPodSandboxMetrics] returns.
func (s *runtimeServer) StreamPodSandboxMetrics(_ *runtimeapi.StreamPodSandboxMetricsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxMetricsResponse]) error {
	items, err := s.n.listPodSandboxMetrics(stream.Context(), "StreamPodSandboxMetrics")
	return sendAll(items, err, stream.Send, func(batch []*runtimeapi.PodSandboxMetrics) *runtimeapi.StreamPodSandboxMetricsResponse {
		return &runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: batch}
	})
}

// StreamImages streams what [Node.ListImages] returns.
func (s *imageServer) StreamImages(_ *runtimeapi.StreamImagesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse]) error {
	items, err := s.n.listImages(stream.Context(), "StreamImages")
	return sendAll(items, err, stream.Send, func(batch []*runtimeapi.Image) *runtimeapi.StreamImagesResponse {
		return &runtimeapi.StreamImagesResponse{Images: batch}
	})
}
