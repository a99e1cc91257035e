package main

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (c *criClient) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return call(ctx, rpcTimeout, c.images.ImageFsInfo, &runtimeapi.ImageFsInfoRequest{})
}

func (c *criClient) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	r, err := call(ctx, rpcTimeout, c.images.ListImages, &runtimeapi.ListImagesRequest{Filter: filter})
	return r.GetImages(), err
}

func (c *criClient) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	_, err := call(ctx, rpcTimeout, c.images.RemoveImage, &runtimeapi.RemoveImageRequest{Image: image})
	return err
}

func (c *criClient) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	r, err := call(ctx, rpcTimeout, c.runtime.ListContainerStats, &runtimeapi.ListContainerStatsRequest{Filter: filter})
	return r.GetStats(), err
}

func (c *criClient) ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	r, err := call(ctx, rpcTimeout, c.runtime.ListPodSandboxStats, &runtimeapi.ListPodSandboxStatsRequest{Filter: filter})
	return r.GetStats(), err
}

func (c *criClient) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := call(ctx, rpcTimeout, c.runtime.ReopenContainerLog, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	return err
}
