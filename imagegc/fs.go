package imagegc

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FS measures the filesystem that holds the images. The measure is taken when it is
// asked for: one from a cache would have a collection delete more than it needs.
type FS interface {
	Usage(ctx context.Context) (Usage, error)
}

// Usage is how full a filesystem is.
type Usage struct {
	CapacityBytes uint64 `json:"capacityBytes"`
	// AvailableBytes is what may still be written, without what is reserved for root.
	AvailableBytes uint64 `json:"availableBytes"`
}

// Percent returns how full it is, rounded up: what of the capacity is not
// available, the part reserved for root included, as the kubelet counts it. A
// filesystem without capacity is full.
func (u Usage) Percent() int {
	if u.CapacityBytes == 0 {
		return 100
	}
	hi, lo := bits.Mul64(min(u.AvailableBytes, u.CapacityBytes), 100)
	free, _ := bits.Div64(hi, lo, u.CapacityBytes)
	return 100 - int(free)
}

// PathFS is the filesystem that holds a path, as the kernel sees it. It works on
// Linux; elsewhere every measurement is an error that wraps errors.ErrUnsupported.
type PathFS string

// Usage asks the kernel.
func (p PathFS) Usage(context.Context) (Usage, error) {
	u, err := statfs(string(p))
	if err != nil {
		return Usage{}, fmt.Errorf("statfs %s: %w", string(p), err)
	}
	return u, nil
}

// ImageFsInfo tells where images are stored, a literal subset of
// cri.ImageManagerService.
type ImageFsInfo interface {
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// RuntimeFS is the filesystem that the runtime says it keeps its images on, as the
// kernel sees it: the runtime's answer has no capacity, and need not be on a device
// that anybody else has heard of (kubernetes#113066). It asks the runtime each time,
// which may have been configured anew.
type RuntimeFS struct {
	Runtime ImageFsInfo
}

// Usage asks the runtime where, and the kernel how full.
func (r RuntimeFS) Usage(ctx context.Context) (Usage, error) {
	info, err := r.Runtime.ImageFsInfo(ctx)
	if err != nil {
		return Usage{}, fmt.Errorf("image filesystem info: %w", err)
	}
	for _, fs := range info.GetImageFilesystems() {
		if mountpoint := fs.GetFsId().GetMountpoint(); mountpoint != "" {
			return PathFS(mountpoint).Usage(ctx)
		}
	}
	return Usage{}, errors.New("the runtime names no image filesystem")
}
