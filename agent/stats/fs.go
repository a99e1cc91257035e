package stats

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kubeparts/kubeparts/eviction"
)

// fsUsage is the usage of a filesystem. The numbers of inodes are unknown if the filesystem does
// not limit inodes, for example a btrfs.
type fsUsage struct {
	available, capacity, used value
	inodesFree, inodes        value
}

// fsID identifies a filesystem by its device number. A btrfs, whose subvolumes have different
// device numbers, is identified by its source.
type fsID struct {
	dev    uint64
	source string
}

// identify returns the identity of the filesystem at a path, from its device and the mounts.
func identify(dev uint64, path string, mounts []mount) fsID {
	if m := mountOf(path, mounts); m.fstype == "btrfs" {
		return fsID{source: m.source}
	}
	return fsID{dev: dev}
}

// mountOf returns the mount that contains a path, or the zero mount if no mount contains it.
// If several mounts have the same mount point, mountOf returns the last mount, because the
// last mount hides the previous mounts.
func mountOf(path string, mounts []mount) (best mount) {
	for _, m := range mounts {
		point := strings.TrimSuffix(m.point, "/")
		if (path == m.point || strings.HasPrefix(path, point+"/")) && len(m.point) >= len(best.point) {
			best = m
		}
	}
	return best
}

// errLayout reports a filesystem layout that eviction does not support (KEP-4191).
var errLayout = errors.New("unsupported: use one filesystem for all data, or a second filesystem for images and writable layers, or a second filesystem for images only")

// layoutOf returns how volumes and logs, images, and writable layers are distributed over
// filesystems.
func layoutOf(node, image, container fsID) (eviction.Layout, error) {
	switch {
	case image == node && container == node:
		return eviction.SingleFS, nil
	case container == image:
		return eviction.DedicatedImageFS, nil
	case container == node:
		return eviction.SplitFS, nil
	default:
		return eviction.UnknownLayout, fmt.Errorf("filesystem layout: %w", errLayout)
	}
}
