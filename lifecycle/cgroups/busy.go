package cgroups

import (
	"errors"
	"syscall"
)

// isBusy reports whether err means that a cgroup could not be removed because
// it contains processes or other cgroups.
func isBusy(err error) bool {
	return errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY)
}

// isRemoved reports whether err means that a cgroup was removed while one of
// its files was open.
func isRemoved(err error) bool { return errors.Is(err, syscall.ENODEV) }
