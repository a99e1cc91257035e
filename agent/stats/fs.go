package stats

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kubeparts/kubeparts/eviction"
)

// fsUsage is what is left and what there is on a filesystem. Inodes are unknown
// where there is no limit to them, as on btrfs.
type fsUsage struct {
	available, capacity, used value
	inodesFree, inodes        value
}

// A filesystem's identity: its device or, where each subvolume has a device of
// its own, its source.
type fsID struct {
	dev    uint64
	source string
}

// identify completes what stat says with what is mounted there.
func identify(dev uint64, path string, mounts []mount) fsID {
	if m := mountOf(path, mounts); m.fstype == "btrfs" {
		return fsID{source: m.source}
	}
	return fsID{dev: dev}
}

// mountOf returns the mount that holds a path, the zero mount if there is none.
// Of several on one point the last one covers the others.
func mountOf(path string, mounts []mount) (best mount) {
	for _, m := range mounts {
		point := strings.TrimSuffix(m.point, "/")
		if (path == m.point || strings.HasPrefix(path, point+"/")) && len(m.point) >= len(best.point) {
			best = m
		}
	}
	return best
}

// errLayout is about filesystems laid out so that nothing is known about what to
// do (KEP-4191).
var errLayout = errors.New("neither one filesystem, nor images and containers on a second one, nor images alone on it")

// layoutOf tells how images, writable layers and the rest are spread.
func layoutOf(node, image, container fsID) (eviction.Layout, error) {
	switch {
	case image == node && container == node:
		return eviction.SingleFS, nil
	case container == image:
		return eviction.DedicatedImageFS, nil
	case container == node:
		return eviction.SplitFS, nil
	default:
		return eviction.UnknownLayout, fmt.Errorf("layout: %w", errLayout)
	}
}
