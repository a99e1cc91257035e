//go:build !linux

package stats

import (
	"errors"
	"fmt"
)

func statfs(path string) (fsUsage, error) {
	return fsUsage{}, fmt.Errorf("statfs %s: not supported on this operating system: %w", path, errors.ErrUnsupported)
}

func isMemory(string) bool { return false }

func device(path string) (uint64, error) {
	return 0, fmt.Errorf("device of %s: not supported on this operating system: %w", path, errors.ErrUnsupported)
}
