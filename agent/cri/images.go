package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListImages returns the images that match the filter. A nil filter matches all.
func (c *Client) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	r, err := call(ctx, callTimeout, c.images.ListImages, &runtimeapi.ListImagesRequest{Filter: filter})
	return r.GetImages(), err
}

// ImageStatus returns the status of an image. The response has no image if the runtime does not
// have the image.
func (c *Client) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	return call(ctx, callTimeout, c.images.ImageStatus, &runtimeapi.ImageStatusRequest{Image: image, Verbose: verbose})
}

// PullImage pulls an image and returns the runtime's reference to it. The client sets no timeout:
// the caller limits the duration of a pull by the deadline of ctx.
func (c *Client) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, podSandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	r, err := c.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: podSandboxConfig})
	return r.GetImageRef(), err
}

// RemoveImage removes an image with all its names. A missing image is not an error.
func (c *Client) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	_, err := call(ctx, callTimeout, c.images.RemoveImage, &runtimeapi.RemoveImageRequest{Image: image})
	return err
}

// ImageFsInfo returns the filesystems of images and writable layers, and their usage.
func (c *Client) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return call(ctx, callTimeout, c.images.ImageFsInfo, &runtimeapi.ImageFsInfoRequest{})
}
