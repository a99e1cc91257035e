package stats

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// statfs returns the usage of the filesystem that contains a path.
func statfs(path string) (u fsUsage, err error) {
	var s unix.Statfs_t
	for {
		if err = unix.Statfs(path, &s); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return u, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	block := uint64(max(s.Frsize, 0)) // unit of the block counts, as in df
	if block == 0 {
		block = uint64(max(s.Bsize, 0))
	}
	if s.Blocks == 0 {
		return u, fmt.Errorf("statfs %s: the filesystem has no blocks", path)
	}
	u.capacity = known(s.Blocks).times(block)
	u.available = known(s.Bavail).times(block)
	u.used = known(s.Blocks).minus(known(s.Bfree)).times(block)
	if s.Files != 0 {
		u.inodes, u.inodesFree = known(s.Files), known(s.Ffree)
	}
	return u, nil
}

// isMemory reports whether an in-memory filesystem is mounted at path itself. It returns
// false for a folder inside an in-memory filesystem, because the node's root filesystem may
// be in memory.
func isMemory(path string) bool {
	own, err := device(path)
	parent, errParent := device(filepath.Dir(path))
	if err != nil || errParent != nil || own == parent {
		return false
	}
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && (s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC || s.Type == unix.HUGETLBFS_MAGIC)
}

// device returns the device number of the filesystem that contains a path.
func device(path string) (uint64, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return s.Dev, nil
}
