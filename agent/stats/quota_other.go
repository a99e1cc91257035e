//go:build !linux

package stats

import (
	"errors"
	"fmt"
)

// kernelQuotas is only supported on Linux.
type kernelQuotas struct{}

func (kernelQuotas) project(dir string) (project, bool, error) {
	return project{}, false, fmt.Errorf("project of %s: not supported on this operating system: %w", dir, errors.ErrUnsupported)
}

func (kernelQuotas) used(dir string, _ uint32) (bytes, inodes uint64, err error) {
	return 0, 0, fmt.Errorf("quota of %s: not supported on this operating system: %w", dir, errors.ErrUnsupported)
}
