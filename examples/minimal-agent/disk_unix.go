//go:build linux || darwin

package main

import "syscall"

// diskBytes is the size of the file system that holds a folder, 0 if that can't be
// known.
func diskBytes(dir string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0
	}
	return int64(s.Blocks * uint64(s.Bsize))
}
