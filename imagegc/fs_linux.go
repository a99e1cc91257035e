package imagegc

import (
	"errors"
	"syscall"
)

func statfs(path string) (Usage, error) {
	var s syscall.Statfs_t
	err := syscall.Statfs(path, &s)
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Statfs(path, &s)
	}
	if err != nil {
		return Usage{}, err
	}
	block := uint64(max(s.Frsize, 0))
	return Usage{CapacityBytes: s.Blocks * block, AvailableBytes: s.Bavail * block}, nil
}
