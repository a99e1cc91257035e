package cgroups

import (
	"errors"
	"syscall"
)

// isBusy says that a cgroup has processes, or cgroups that came while it was
// being removed.
func isBusy(err error) bool {
	return errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY)
}

// isRemoved says that a cgroup was removed while one of its files was open.
func isRemoved(err error) bool { return errors.Is(err, syscall.ENODEV) }
