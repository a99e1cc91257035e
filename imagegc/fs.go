package imagegc

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FS measures the filesystem that holds the images. Usage must not return a cached value: with a
// cached value, a collection would delete more than is needed.
type FS interface {
	Usage(ctx context.Context) (Usage, error)
}

// Usage is the capacity and the available space of a filesystem.
type Usage struct {
	CapacityBytes uint64 `json:"capacityBytes"`
	// AvailableBytes is how much can still be written, without the space reserved for
	// root.
	AvailableBytes uint64 `json:"availableBytes"`
}

// Percent returns the used part in percent, rounded up: everything that is not available
// counts, including the part reserved for root, as in the kubelet. A filesystem without
// capacity is 100 percent full.
func (u Usage) Percent() int {
	if u.CapacityBytes == 0 {
		return 100
	}
	hi, lo := bits.Mul64(min(u.AvailableBytes, u.CapacityBytes), 100)
	free, _ := bits.Div64(hi, lo, u.CapacityBytes)
	return 100 - int(free)
}

// PathFS measures the filesystem that holds a path. It works on Linux; on other systems
// Usage returns an error that wraps errors.ErrUnsupported.
type PathFS string

// Usage returns the kernel's values.
func (p PathFS) Usage(context.Context) (Usage, error) {
	u, err := statfs(string(p))
	if err != nil {
		return Usage{}, fmt.Errorf("statfs %s: %w", string(p), err)
	}
	return u, nil
}

// ImageFsInfo returns where images are stored. It is a literal subset of
// cri.ImageManagerService.
type ImageFsInfo interface {
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// RuntimeFS measures the filesystem at the mount point that the runtime reports for its
// images. It uses only the mount point, because the report has no capacity, and the device
// in the report may be unknown outside the runtime (kubernetes#113066). RuntimeFS calls the
// runtime for each measurement, because the configuration of the runtime may have changed.
type RuntimeFS struct {
	Runtime ImageFsInfo
}

// Usage gets the mount point from the runtime and the usage from the kernel.
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
	return Usage{}, errors.New("the runtime reports no image filesystem")
}
