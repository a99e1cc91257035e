package cgroups

import (
	"errors"
	"syscall"
)

// isBusy reports whether a cgroup could not be removed because it has
// processes, or cgroups that were created meanwhile.
func isBusy(err error) bool {
	return errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY)
}

// isRemoved reports whether a cgroup was removed while one of its files was
// open.
func isRemoved(err error) bool { return errors.Is(err, syscall.ENODEV) }
